r"""Random-walk Metropolis: for targets without a gradient, one independent chain each.

.. math:: x' = x + \tfrac{2.38}{\sqrt D}\, \epsilon\, L_\beta\, \xi, \quad \xi \sim N(0, I),
          \qquad \log a = F(x) - F(x')
          (theory/gradient_samplers.md, eq. 31.11)

L L' is the covariance of the target (Roberts, Gelman and Gilks 1997): learned in windows of a
warm-up, or along a path by a pilot run in which each chain shows how far it spreads by itself, so
that modes far apart do not count as one wide one.

Letters: C chains, D visible, T temperatures.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import NonNegativeInt, PositiveFloat, PositiveInt
from partita.core.capability import require
from partita.core.protocols import EnergyModel, Field
from partita.errors import Diverged
from partita.samplers import adaptive, moments
from partita.samplers import step_size as sizes
from partita.samplers.adaptive import (
    Acceptance,
    check_energies,
    check_shape,
    suiting,
    with_shortest,
)
from partita.samplers.gradient import MetropolisInfo
from partita.samplers.metric import Spreads
from partita.samplers.moments import Moments
from partita.samplers.step_size import Schedule, StepSize
from partita.samplers.windowed import Windowed

FLOOR = 1e-6  # of the mean variance, below which no covariance goes
BEST = 2.38  # over the square root of D: the best step on a normal distribution
MOST_DENSE = 64  # coordinates up to which covariances are whole
LEAST_MOVES, MOST_MOVES = 4, 16  # of a step whose moves are not given: one for each coordinate


class WalkState(NamedTuple):
    """The chains with their energy, the step size of every rung, and their spread."""

    x: Tensor  # (*, C, D)
    energy: Tensor  # (*, C)
    size: StepSize
    spread: Moments


@dataclass(frozen=True)
class Walking(Windowed[WalkState]):
    """A kernel that looks at energies alone."""

    step_size: PositiveFloat = 1.0
    warm_up: NonNegativeInt = 300
    acceptance: Acceptance = 0.3

    def init(self, model: EnergyModel, x: Tensor, *, generator: torch.Generator) -> WalkState:
        owner = type(self).__name__
        require(owner, model)
        energy = energies(owner, model, x)
        check_energies(owner, model, energy)
        spread = moments.start(x, dense=x.shape[-1] <= MOST_DENSE)
        return WalkState(x, energy, sizes.start(self.step_size, energy), spread)

    def place(
        self,
        model: EnergyModel,
        state: WalkState,
        x: Tensor,
        field: Field | None = None,
        *,
        generator: torch.Generator,
    ) -> WalkState:
        return state._replace(x=x, energy=energies(type(self).__name__, model, x))

    def walked(
        self, model: EnergyModel, state: WalkState, moves: int, generator: torch.Generator
    ) -> tuple[WalkState, MetropolisInfo]:
        """Random-walk moves of every chain, by the spread that is known."""
        size = self.size_now(model, state, generator)
        if self.metric is None:
            stretch = state.spread.stretch
        else:
            stretch = self.metric.stretch(model.beta, state.x)
        x, energy = state.x, state.energy
        nought = torch.zeros_like(energy)
        accepted, probability, lost = nought > 0, nought, nought > 0
        scale = BEST / math.sqrt(x.shape[-1]) * size[..., None]
        for _ in range(moves):
            step = stretch.velocity(rng.normal(x.shape, x, generator))
            there = x + scale * step
            trial = energies(type(self).__name__, model, there)
            accept, chance, diverged = judged(energy, trial, generator)
            x = torch.where(accept[..., None], there, x)
            energy = torch.where(accept, trial, energy)
            accepted, lost = accepted | accept, lost | diverged
            probability = probability + chance / moves
        info = MetropolisInfo(accepted, probability, size, lost)
        return self.after(model, state, x, energy, info), info

    def after(
        self, model: EnergyModel, state: WalkState, x: Tensor, energy: Tensor, info: MetropolisInfo
    ) -> WalkState:
        """The state after a step from ``state`` to ``x``."""
        moved = WalkState(x, energy, self.size_after(state, info), state.spread)
        self.check_moving(model, moved, info)
        return self.spread_after(state, moved)


def energies(owner: str, model: EnergyModel, x: Tensor) -> Tensor:
    """F(x), ``(*, D) -> (*)``."""
    energy = model.free_energy(x)
    check_shape(owner, model, x, energy)
    return energy.detach()


def judged(
    energy: Tensor, trial: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Metropolis' rule for a symmetric proposal: which are accepted, with what probability, and
    which had no finite energy.
    """
    log_accept = energy - trial
    diverged = ~torch.isfinite(log_accept)
    log_accept = log_accept.masked_fill(diverged, -torch.inf)
    accept = rng.uniform(energy.shape, energy, generator).log() < log_accept
    return accept, log_accept.clamp_max(0).exp(), diverged


