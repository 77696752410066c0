r"""What kernels share whose steps are learned in a warm-up, or tuned along a path and then fixed.

A kernel that went on adapting would not leave its target unchanged, so annealing takes one that a
pilot run has tuned at a few temperatures, and whose steps lie on the line between them
(theory/gradient_samplers.md, eq. 31.5).

Letters: C chains, T temperatures, D visible.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Protocol, Self, TypeAlias, TypeVar

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import NonNegativeInt, PositiveFloat, check_real
from partita.core.protocols import EnergyModel, Sampler
from partita.errors import Diverged, invalid
from partita.samplers import step_size as sizes
from partita.samplers.metric import Coordinates
from partita.samplers.step_size import Schedule, StepSize

# in a row without one accepted, after which a kernel gives up
STUCK_STEPS, STUCK_PROPOSALS = 50, 2000
# inverse temperatures at which steps are tuned: near the reference a narrow target bends soonest
TUNING_BETAS = (0.0, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
TUNING_STEPS, TUNING_CHAINS = 25, 64
SHORTER = 2.0  # times by which steps must be too long for shorter ones to be drawn
NARROW = 0.1  # share of the states whose own steps are no longer than the shortest
SUITING_KEY = 1409


class Adapting(Protocol):
    """The state of a kernel whose steps are learned."""

    @property
    def x(self) -> Tensor: ...  # (*, C, D)

    @property
    def energy(self) -> Tensor: ...  # (*, C)

    @property
    def size(self) -> StepSize: ...

    def _replace(self, **changes: Any) -> Self: ...


class Tried(Protocol):
    """What one step of such a kernel did."""

    @property
    def accepted(self) -> Tensor: ...  # (*, C)

    @property
    def probability(self) -> Tensor: ...  # (*, C), of acceptance

    @property
    def size(self) -> Tensor: ...  # (*, 1) or (*, C)

    @property
    def diverged(self) -> Tensor: ...  # (*, C)


Moving = TypeVar("Moving", bound=Adapting)


def check_acceptance(owner: str, parameter: str, value: float) -> None:
    """A share strictly between 0 and 1."""
    if check_real(owner, parameter, value, 0, 1, open_low=True) == 1:
        raise invalid(owner, parameter, "lie between 0 and 1", value)


Acceptance: TypeAlias = Annotated[float, check_acceptance]


@dataclass(frozen=True)
class Adaptive(Sampler[Moving]):
    """A kernel with a step size that dual averaging finds, or that a schedule holds fixed."""

    step_size: PositiveFloat = 0.2
    warm_up: NonNegativeInt = 200
    acceptance: Acceptance = 0.6
    schedule: Annotated[Schedule, sizes.check_schedule] | None = None
    metric: Coordinates | None = field(default=None, repr=False, compare=False)

    remembers = True

    def piloting(self, metric: Coordinates | None = None) -> Self:
        """The kernel as pilot runs take it, whose step size alone is adapted."""
        return replace(self, schedule=None, warm_up=TUNING_STEPS, metric=metric)

    def path_metric(self, model: EnergyModel, x: Tensor) -> Coordinates | None:
        """Coordinates in which one step size suits chains at ``x``; none by default."""
        return None

    def reopen(self, state: Moving) -> Moving:
        return state._replace(size=sizes.reopened(state.size, self.warm_up))

    def refresh(self, model: EnergyModel, state: Moving, *, generator: torch.Generator) -> Moving:
        return self.place(model, self.reopen(state), state.x, generator=generator)

    @torch.no_grad()
    def tuned(self, model: EnergyModel, *, generator: torch.Generator) -> Self:
        """The kernel with step sizes fixed along the model's path, found by a pilot run whose draws
        are thrown away.
        """
        if not self.warm_up:
            return self
        schedule = tuning_run(self.piloting(self.metric), model, generator)
        return replace(self, warm_up=0, schedule=schedule)

    @torch.no_grad()
    def suited_to(self, model: EnergyModel, x: Tensor) -> Self:
        """The kernel in coordinates in which the energy bends evenly, as far as states ``x`` show,
        and whose chains draw their steps down to what the narrowest places among them need.
        """
        if self.schedule is None:
            return self
        schedule, metric = self.schedule, self.path_metric(model, x)
        adaptive = self.piloting(metric)
        try:
            if metric is not None:
                schedule = tuning_run(adaptive, model, suiting(x, 0))
            schedule = suiting_run(adaptive, schedule, model, x)
        except Diverged:  # what cannot be tuned is named where the chains run
            return self
        return replace(self, schedule=schedule, metric=metric)

    def warming_up(self, state: Moving) -> bool:
        """Whether the warm-up is not over yet."""
        return int(state.size.steps) < self.warm_up

    def size_now(self, model: EnergyModel, state: Moving, generator: torch.Generator) -> Tensor:
        """From the schedule where there is one, drawn for each chain between its longest and its
        shortest, evenly on a logarithmic scale; else what the warm-up says by now.
        """
        if self.schedule is None:
            known = state.size
            return (known.log_size if self.warming_up(state) else known.average).exp()
        beta = torch.as_tensor(model.beta).to(state.energy)
        longest, *shortest = sizes.scheduled(self.schedule, beta if beta.dim() else beta[None])
        if not shortest:
            return longest
        u = rng.uniform(state.energy.shape, state.energy, generator)
        return longest * (shortest[0] / longest) ** u

    def size_after(self, state: Moving, info: Tried) -> StepSize:
        """What is known of the step size after a step from ``state``."""
        moved = info.accepted.any(-1, keepdim=True)
        size = state.size._replace(stuck=torch.where(moved, 0.0, state.size.stuck + 1))
        if not self.warming_up(state):
            return size
        return sizes.adapted(size, info.probability.mean(-1, keepdim=True), self.acceptance)

    def check_moving(self, model: EnergyModel, state: Moving, info: Tried) -> None:
        """Give up where nothing was accepted for long."""
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


def check_energies(owner: str, model: EnergyModel, energy: Tensor, what: str = "energy") -> None:
    """Chains must begin where the energy, or what else depends on it, ``(*, C)``, is finite."""
    if not torch.isfinite(energy).all():
        at = (~torch.isfinite(energy)).nonzero()[0].tolist()
        got = f"{energy[tuple(at)].item()} in chain {at[-1]}"
        raise Diverged(
            f"{owner}: the {what} of {model.title()} must be finite where chains begin; got "
            f"{got}. Look at its parameters, and for logs or square roots of negative numbers."
        )


def check_shape(owner: str, model: EnergyModel, x: Tensor, energy: Tensor) -> None:
    """One energy for each row."""
    if energy.shape != x.shape[:-1]:
        what = f"the free energy of {model.title()}"
        allowed = f"have shape {tuple(x.shape[:-1])}, one number for each row"
        remedy = "Sum or squeeze the last dimension."
        raise invalid(owner, what, allowed, tuple(energy.shape), remedy)


def tuning_run(kernel: Sampler[Moving], model: EnergyModel, generator: torch.Generator) -> Schedule:
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


def suiting(x: Tensor, part: int) -> torch.Generator:
    """Always the same randomness, on the device of ``x``; none of a run's own is used."""
    return torch.Generator(x.device).manual_seed(rng.keyed(SUITING_KEY, part).initial_seed())


@torch.no_grad()
def suiting_run(
    kernel: Sampler[Moving], schedule: Schedule, model: EnergyModel, x: Tensor
) -> Schedule:
    """The schedule with the steps that the narrowest of places ``x`` need, ``(N, D)``, as its
    shortest; as it is where its own are not much longer.

    Chains go down from the model, and each adapts a step size of its own.
    """
    betas, longest = schedule[:2]
    generator = suiting(x, 2)
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
    return with_shortest(betas, longest, tuple(shortest))


def with_shortest(
    betas: tuple[float, ...], longest: tuple[float, ...], shortest: tuple[float, ...]
) -> Schedule:
    """A schedule whose chains draw shorter steps too, where those are much shorter."""
    if all(SHORTER * short > long for short, long in zip(shortest, longest, strict=True)):
        return betas, longest
    return betas, longest, shortest
