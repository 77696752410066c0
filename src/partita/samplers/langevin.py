r"""Langevin dynamics: downhill with noise; unadjusted, or made exact by a Metropolis step (MALA).

.. math:: x' = x - \tfrac{\epsilon^2}{2} \nabla F(x) + \epsilon\, \xi, \qquad \xi \sim N(0, I)
          (theory/gradient_samplers.md, eq. 31.1)

Unadjusted, the chain has a bias of order epsilon^2 (eq. 31.2); MALA is the leapfrog of one step
with eq. 31.4.

Letters: C chains, D visible.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import PositiveFloat
from partita.core.capability import require
from partita.core.protocols import EnergyModel, Sampler
from partita.errors import Diverged
from partita.samplers.gradient import (
    Metropolis,
    MetropolisState,
    check_start,
    energy_and_gradient,
    leapfrog,
)

EXPLODED = 1e3  # nats for each coordinate by which a step downhill may climb


class Position(NamedTuple):
    """The chains."""

    x: Tensor  # (*, C, D)


class Moved(NamedTuple):
    """What one unadjusted step did."""

    before: Tensor  # (*, C, D)
    after: Tensor

    def numbers(self) -> dict[str, Tensor]:
        """``distance``: how far each chain moved."""
        return {"distance": (self.after - self.before).norm(dim=-1)}


@dataclass(frozen=True)
class Langevin(Sampler[Position]):
    """Unadjusted Langevin: cheap, and biased by its step size, so that evaluators refuse it.

    Arguments:
        step_size: epsilon, the standard deviation of the noise of one step.
    """

    step_size: PositiveFloat = 0.05

    invariant = False  # it leaves another distribution than the target unchanged

    @torch.no_grad()
    def init(self, model: EnergyModel, x: Tensor, *, generator: torch.Generator) -> Position:
        require("Langevin", model)
        energy, gradient = energy_and_gradient("Langevin", model, x)
        check_start("Langevin", model, energy, gradient)
        downhill = x - 0.5 * self.step_size * self.step_size * gradient
        rise = float((model.free_energy(downhill) - energy).mean())
        if not rise <= EXPLODED * x.shape[-1]:
            raise self._explosion(model, f"a first step downhill that climbs by {rise:.3g} nats")
        return Position(x)

    @torch.no_grad()
    def step(
        self, model: EnergyModel, state: Position, *, generator: torch.Generator
    ) -> tuple[Position, Moved]:
        _, gradient = energy_and_gradient("Langevin", model, state.x)
        noise = rng.normal(state.x.shape, state.x, generator)
        drifted = torch.add(state.x, gradient, alpha=-0.5 * self.step_size**2)
        x = drifted.add_(noise, alpha=self.step_size)
        if not math.isfinite(x.sum()):  # one pass over the chains
            raise self._explosion(model, "nan or infinity")
        return Position(x), Moved(state.x, x)

    def _explosion(self, model: EnergyModel, got: str) -> Diverged:
        return Diverged(
            f"Langevin: chains on {model.title()} must stay finite; got {got} at "
            f"step_size={self.step_size:g}. "
            f"Lower step_size, for example to {self.step_size / 10:g}, or use MALA, which rejects "
            "such steps."
        )


@dataclass(frozen=True)
class MALA(Metropolis):
    """Langevin proposals with a Metropolis step: the target is left exactly invariant once the
    warm-up is over.

    Arguments:
        step_size: epsilon at the start of the warm-up, or throughout if ``warm_up`` is 0.
        warm_up: Steps in which the step size is adapted, by dual averaging, to the wanted
            acceptance; then it stays.
        acceptance: Wanted share of accepted proposals.
        schedule: Fixed step sizes along a path, as :meth:`tuned` finds them.
        metric: Coordinates in which steps are made, as :meth:`suited_to` finds them.

    >>> MALA(step_size=0.1, warm_up=0)
    MALA(step_size=0.1, warm_up=0, acceptance=0.6, schedule=None)
    """

    def propose(
        self, model: EnergyModel, state: MetropolisState, momentum: Tensor, size: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return leapfrog(
            "MALA", model, state.x, momentum, state.gradient, size[..., None], 1, self.metric
        )
