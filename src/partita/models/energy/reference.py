"""Reference distributions: known log Z and exact draws, fitted to base rates, where annealing starts."""

from dataclasses import dataclass

import torch
from torch import Tensor

from partita.core import rng
from partita.core.protocols import Data
from partita.models.energy.units import Natural, Units

MOMENT_ROWS = 10_000  # rows drawn to estimate base rates


@dataclass(frozen=True)
class UnitsReference:
    """Independent visible units, with ``offset`` nats of hidden states that see no input (log 2 for each)."""

    units: Units
    eta: Natural  # R times (D,)
    offset: float

    @property
    def log_z(self) -> Tensor:
        return self.units.log_normaliser(self.eta) + self.offset

    def free_energy(self, x: Tensor) -> Tensor:
        return -self.units.pairing(x, self.eta) - self.offset

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        return rng.draw(self.units.distribution(self.eta), generator, (n,))


@dataclass(frozen=True)
class FactorisedReference:
    """Independent coordinates over a finite list of values, with ``offset`` nats of hidden states that see no input."""

    values: Tensor  # (K,)
    logits: Tensor  # (D, K)
    offset: float = 0.0

    @property
    def log_z(self) -> Tensor:
        return torch.logsumexp(self.logits, -1).sum() + self.offset

    def free_energy(self, x: Tensor) -> Tensor:
        return -(self._one_hot(x) * self.logits).sum((-2, -1)) - self.offset

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        edges = torch.softmax(self.logits, -1).cumsum(-1)[:, :-1]
        u = rng.uniform((n, len(self.logits), 1), self.logits, generator)
        return self.values[(u > edges).sum(-1)]

    def _one_hot(self, x: Tensor) -> Tensor:
        return (x[..., None] == self.values).to(self.logits.dtype)


def smoothed_logits(frequencies: Tensor, n: float) -> Tensor:
    """Log of frequencies ``(*, K)`` with half a count added to each value, so that none is impossible."""
    k = frequencies.shape[-1]
    return torch.log((frequencies * n + 0.5) / (n + 0.5 * k))


def frequencies(data: Data, values: Tensor, generator: torch.Generator) -> Tensor:
    """How often each coordinate takes each value, ``(D, K)``, over at most 10,000 random rows."""
    index = rng.permutation(len(data), generator)[:MOMENT_ROWS].cpu()
    batch = data.batch(index, generator=generator)
    hits = (batch.x[..., None] == values.to(batch.x)).double()
    w = torch.ones(len(hits), dtype=hits.dtype) if batch.weight is None else batch.weight.double()
    return torch.einsum("n,ndk->dk", w / w.sum(), hits)

