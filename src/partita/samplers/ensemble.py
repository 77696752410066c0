r"""An ensemble whose chains propose by the differences of one another: differential evolution (ter
Braak 2006), for targets without a gradient.

.. math:: x_i' = x_i + \gamma\, (x_j - x_k) + 10^{-4} s\, \xi, \qquad \gamma =
          \tfrac{2.38}{\sqrt{2 D}}\, \epsilon \;\text{ or }\; 1, \qquad \log a = F(x_i) - F(x_i')
          (theory/gradient_samplers.md, eq. 31.12)

The chains are split at random in two halves; i is of one, j and k of the other, which stays. Given
that half the proposal is symmetric, so the product of all chains' targets is left unchanged, and
proposals have the covariance of the target whatever it is. A jump by a whole difference goes from
one mode to another.

Letters: C chains, D visible.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import Share
from partita.core.protocols import EnergyModel
from partita.samplers.gradient import MetropolisInfo
from partita.samplers.random_walk import BEST, Walking, WalkState, energies, judged

NOISE = 1e-4  # of the deviations of the half that stays: any place can be reached
# share of the proposals that are a random walk of any length down to some decades shorter: chains
# that begin at one place have no differences
WALKS, DECADES = 0.05, 3.0


@dataclass(frozen=True)
class Ensemble(Walking):
    """Chains that help one another: at least 2 D + 2 of them, fewer walk at random by themselves.

    Each leaves its target unchanged, but they are not independent, so annealing does not take them.

    Arguments:
        step_size: epsilon at the start of the warm-up, or throughout if ``warm_up`` is 0, in units
            of the best step on a normal distribution.
        warm_up: Steps in which the step size is adapted, by dual averaging; then it stays.
        acceptance: Wanted share of accepted proposals, jumps left out.
        schedule: Fixed step sizes along a path.
        jumps: Share of proposals with gamma = 1.

    >>> Ensemble(jumps=0.2)
    Ensemble(step_size=1.0, warm_up=300, acceptance=0.3, schedule=None, jumps=0.2)
    """

    jumps: Share = 0.1

    independent = False

    @torch.no_grad()
    def step(
        self, model: EnergyModel, state: WalkState, *, generator: torch.Generator
    ) -> tuple[WalkState, MetropolisInfo]:
        C, D = state.x.shape[-2:]
        if C < 2 * D + 2:
            return self.walked(model, state, 1, generator)
        size = self.size_now(model, state, generator)
        order = rng.permutation(C, generator).to(state.x.device)
        halves = order[: C // 2], order[C // 2 :]
        x, energy = state.x.clone(), state.energy.clone()
        jump = rng.uniform(energy.shape, energy, generator) < self.jumps
        gamma = torch.where(jump, 1.0, BEST / math.sqrt(2 * D) * size)
        alone = rng.uniform(energy.shape, energy, generator) < WALKS
        reach = size * 10 ** (DECADES * (rng.uniform(energy.shape, energy, generator) - 1))
        walk = state.spread.stretch.velocity(rng.normal(x.shape, x, generator))
        walk = BEST / math.sqrt(D) * reach[..., None] * walk
        accepted, probability, lost = torch.zeros_like(jump), torch.zeros_like(energy), jump & False
        for own, other in (halves, halves[::-1]):
            step = difference(x[..., other, :], (*energy.shape[:-1], len(own)), generator)
            moved = gamma[..., own, None] * step.between + NOISE * step.noise
            there = x[..., own, :] + torch.where(alone[..., own, None], walk[..., own, :], moved)
            trial = self._trial(model, x, own, there)
            accept, chance, diverged = judged(energy[..., own], trial, generator)
            x[..., own, :] = torch.where(accept[..., None], there, x[..., own, :])
            energy[..., own] = torch.where(accept, trial, energy[..., own])
            accepted[..., own], probability[..., own], lost[..., own] = accept, chance, diverged
        info = MetropolisInfo(accepted, probability, size, lost)
        plain = (~jump & ~alone).to(probability)
        seen = (probability * plain).sum(-1, keepdim=True) / plain.sum(-1, keepdim=True)
        learned = info._replace(probability=torch.nan_to_num(seen, self.acceptance))
        return self.after(model, state, x, energy, learned), info

    def tuned(self, model: EnergyModel, *, generator: torch.Generator) -> Self:
        """Itself: steps come from the chains."""
        return self

    def suited_to(self, model: EnergyModel, x: Tensor) -> Self:
        """Itself: steps come from the chains."""
        return self

    def _trial(self, model: EnergyModel, x: Tensor, own: Tensor, there: Tensor) -> Tensor:
        """F of the half that moves; of all chains where each has a temperature of its own."""
        beta = torch.as_tensor(model.beta)
        if not beta.dim() or beta.shape[-1] == 1:
            return energies("Ensemble", model, there)
        whole = x.clone()
        whole[..., own, :] = there
        return energies("Ensemble", model, whole)[..., own]


class Difference(NamedTuple):
    """Differences of chains of the half that stays, and noise of its deviations, ``(*, n, D)``."""

    between: Tensor
    noise: Tensor


def difference(other: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Difference:
    """Of two different chains of a half ``(*, m, D)``, for each of ``shape`` ``(*, n)`` chains."""
    m, D = other.shape[-2:]
    first, second = (
        torch.randint(most, shape, generator=generator, device=other.device) for most in (m, m - 1)
    )
    second = (first + 1 + second) % m
    one, two = (other.gather(-2, index[..., None].expand(*shape, D)) for index in (first, second))
    noise = rng.normal((*shape, D), other, generator) * other.std(-2, keepdim=True)
    return Difference(one - two, noise)
