r"""Clamped gradient sampling: observed coordinates are held, missing ones moved by the slope of the
energy.

.. math:: F_O(x) = F(x_O, x_M) + \tfrac12 \|u_O\|^2

The observed places of a chain hold idle standard normal numbers u that the energy never sees, so
that any kernel serves.

Letters: N rows, R chains per row, D columns.
"""

from typing import Any

import torch
from torch import Tensor

from partita.core import capability
from partita.core.protocols import Data, EnergyModel, Reference

BURN_IN, KEPT = 300, 200


class Held(EnergyModel):
    """A view of a model with known coordinates held at their values."""

    whole: Any  # an EnergyModel

    def __init__(self, model: EnergyModel, known: Tensor) -> None:
        super().__init__()
        object.__setattr__(self, "whole", model)  # not a submodule: a view owns no parameters
        self.known, self.missing, self.support = known, known.isnan(), model.support

    def filled(self, x: Tensor) -> Tensor:
        """Rows with what is known in its place."""
        return torch.where(self.missing, x, self.known)

    def free_energy(self, x: Tensor) -> Tensor:
        return self.whole.free_energy(self.filled(x)) + 0.5 * torch.where(
            self.missing, 0.0, x
        ).square().sum(-1)

    def reference(self) -> Reference:
        return self.whole.reference()

    def initialize(self, data: Data, *, generator: torch.Generator) -> None:
        self.whole.initialize(data, generator=generator)

    def settings(self) -> dict[str, Any]:
        return self.whole.settings()

    def title(self) -> str:
        return self.whole.title()


@torch.no_grad()
def gradient_posterior(
    model: EnergyModel, z: Tensor, one_draw: bool, chains: int, generator: torch.Generator
) -> Tensor:
    """The last state of one chain, ``(N, D)``, or the mean over chains and steps, ``(N, D, 1)``."""
    held, kernel = Held(model, z), capability.default("sampler", model)
    start = (
        model.reference().draw(chains * len(z), generator=generator).view(chains, *z.shape).to(z)
    )
    state = kernel.init(held, start, generator=generator)
    for _ in range(BURN_IN):
        state, _ = kernel.step(held, state, generator=generator)
    if one_draw:
        return held.filled(state.x)[0]
    total = torch.zeros_like(z)
    for _ in range(KEPT):
        state, _ = kernel.step(held, state, generator=generator)
        total += held.filled(state.x).mean(0)
    return (total / KEPT)[..., None]