@dataclass(frozen=True)
class RandomWalk(Walking):
    """Random-walk Metropolis whose chains never see one another once the warm-up is over.

    Arguments:
        step_size: epsilon at the start of the warm-up, or throughout if ``warm_up`` is 0, in units
            of the best step on a normal distribution.
        warm_up: Steps in which the step size, by dual averaging, and the covariance of proposals,
            in windows, are adapted; then both stay.
        acceptance: Wanted share of accepted proposals.
        schedule: Fixed step sizes along a path, as :meth:`tuned` finds them.
        metric: Covariances along a path, as :meth:`tuned` finds them.
        moves: Proposals of one step; one for each coordinate, 4 to 16, if not given.
    """

    moves: PositiveInt | None = None

    @torch.no_grad()
    def step(
        self, model: EnergyModel, state: WalkState, *, generator: torch.Generator
    ) -> tuple[WalkState, MetropolisInfo]:
        moves = self.moves or max(LEAST_MOVES, min(MOST_MOVES, state.x.shape[-1]))
        return self.walked(model, state, moves, generator)

    @torch.no_grad()
    def tuned(self, model: EnergyModel, *, generator: torch.Generator) -> Self:
        """The kernel with step sizes and covariances fixed along the model's path, found by a pilot
        run whose draws are thrown away.
        """
        if not self.warm_up:
            return self
        x = model.reference().draw(adaptive.TUNING_CHAINS, generator=generator)
        betas = [*adaptive.TUNING_BETAS[:-1:2], adaptive.TUNING_BETAS[-1]]
        return self._piloted(model, x, betas, root_of(x), generator)

    @torch.no_grad()
    def suited_to(self, model: EnergyModel, x: Tensor) -> Self:
        """The kernel with steps that suit chains at ``x``, which go down from the model."""
        if self.schedule is None or self.metric is None:
            return self
        root = self.metric.stretch(1.0, x).axes
        assert root is not None
        some = x[torch.linspace(0, len(x) - 1, min(len(x), adaptive.TUNING_CHAINS)).long()]
        betas = list(reversed(self.schedule[0]))
        try:
            return self._piloted(model, some, betas, root, suiting(x, 2))
        except Diverged:  # what cannot be tuned is named where the chains run
            return self

    def _piloted(
        self,
        model: EnergyModel,
        x: Tensor,
        betas: list[float],
        root: Tensor,
        generator: torch.Generator,
    ) -> Self:
        """Chains from ``x`` that go through ``betas`` in turn, each with a step size of its own,
        and what they show of covariances: those of single chains, averaged.
        """
        steps = adaptive.TUNING_STEPS
        # one chain a rung; the windows are this run's own
        found, kernel = [], replace(self, schedule=None, warm_up=2 * steps)
        state = kernel.init(model.annealed(betas[0]), x[:, None], generator=generator)
        size = state.size.average.exp()
        for beta in betas:
            target = model.annealed(beta)
            state = kernel.place(target, state, state.x, generator=generator)
            for last in (False, True):
                kernel = replace(kernel, metric=constant(root))
                state = state._replace(size=sizes.start(size, state.energy))
                spread = moments.start(state.x, dense=True)
                for _ in range(steps // 2 + 1 if last else steps):
                    state, _ = kernel.step(target, state, generator=generator)
                    spread = moments.gathered(spread, state.x)
                size = state.size.average.exp()
                if not last:
                    root, size = within(spread, root), torch.ones_like(size)
            found.append((float(torch.as_tensor(target.beta).max()), root, size.flatten()))
        found.sort(key=lambda rung: rung[0])
        places, roots, lengths = zip(*found, strict=True)
        longest = tuple(float(length.log().mean().exp()) for length in lengths)
        shortest = tuple(
            min(float(length.quantile(adaptive.NARROW)), long)
            for length, long in zip(lengths, longest, strict=True)
        )
        schedule: Schedule = with_shortest(tuple(places), longest, shortest)
        metric = Spreads(torch.tensor(places, dtype=torch.float64), torch.stack(roots))
        return replace(self, warm_up=0, schedule=schedule, metric=metric)


def constant(root: Tensor) -> Spreads:
    """The same root all along a path."""
    return Spreads(torch.tensor([0.0, 1.0]), torch.stack([root, root]))


def root_of(x: Tensor) -> Tensor:
    """The root of the covariance of ``x``, ``(N, D) -> (D, D)``."""
    return moments.closed(moments.gathered(moments.start(x, dense=True), x), 0).root


def within(spread: Moments, root: Tensor) -> Tensor:
    """The root of the mean covariance of single chains, of which each is a rung ``(N, D, D)``; a
    tenth of the ``root`` that was where none of them moved.
    """
    square = (spread.square / max(int(spread.drawn) - 1, 1)).mean(0)
    size = square.diagonal().mean()
    if not 0 < float(size) < math.inf:
        return 0.1 * root
    one = torch.eye(len(square), dtype=square.dtype, device=square.device)
    return torch.linalg.cholesky(square + FLOOR * size * one)
