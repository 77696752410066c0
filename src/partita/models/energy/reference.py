"""Reference distributions: known log Z and exact draws, fitted to base rates, where annealing
starts.
"""

import math
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import torch
from torch import Generator, Tensor
from torch.nn import functional

from partita.core import rng
from partita.core.arguments import one_of
from partita.core.protocols import Data
from partita.errors import invalid
from partita.models.energy.units import Natural, Units, weighted_sum

# of a fitted normal distribution
Covariance: TypeAlias = Annotated[str, one_of("full", "diagonal")]
MOMENT_ROWS = 10_000  # rows drawn to estimate base rates


@dataclass(frozen=True)
class UnitsReference:
    """Independent visible units, with ``offset`` nats of hidden states that see no input (log 2 for
    each).
    """

    units: Units
    eta: Natural  # R times (D,)
    offset: float

    @property
    def log_z(self) -> Tensor:
        return self.units.log_normalizer(self.eta) + self.offset

    def free_energy(self, x: Tensor) -> Tensor:
        return -self.units.pairing(x, self.eta) - self.offset

    def draw(self, n: int, *, generator: Generator) -> Tensor:
        return rng.draw(self.units.distribution(self.eta), generator, (n,))


@dataclass(frozen=True)
class FactorizedReference:
    """Independent coordinates over a finite list of values, with ``offset`` nats of hidden states
    that see no input.
    """

    values: Tensor  # (K,)
    logits: Tensor  # (D, K), or (C, D, K) where each chain has its own
    offset: float = 0.0

    @property
    def log_z(self) -> Tensor:
        return torch.logsumexp(self.logits, -1).sum(-1) + self.offset

    def free_energy(self, x: Tensor) -> Tensor:
        if len(self.values) == 2:  # linear in x, so that it has a slope
            low, high = self.values
            first, second = self.logits.unbind(-1)
            return (
                -weighted_sum(x - low, (second - first) / (high - low))
                - first.sum(-1)
                - self.offset
            )
        return -(self._one_hot(x) * self.logits).sum((-2, -1)) - self.offset

    def draw(self, n: int, *, generator: Generator) -> Tensor:
        edges = torch.softmax(self.logits, -1).cumsum(-1)[:, :-1]
        u = rng.uniform((n, len(self.logits), 1), self.logits, generator)
        return self.values[(u > edges).sum(-1)]

    def _one_hot(self, x: Tensor) -> Tensor:
        return (x[..., None] == self.values).to(self.logits.dtype)


@dataclass(frozen=True)
class GaussianReference:
    r"""A normal distribution, with ``offset`` nats of hidden states that see no input
    (theory/latent.md, eq. 30.6).

    .. math:: F_0(x) = \tfrac12 \| R (x - m) \|^2 - o, \qquad \log Z_0 = \tfrac D2 \log 2\pi - \log
              |\det R| + o
    """

    mean: Tensor  # m, (D,)
    whitening: Tensor  # R, (D, D), lower triangular
    offset: float = 0.0

    @property
    def log_z(self) -> Tensor:
        return (
            0.5 * len(self.mean) * math.log(2 * math.pi)
            - self.whitening.diagonal().log().sum()
            + self.offset
        )

    def free_energy(self, x: Tensor) -> Tensor:
        u = self.whiten(x)
        # few operations, for gradient samplers come here at every step
        energy = 0.5 * torch.linalg.vecdot(u, u)
        return energy - self.offset if self.offset else energy

    def slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """F_0 and its gradient R'R (x - m)."""
        u = self.whiten(x)
        return 0.5 * torch.linalg.vecdot(u, u) - self.offset, u @ self.whitening

    def draw(self, n: int, *, generator: Generator) -> Tensor:
        return self.color(rng.normal((n, len(self.mean)), self.mean, generator))

    def whiten(self, x: Tensor) -> Tensor:
        """R (x - m), a standard normal vector, ``(*, D) -> (*, D)``."""
        return functional.linear(x - self.mean, self.whitening)

    def color(self, u: Tensor) -> Tensor:
        """The x that whitens to ``u``."""
        return self.mean + torch.linalg.solve_triangular(self.whitening, u.mT, upper=False).mT


def fitted_normal(
    owner: str, data: Data, covariance: str, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Mean ``(D,)`` and whitening matrix ``(D, D)`` of the normal distribution nearest to the data,
    float64.
    """
    mean, variance = data.mean().double(), data.variance().double()
    constant = (variance <= 1e-20 * mean.square()).nonzero().flatten().tolist()
    if constant:
        raise invalid(
            owner,
            "x",
            "vary in every column",
            f"the same value throughout column {constant[0]}",
            "Remove constant columns.",
        )
    if covariance == "diagonal":
        return mean, torch.diag(variance.rsqrt())
    return mean, whitening_of(_covariance(data, mean, variance, generator))


def whitening_of(covariance: Tensor) -> Tensor:
    """The lower triangular R with R covariance R' = I."""
    lower = torch.linalg.cholesky(covariance)
    return torch.linalg.solve_triangular(
        lower, torch.eye(len(lower), dtype=lower.dtype, device=lower.device), upper=False
    )


def _covariance(data: Data, mean: Tensor, variance: Tensor, generator: Generator) -> Tensor:
    """Of at most 10,000 random rows, drawn toward its diagonal where rows are few, so that it can
    be inverted.
    """
    batch = data.batch(
        rng.permutation(len(data), generator)[:MOMENT_ROWS].cpu(), generator=generator
    )
    x, n = batch.x.double() - mean, len(batch.x)
    w = torch.ones(n, dtype=x.dtype) if batch.weight is None else batch.weight.double()
    share = len(mean) / (n + len(mean))
    return torch.lerp((x * (w / w.sum())[:, None]).mT @ x, torch.diag(variance), share)


def smoothed_logits(frequencies: Tensor, n: float) -> Tensor:
    """Log of frequencies ``(*, K)`` with half a count added to each value, so that none is
    impossible.
    """
    k = frequencies.shape[-1]
    return torch.log((frequencies * n + 0.5) / (n + 0.5 * k))


def frequencies(data: Data, values: Tensor, generator: Generator) -> Tensor:
    """How often each coordinate takes each value, ``(D, K)``, over at most 10,000 random rows."""
    index = rng.permutation(len(data), generator)[:MOMENT_ROWS].cpu()
    batch = data.batch(index, generator=generator)
    hits = (batch.x[..., None] == values.to(batch.x)).double()
    w = torch.ones(len(hits), dtype=hits.dtype) if batch.weight is None else batch.weight.double()
    return torch.einsum("n,ndk->dk", w / w.sum(), hits)
