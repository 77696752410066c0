r"""Models whose energy is infinite on a part of space: half-lines, boxes, forbidden states.

.. math:: Z_0' = Z_0\, P_0(F < \infty)          (theory/scoring.md, eq. 5.27)

The path begins at the reference cut to where the energy is finite, which is drawn by rejection.
Then no chain is born dead, both directions of annealing move on one support, and proposals that
leave it are rejected.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from partita.core.protocols import EnergyModel, Reference
from partita.errors import Unsupported

TRIES, AT_ONCE = 1 << 16, 1 << 12  # draws that say what share of the reference is allowed
LEAST = 400  # of them that must be: the share is then known to 5 %


@dataclass(frozen=True)
class CutReference:
    """A reference where ``allowed``, with the log of its share and that share's relative error."""

    base: Reference
    allowed: Callable[[Tensor], Tensor]
    log_share: float
    se: float

    @property
    def log_z(self) -> Tensor:
        return self.base.log_z + self.log_share

    def free_energy(self, x: Tensor) -> Tensor:
        return self.base.free_energy(x)

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        kept: list[Tensor] = []
        while sum(map(len, kept)) < n:
            x = self.base.draw(math.ceil(1.2 * n * math.exp(-self.log_share)), generator=generator)
            kept.append(x[self.allowed(x)])
        return torch.cat(kept)[:n]


@torch.no_grad()
def cut(owner: str, model: EnergyModel, draws: Tensor, generator: torch.Generator) -> EnergyModel:
    """The model itself where its energy is finite at ``draws`` of the reference; else a view whose
    reference is cut.
    """

    def allowed(x: Tensor) -> Tensor:
        return model.free_energy(x) < math.inf

    if not bool((model.free_energy(draws) == math.inf).any()):
        return model
    reference = model.reference()
    count = sum(
        int(allowed(reference.draw(AT_ONCE, generator=generator)).sum())
        for _ in range(TRIES // AT_ONCE)
    )
    if count < LEAST:
        raise Unsupported(
            f"{owner} cannot run on {model.title()}: its energy is infinite at {TRIES - count} of "
            f"{TRIES} draws of the reference. Fit the reference to data, or change variables so "
            "that x lives on all of its support."
        )
    share = count / TRIES
    view = copy.copy(model)
    se = math.sqrt((1 - share) / count)
    found = CutReference(reference, allowed, math.log(share), se)
    object.__setattr__(view, "reference", lambda: found)
    return view
