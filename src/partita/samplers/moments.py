r"""How far chains spread, learned in windows of a warm-up: the coordinates in which steps are made.

.. math:: \Sigma_n = \frac{1}{n - 1} \sum_i (x_i - \bar x)(x_i - \bar x)^\top, \qquad
          L L^\top = \frac{n}{n + 5}\, \Sigma_n + \frac{5}{n + 5}\, \mathrm{diag}\, \Sigma_n
          (theory/gradient_samplers.md, eq. 31.10)

All chains of a rung are pooled, and each step adds to the sums (Welford 1962; Chan, Golub and
LeVeque 1979).

Letters: C chains, T temperatures, D visible.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from partita.samplers.metric import Stretch

PRIOR = 5.0  # draws that independent coordinates count for
FEW = 2  # draws for each coordinate below which a dense matrix is a diagonal one


class Moments(NamedTuple):
    """What chains have shown of their spread, of every rung."""

    before: Tensor  # (), steps of warm-up in windows that are over
    drawn: Tensor  # (), states of this window
    mean: Tensor  # (*, D)
    square: Tensor  # (*, D), or (*, D, D) where it is dense: sums about the mean
    root: Tensor  # (*, 1, D), or (*, D, D): L, as windows that are over have it

    @property
    def stretch(self) -> Stretch:
        """The coordinates in which chains spread by one."""
        if self.square.dim() > self.mean.dim():
            return Stretch(self.root, self.root.new_ones(()))
        return Stretch(None, self.root)


def start(x: Tensor, *, dense: bool = False) -> Moments:
    """Nothing known of chains at ``x``, ``(*, C, D)``."""
    mean, nought = torch.zeros_like(x[..., 0, :]), torch.zeros((), dtype=torch.long)
    if not dense:
        return Moments(nought, nought, mean, mean, torch.ones_like(x[..., :1, :]))
    one = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    square = mean[..., None] * one
    return Moments(nought, nought, mean, square, square + one)


def gathered(moments: Moments, x: Tensor) -> Moments:
    """With one more draw of each chain, ``(*, C, D)``."""
    n, more = int(moments.drawn), x.shape[-2]
    center = x.mean(-2)
    shift, away = center - moments.mean, x - center[..., None, :]
    if moments.square.dim() == moments.mean.dim():
        square, between = away.square().sum(-2), shift.square()
    else:
        square, between = away.mT @ away, shift[..., None] * shift[..., None, :]
    return moments._replace(
        drawn=moments.drawn + more,
        mean=moments.mean + shift * (more / (n + more)),
        square=moments.square + square + between * (n * more / (n + more)),
    )


def closed(moments: Moments, steps: int) -> Moments:
    """The window is over after ``steps`` steps of the warm-up: what it showed is L now."""
    n, D = int(moments.drawn), moments.mean.shape[-1]
    dense = moments.square.dim() > moments.mean.dim()
    variance = moments.square / max(n - 1, 1)
    single = variance.diagonal(dim1=-2, dim2=-1) if dense else variance
    single = torch.where(single > 0, single, 1.0)  # of a coordinate in which no chain moved
    if not dense:
        root = single.sqrt()[..., None, :]
    else:
        share = n / (n + PRIOR) if n >= FEW * D else 0.0
        shrunk = share * variance + (1 - share) * torch.diag_embed(single)
        root = torch.linalg.cholesky(shrunk)
    nought = torch.zeros_like(moments.mean)
    return Moments(
        torch.full_like(moments.before, steps),
        torch.zeros_like(moments.drawn),
        nought,
        torch.zeros_like(moments.square),
        root,
    )
