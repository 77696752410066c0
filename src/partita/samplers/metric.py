r"""Coordinates in which the energy bends evenly along a path, so that one step size serves all.

.. math:: G_\beta = (1 - \beta)\, G_0 + \beta\, G_1, \qquad
          G = E\big[\nabla F\, \nabla F^\top\big] = E\big[\nabla^2 F\big], \qquad
          L_\beta L_\beta^\top = G_\beta^{-1}
          (theory/gradient_samplers.md, eq. 31.8)

The mean of squared slopes is the mean bend of a normalized density, and its inverse the best
metric for Langevin steps (Titsias 2023). Axes that diagonalize both ends do so all along the path.

Letters: D visible, N states.
"""

from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

UNEVEN = 20.0  # times that bends must differ for a metric to be worth it
LEAST_STATES = 4  # for each coordinate, below which axes are those of the coordinates
STEEPEST = 0.1  # share of the states that is left out: some may be far from any mode
FLOOR = 1e-10  # of the largest bend


class Stretch(NamedTuple):
    """The axes at one temperature, and how far a unit step goes along each."""

    # (D, D) or (*, D, D), in columns, or (*, C, D, D) where each chain has its own; those of the
    # coordinates if None
    axes: Tensor | None
    lengths: Tensor  # (*, 1, D) or (D,)

    def force(self, gradient: Tensor) -> Tensor:
        """The gradient in these coordinates, ``(*, C, D)``."""
        return (gradient if self.axes is None else gradient @ self.axes) * self.lengths

    def velocity(self, momentum: Tensor) -> Tensor:
        """How x moves by a momentum of these coordinates, ``(*, C, D)``."""
        stretched = momentum * self.lengths
        if self.axes is None:
            return stretched
        if self.axes.dim() > momentum.dim():
            return (stretched[..., None, :] @ self.axes.mT)[..., 0, :]
        return stretched @ self.axes.mT


class Metric(NamedTuple):
    """Axes in columns, ``(D, D)``, in whose units the reference bends by one, and the model's bends
    along them, ``(D,)``.
    """

    axes: Tensor
    bends: Tensor

    def stretch(self, beta: Tensor | float, like: Tensor) -> Stretch:
        """L at ``beta``, a number or ``(*, 1)``, as axes and lengths."""
        at = torch.as_tensor(beta).to(like)[..., None]
        return Stretch(
            self.axes.to(like), torch.lerp(torch.ones_like(at), self.bends.to(like), at).rsqrt()
        )


class Spreads(NamedTuple):
    """Roots L of covariances along a path, ``(n, D, D)``, at rising inverse temperatures ``(n,)``;
    linear between them.
    """

    betas: Tensor
    roots: Tensor

    def stretch(self, beta: Tensor | float, like: Tensor) -> Stretch:
        """L at ``beta``, a number, ``(*, 1)`` or one for each chain."""
        at, betas = torch.as_tensor(beta).to(like), self.betas.to(like)
        at = at[..., 0] if at.dim() and at.shape[-1] == 1 else at
        above = torch.searchsorted(betas, at.contiguous()).clamp(1, len(betas) - 1)
        share = ((at - betas[above - 1]) / (betas[above] - betas[above - 1])).clamp(0, 1)
        roots = self.roots.to(like)
        between = torch.lerp(roots[above - 1], roots[above], share[..., None, None])
        return Stretch(between, like.new_ones(()))


Coordinates: TypeAlias = Metric | Spreads


def metric_between(first: Tensor, last: Tensor) -> Metric | None:
    """The metric from slopes at draws of the reference and of the model, ``(N, D)`` each; None
    where the model bends about as evenly as the reference does.
    """
    few = min(len(first), len(last)) < LEAST_STATES * first.shape[1]
    G0, G1 = (_mean_square(slopes.double(), few) for slopes in (first, last))
    root = torch.linalg.cholesky(G0)
    inverse = torch.linalg.solve_triangular(root, torch.eye(len(G0)).to(G0), upper=False)
    bends, axes = torch.linalg.eigh(inverse @ G1 @ inverse.mT)
    bends = bends.clamp_min(FLOOR * bends.max())
    if not float(bends.max() / bends.min()) > UNEVEN:
        return None
    return Metric(inverse.mT @ axes, bends)


def _mean_square(slopes: Tensor, diagonal: bool) -> Tensor:
    """G, without the steepest of the slopes."""
    size = slopes.norm(dim=-1)
    kept = slopes[size <= size.quantile(1 - STEEPEST)]
    square = kept.mT @ kept / len(kept)
    square = square.diagonal().diag() if diagonal else square
    return square + FLOOR * square.diagonal().max() * torch.eye(len(square)).to(square)
