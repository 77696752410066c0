r"""Hamiltonian Monte Carlo: a trajectory of L leapfrog steps, accepted by how well it kept the
total energy (Duane et al. 1987).

.. math:: H(x, p) = F(x) + \tfrac12 \|p\|^2, \qquad a = \min\big(1, e^{H(x, p) - H(x', p')}\big)
          (theory/gradient_samplers.md, eq. 31.4)

Letters: C chains, D visible, L leapfrog steps.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import PositiveInt, within
from partita.core.protocols import EnergyModel
from partita.samplers.adaptive import Acceptance
from partita.samplers.gradient import Metropolis, MetropolisState, leapfrog


@dataclass(frozen=True)
class HMC(Metropolis):
    """Trajectories of ``leapfrogs`` steps whose length is adapted in a warm-up to the declared
    acceptance.

    Arguments:
        step_size: epsilon at the start of the warm-up, or throughout if ``warm_up`` is 0.
        warm_up: Steps in which the step size is adapted, by dual averaging; then it stays.
        acceptance: Wanted share of accepted proposals.
        schedule: Fixed step sizes along a path, as :meth:`tuned` finds them.
        metric: Coordinates in which steps are made, as :meth:`suited_to` finds them.
        leapfrogs: L, gradients of one step.
        jitter: Each chain's step size is drawn anew within this share of epsilon on both sides: a
            trajectory that always lasts half a period of the target would go to and fro between two
            places.
    """

    acceptance: Acceptance = 0.8
    leapfrogs: PositiveInt = 10
    jitter: Annotated[float, within(0.0, 0.99)] = 0.2

    def varied(self, size: Tensor, state: MetropolisState, generator: torch.Generator) -> Tensor:
        if not self.jitter:
            return size
        u = rng.uniform(state.energy.shape, state.energy, generator)
        return size * (1 + self.jitter * (2 * u - 1))

    def propose(
        self, model: EnergyModel, state: MetropolisState, momentum: Tensor, size: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return leapfrog(
            "HMC",
            model,
            state.x,
            momentum,
            state.gradient,
            size[..., None],
            self.leapfrogs,
            self.metric,
        )
