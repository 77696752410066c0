r"""What the gradient samplers share: the energy with its slope, the leapfrog, and the Metropolis
step that makes it exact.

.. math:: p_{1/2} = p - \tfrac\epsilon2 \nabla F(x), \quad x' = x + \epsilon\, p_{1/2}, \quad p' =
          p_{1/2} - \tfrac\epsilon2 \nabla F(x'),
          \qquad \log a = F(x) + \tfrac12 \|p\|^2 - F(x') - \tfrac12 \|p'\|^2
          (theory/gradient_samplers.md, eq. 31.3, 31.4)

One forward and one backward pass for each leapfrog step; energy and gradient stay in the state, so
nothing is computed twice.

Letters: C chains, T temperatures, D visible.
"""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple, Self, TypeAlias

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import NonNegativeInt, PositiveFloat
from partita.core.capability import require
from partita.core.checks import check_real
from partita.core.protocols import EnergyModel, Field, Sampler
from partita.errors import Diverged, invalid
from partita.samplers import step_size as sizes
from partita.samplers.metric import Metric, metric_between
from partita.samplers.step_size import Schedule, StepSize

# in a row without one accepted, after which a kernel gives up
STUCK_STEPS, STUCK_PROPOSALS = 50, 2000
# inverse temperatures at which steps are tuned: near the reference a narrow target bends soonest
TUNING_BETAS = (0.0, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
TUNING_STEPS, TUNING_CHAINS = 25, 64
SHORTER = 2.0  # times by which steps must be too long for shorter ones to be drawn
NARROW = 0.1  # share of the states whose own steps are no longer than the shortest
SUITING_KEY = 1409


class MetropolisState(NamedTuple):
    """The chains with their energy and its gradient, and the step size of every rung."""

    x: Tensor  # (*, C, D)
    energy: Tensor  # (*, C)
    gradient: Tensor  # (*, C, D)
    size: StepSize


class MetropolisInfo(NamedTuple):
    """What one step did."""

    accepted: Tensor  # (*, C)
    probability: Tensor  # (*, C), of acceptance
    size: Tensor  # (*, 1) or (*, C)
    diverged: Tensor  # (*, C), proposals whose energy was not finite

    def numbers(self) -> dict[str, Tensor]:
        """``accepted``, the mean ``acceptance`` probability, the ``step_size`` and the share of
        ``diverged`` proposals.
        """
        shape = self.probability.shape
        shares = {"accepted": self.accepted.to(self.probability), "acceptance": self.probability}
        lost = self.diverged.to(self.probability)
        return {**shares, "step_size": self.size.expand(shape), "diverged": lost}


def energy_and_gradient(owner: str, model: EnergyModel, x: Tensor) -> tuple[Tensor, Tensor]:
    """F(x) and its gradient, ``(*, D) -> (*), (*, D)``: as the model knows them, or from one
    forward and one backward pass.
    """
    known = model.slope(x)
    if known is not None:
        return known
    x, what = x.detach().requires_grad_(), f"the free energy of {model.title()}"
    with torch.enable_grad():
        energy = model.free_energy(x)
        if energy.shape != x.shape[:-1]:
            allowed = f"have shape {tuple(x.shape[:-1])}, one number for each row"
            remedy = "Sum or squeeze the last dimension."
            raise invalid(owner, what, allowed, tuple(energy.shape), remedy)
        try:
            (gradient,) = torch.autograd.grad(energy.sum(), x)
        except RuntimeError as error:
            got = str(error) if energy.requires_grad else "a value without a gradient"
            remedy = "Compute it by torch operations that have one, without detach or no_grad."
            raise invalid(owner, what, "be differentiable in x", got, remedy) from None
    return energy.detach(), gradient


def check_start(owner: str, model: EnergyModel, energy: Tensor, gradient: Tensor) -> None:
    """Chains must begin where the energy and its gradient are finite."""
    for what, values in (("energy", energy), ("gradient of the energy", gradient)):
        if not torch.isfinite(values).all():
            at = (~torch.isfinite(values)).nonzero()[0].tolist()
            got = f"{values[tuple(at)].item()} in chain {at[energy.dim() - 1]}"
            raise Diverged(
                f"{owner}: the {what} of {model.title()} must be finite where chains begin; got "
                f"{got}. Look at its parameters, and for logs or square roots of negative numbers."
            )


def leapfrog(
    owner: str,
    model: EnergyModel,
    x: Tensor,
    momentum: Tensor,
    gradient: Tensor,
    size: Tensor,
    steps: int,
    metric: Metric | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``steps`` leapfrog steps of length ``size`` ``(*, 1)``, in the coordinates of a ``metric``
    where there is one: the place, momentum, energy and gradient at their end.
    """
    stretch = None if metric is None else metric.stretch(model.beta, x)

    def force() -> Tensor:
        return gradient if stretch is None else (gradient @ stretch.axes) * stretch.lengths

    def velocity(p: Tensor) -> Tensor:
        return p if stretch is None else (p * stretch.lengths) @ stretch.axes.mT

    energy = gradient
    for _ in range(steps):
        half = torch.addcmul(momentum, size, force(), value=-0.5)
        x = torch.addcmul(x, size, velocity(half))
        energy, gradient = energy_and_gradient(owner, model, x)
        momentum = torch.addcmul(half, size, force(), value=-0.5)
    return x, momentum, energy, gradient


def check_acceptance(owner: str, parameter: str, value: float) -> None:
    """A share strictly between 0 and 1."""
    if check_real(owner, parameter, value, 0, 1, open_low=True) == 1:
        raise invalid(owner, parameter, "lie between 0 and 1", value)


Acceptance: TypeAlias = Annotated[float, check_acceptance]


@dataclass(frozen=True)
class Metropolis(Sampler[MetropolisState]):
    """A gradient proposal, accepted or rejected so that the target is left invariant."""

    step_size: PositiveFloat = 0.2
    warm_up: NonNegativeInt = 200
    acceptance: Acceptance = 0.6
    schedule: Annotated[Schedule, sizes.check_schedule] | None = None
    metric: Metric | None = field(default=None, repr=False, compare=False)

    remembers = True

    @abstractmethod
    def propose(
        self, model: EnergyModel, state: MetropolisState, momentum: Tensor, size: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The proposal's place, momentum, energy and gradient; ``size`` is ``(*, 1 or C)``."""

    def varied(self, size: Tensor, state: MetropolisState, generator: torch.Generator) -> Tensor:
        """The step size of each chain for one step, drawn without regard to where it is; as it
        stands by default.
        """
        return size

    def init(self, model: EnergyModel, x: Tensor, *, generator: torch.Generator) -> MetropolisState:
        owner = type(self).__name__
        require(owner, model)
        energy, gradient = energy_and_gradient(owner, model, x)
        check_start(owner, model, energy, gradient)
        return MetropolisState(x, energy, gradient, sizes.start(self.step_size, energy))

    def place(
        self,
        model: EnergyModel,
        state: MetropolisState,
        x: Tensor,
        field: Field | None = None,
        *,
        generator: torch.Generator,
    ) -> MetropolisState:
        return MetropolisState(x, *energy_and_gradient(type(self).__name__, model, x), state.size)

    def reopen(self, state: MetropolisState) -> MetropolisState:
        return state._replace(size=sizes.reopened(state.size, self.warm_up))

    def refresh(
        self, model: EnergyModel, state: MetropolisState, *, generator: torch.Generator
    ) -> MetropolisState:
        return self.place(model, self.reopen(state), state.x, generator=generator)

    @torch.no_grad()
    def step(
        self, model: EnergyModel, state: MetropolisState, *, generator: torch.Generator
    ) -> tuple[MetropolisState, MetropolisInfo]:
        size = self.varied(self._size(model, state, generator), state, generator)
        momentum = rng.normal(state.x.shape, state.x, generator)
        x, end, energy, gradient = self.propose(model, state, momentum, size)
        log_accept = state.energy - energy + 0.5 * (momentum.square() - end.square()).sum(-1)
        diverged = ~torch.isfinite(log_accept)
        log_accept = log_accept.masked_fill(diverged, -torch.inf)
        accept = rng.uniform(energy.shape, energy, generator).log() < log_accept
        info = MetropolisInfo(accept, log_accept.clamp_max(0).exp(), size, diverged)
        keep = accept[..., None]
        moved = MetropolisState(
            torch.where(keep, x, state.x),
            torch.where(accept, energy, state.energy),
            torch.where(keep, gradient, state.gradient),
            self._adapt(state.size, info),
        )
        self._check_moving(model, moved, info)
        return moved, info

    @torch.no_grad()
    def tuned(self, model: EnergyModel, *, generator: torch.Generator) -> Self:
        """The kernel with step sizes fixed along the model's path, found by a pilot run whose draws
        are thrown away.
        """
        if not self.warm_up:
            return self
        schedule = tuning_run(replace(self, warm_up=TUNING_STEPS), model, generator)
        return replace(self, warm_up=0, schedule=schedule)

    @torch.no_grad()
    def suited_to(self, model: EnergyModel, x: Tensor) -> Self:
        """The kernel in coordinates in which the energy bends evenly, as far as states ``x`` show,
        and whose chains draw their steps down to what the narrowest places among them need.
        """
        if self.schedule is None:
            return self
        schedule, metric = self.schedule, self._metric(model, x)
        adaptive = replace(self, schedule=None, warm_up=TUNING_STEPS, metric=metric)
        try:
            if metric is not None:
                schedule = tuning_run(adaptive, model, _suiting(x, 0))
            schedule = suiting_run(adaptive, schedule, model, x)
        except Diverged:  # what cannot be tuned is named where the chains run
            return self
        return replace(self, schedule=schedule, metric=metric)

    def _metric(self, model: EnergyModel, x: Tensor) -> Metric | None:
        """From the slopes of the energy at draws of the reference and at ``x``."""
        owner, reference = type(self).__name__, model.annealed(0.0)
        draws = model.reference().draw(TUNING_CHAINS, generator=_suiting(x, 1))
        slopes = (
            energy_and_gradient(owner, target, at)[1]
            for target, at in ((reference, draws), (model, x))
        )
        return metric_between(*slopes)

    def _size(
        self, model: EnergyModel, state: MetropolisState, generator: torch.Generator
    ) -> Tensor:
        """From the schedule where there is one, drawn for each chain between its longest and its
        shortest, evenly on a logarithmic scale; else what the warm-up says by now.
        """
        if self.schedule is None:
            known = state.size
            return (known.log_size if int(known.steps) < self.warm_up else known.average).exp()
        beta = torch.as_tensor(model.beta).to(state.energy)
        longest, *shortest = sizes.scheduled(self.schedule, beta if beta.dim() else beta[None])
        if not shortest:
            return longest
        u = rng.uniform(state.energy.shape, state.energy, generator)
        return longest * (shortest[0] / longest) ** u

    def _adapt(self, size: StepSize, info: MetropolisInfo) -> StepSize:
        moved = info.accepted.any(-1, keepdim=True)
        size = size._replace(stuck=torch.where(moved, 0.0, size.stuck + 1))
        if int(size.steps) >= self.warm_up:
            return size
        return sizes.adapted(size, info.probability.mean(-1, keepdim=True), self.acceptance)

    def _check_moving(
        self, model: EnergyModel, state: MetropolisState, info: MetropolisInfo
    ) -> None:
        steps = float(state.size.stuck.max())
        if steps < STUCK_STEPS or steps * state.x.shape[-2] < STUCK_PROPOSALS:
            return
        size, lost = float(info.size.max()), float(info.diverged.float().mean())
        why = f" ({lost:.0%} of the last proposals had no finite energy)" if lost else ""
        remedy = "Lower step_size, or let warm_up=200 find it."
        if self.schedule is not None:  # tuned along a path: the user chose no step size
            remedy = "Give rows from all of its modes, or bring its coordinates to one scale."
        tries = f"{steps:.0f} steps of {state.x.shape[-2]} chains on {model.title()}"
        raise Diverged(
            f"{type(self).__name__}: at least one proposal in {tries} must be accepted; got none "
            f"at step size {size:.3g}{why}. "
            f"{remedy}"
        )


def tuning_run(
    kernel: Sampler[MetropolisState], model: EnergyModel, generator: torch.Generator
) -> Schedule:
    """Anneal some chains upwards and adapt the step size at each of a few temperatures."""
    x = model.reference().draw(TUNING_CHAINS, generator=generator)
    state = kernel.init(model.annealed(0.0), x, generator=generator)
    betas, found = [], []
    for beta in TUNING_BETAS:
        target = model.annealed(beta)
        if betas:
            average = state.size.average
            state = kernel.place(target, state, state.x, generator=generator)
            state = state._replace(size=sizes.start(average.exp(), average))
        for _ in range(TUNING_STEPS):
            state, _ = kernel.step(target, state, generator=generator)
        betas.append(float(torch.as_tensor(target.beta).max()))
        found.append(float(state.size.average.exp().mean()))
    return tuple(betas), tuple(found)


def _suiting(x: Tensor, part: int) -> torch.Generator:
    """Always the same randomness, on the device of ``x``; none of a run's own is used."""
    return torch.Generator(x.device).manual_seed(rng.keyed(SUITING_KEY, part).initial_seed())


@torch.no_grad()
def suiting_run(
    kernel: Sampler[MetropolisState], schedule: Schedule, model: EnergyModel, x: Tensor
) -> Schedule:
    """The schedule with the steps that the narrowest of places ``x`` need, ``(N, D)``, as its
    shortest; as it is where its own are not much longer.

    Chains go down from the model, and each adapts a step size of its own.
    """
    betas, longest = schedule[:2]
    generator = _suiting(x, 2)
    shortest = list(longest)
    state = kernel.init(model, x[:, None], generator=generator)
    log_size = state.size.average.new_full((len(x), 1), longest[-1]).log()
    for i in reversed(range(len(betas))):
        target = model.annealed(betas[i])
        state = kernel.place(target, state, state.x, generator=generator)
        state = state._replace(size=sizes.start(log_size.exp(), log_size))
        for _ in range(TUNING_STEPS):
            state, _ = kernel.step(target, state, generator=generator)
        log_size = state.size.average
        shortest[i] = min(float(log_size.exp().quantile(NARROW)), longest[i])
    if all(SHORTER * short > long for short, long in zip(shortest, longest, strict=True)):
        return schedule
    return betas, longest, tuple(shortest)
