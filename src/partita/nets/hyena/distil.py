r"""A recurrence distilled from filters: few poles and residues in place of a past that grows.

.. math:: h_t \approx d\, \delta_t + \mathrm{Re} \sum_{k=1}^{K} r_k \lambda_k^t, \qquad |\lambda_k|
          \le 1
          (theory/sequences.md, eq. 23.7)

The poles come from the shift invariance of the leading singular vectors of the Hankel matrix of h
(Kung 1978), the residues from least squares; what is lost is measured on all of h and reported.

Letters: D channels, L length, K poles, lambda pole, r residue, d direct term.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from partita.core.arguments import check_count
from partita.errors import invalid
from partita.nets.hyena.operator import Hyena

HANKEL = 512  # rows of the Hankel matrix at most
TINY = 1e-300  # in place of a pole at zero, whose complex powers have no logarithm


class Poles(NamedTuple):
    """Filters as sums of powers, and how far they are from the filters they stand for."""

    pole: Tensor  # (*, K), complex
    residue: Tensor  # (*, K), complex
    direct: Tensor  # (*)
    error: Tensor  # (*), |h - approximation|_2 / |h|_2

    def filter(self, length: int) -> Tensor:
        """The filters they make, ``(*, L)``."""
        t = torch.arange(length, device=self.pole.device)
        h = (self.residue.unsqueeze(-1) * self.pole.unsqueeze(-1) ** t).sum(-2).real
        return torch.cat([h[..., :1] + self.direct.unsqueeze(-1), h[..., 1:]], -1)


@torch.no_grad()
def poles_of(h: Tensor, K: int) -> Poles:
    """Poles and residues of filters, ``(*, L)``, in float64; exact where h is a sum of at most K
    powers.
    """
    L = h.shape[-1]
    if check_count("distil", "K", K) > (L - 1) // 2:
        allowed = f"be at most half the length of the filters less one, {(L - 1) // 2}"
        raise invalid("distil", "K", allowed, K)
    h = h.double()
    tail = h[..., 1:]  # the present is left to the direct term
    pole = _poles(tail, K)
    powers = pole.unsqueeze(-2) ** torch.arange(1, L, device=h.device)[:, None]
    goal = tail.to(pole.dtype).unsqueeze(-1)
    residue = torch.linalg.lstsq(powers, goal, driver="gelsd").solution.squeeze(-1)
    found = Poles(pole, residue, h[..., 0] - residue.sum(-1).real, h.new_zeros(h.shape[:-1]))
    error = (found.filter(L) - h).norm(dim=-1) / h.norm(dim=-1).clamp_min(1e-300)
    return found._replace(error=error)


def _poles(h: Tensor, K: int) -> Tensor:
    """Eigenvalues of the shift of the K leading left singular vectors, pulled onto the unit disc
    where they lie outside.
    """
    size = min((h.shape[-1] + 1) // 2, HANKEL)
    index = torch.arange(size, device=h.device)
    columns = h.shape[-1] - size + 1
    hankel = h[..., index[:, None] + torch.arange(columns, device=h.device)]
    wide = columns > 2 * size
    U = torch.linalg.svd(hankel @ hankel.mT if wide else hankel, full_matrices=False).U[..., :K]
    shift = torch.linalg.lstsq(U[..., :-1, :], U[..., 1:, :], driver="gelsd").solution
    pole = torch.linalg.eigvals(shift)
    return torch.where(pole == 0, TINY, pole / pole.abs().clamp_min(1.0))


class DistilledState(NamedTuple):
    recent: Tensor  # (B, (N + 1) D, kernel - 1)
    x: Tensor  # (N, B, D, K), complex


@dataclass(frozen=True)
class Distilled:
    """A Hyena operator that decodes at a cost per token that does not grow: O(N D K).

    Arguments:
        hyena: The operator whose projections and output it shares.
        poles: Of its filters, (N, D).
        length: Steps on which they were fitted.
    """

    hyena: Hyena
    poles: Poles
    length: int

    @property
    def error(self) -> float:
        """The largest relative error of a filter in the 2-norm."""
        return float(self.poles.error.max())

    def start(self, batch: int) -> DistilledState:
        hyena, like = self.hyena, self.hyena.short
        recent = like.new_zeros(batch, (hyena.order + 1) * hyena.width, hyena.kernel - 1)
        pole = self.poles.pole
        return DistilledState(recent, pole.new_zeros(hyena.order, batch, *pole.shape[1:]))

    @torch.no_grad()
    def step(self, u: Tensor, state: DistilledState) -> tuple[Tensor, DistilledState]:
        """One step, ``(B, D) -> (B, D)``."""
        hyena, (pole, residue, direct, _), past = self.hyena, self.poles, []
        near = torch.cat([state.recent, hyena.into(u).unsqueeze(-1)], -1)
        v, *gates = (near * hyena.short).sum(-1).chunk(hyena.order + 1, 1)
        for n, gate in enumerate(gates):
            past.append(pole[n] * state.x[n] + v.unsqueeze(-1))
            v = gate * ((residue[n] * past[-1]).sum(-1).real + direct[n] * v).to(v.dtype)
        return hyena.out(v), DistilledState(near[..., 1:], torch.stack(past))


def distil(hyena: Hyena, length: int, K: int) -> Distilled:
    """The recurrence with K poles per filter that is closest to the first ``length`` values of a
    Hyena's filters.

    >>> op = Hyena(2, 1, generator=torch.Generator().manual_seed(0))
    >>> distil(op, 200, 60).error < distil(op, 200, 6).error < 1
    True
    """
    return Distilled(hyena, poles_of(hyena.filters(length).detach(), K), length)
