r"""Gibbs in h, gradient in x: for models whose p(h | x) can be drawn and whose p(x | h) cannot.

.. math:: h \sim p(h \mid x), \qquad x' \sim T_h(\cdot \mid x) \;\text{ with }\;
          p(x \mid h)\, T_h(x' \mid x) = p(x' \mid h)\, T_h(x \mid x')
          (theory/gradient_samplers.md, eq. 31.6)

As a kernel on x it is reversible: p(x) sum_h p(h | x) T_h(x' | x) = sum_h p(h) p(x | h) T_h(x' | x)
is symmetric in x and x'.

Letters: C chains, D visible, H hidden.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from partita.core import rng
from partita.core.capability import require
from partita.core.protocols import Data, EnergyModel, Field, Reference, Sampler, Settings
from partita.errors import invalid
from partita.samplers.adaptive import suiting_run, tuning_run
from partita.samplers.gradient import Metropolis, MetropolisInfo, MetropolisState
from partita.samplers.langevin import MALA


class GivenHidden(EnergyModel):
    """A view of a model with its hidden units held: F(x) = E(x, h), so that p(x) is p(x | h)."""

    joint: Any  # an EnergyModel with a joint energy

    def __init__(self, model: Any, h: Tensor) -> None:
        super().__init__()
        object.__setattr__(self, "joint", model)  # not a submodule: a view owns no parameters
        self.h, self.support, self.beta = h, model.support, model.beta
        self.differentiable = model.differentiable

    def free_energy(self, x: Tensor) -> Tensor:
        return self.joint.energy(x, self.h)

    def reference(self) -> Reference:
        return self.joint.reference()

    def title(self) -> str:
        return f"{self.joint.title()} given h"

    def initialize(self, data: Data, *, generator: torch.Generator) -> None:
        self.joint.initialize(data, generator=generator)

    def settings(self) -> Settings:
        return self.joint.settings()


@dataclass(frozen=True)
class Alternating(Sampler[MetropolisState]):
    """Hidden units from their exact conditional, then x by a gradient kernel given them; the state
    is that kernel's.

    Arguments:
        kernel: Moves x given h: ``MALA()`` or ``HMC()``.
    """

    kernel: Metropolis = field(default_factory=MALA)

    remembers = True

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Metropolis):
            raise invalid("Alternating", "kernel", "be MALA() or HMC()", self.kernel)

    def init(self, model: EnergyModel, x: Tensor, *, generator: torch.Generator) -> MetropolisState:
        require("Alternating", model)
        return self.kernel.init(model, x, generator=generator)

    def place(
        self,
        model: EnergyModel,
        state: MetropolisState,
        x: Tensor,
        field: Field | None = None,
        *,
        generator: torch.Generator,
    ) -> MetropolisState:
        """The same chains at ``x``; the step computes their energy given h, once h is known."""
        return state._replace(x=x)

    def reopen(self, state: MetropolisState) -> MetropolisState:
        return self.kernel.reopen(state)

    @torch.no_grad()
    def step(
        self, model: Any, state: MetropolisState, *, generator: torch.Generator
    ) -> tuple[MetropolisState, MetropolisInfo]:
        given = GivenHidden(model, rng.draw(model.hidden_given_visible(state.x), generator))
        placed = self.kernel.place(given, state, state.x, generator=generator)
        return self.kernel.step(given, placed, generator=generator)

    @torch.no_grad()
    def tuned(self, model: EnergyModel, *, generator: torch.Generator) -> "Alternating":
        """The kernel with step sizes fixed along the model's path."""
        if not self.kernel.warm_up:
            return self
        pilot = Alternating(self.kernel.piloting(self.kernel.metric))
        schedule = tuning_run(pilot, model, generator)
        return Alternating(replace(self.kernel, warm_up=0, schedule=schedule))

    def suited_to(self, model: EnergyModel, x: Tensor) -> "Alternating":
        """The kernel whose chains draw their steps down to what the narrowest places need."""
        schedule = self.kernel.schedule
        if schedule is None:
            return self
        pilot = Alternating(self.kernel.piloting(self.kernel.metric))
        found = suiting_run(pilot, schedule, model, x)
        return Alternating(replace(self.kernel, schedule=found))
