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
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from partita.core import rng
from partita.core.capability import require
from partita.core.protocols import EnergyModel, Field
from partita.errors import invalid
from partita.samplers import adaptive
from partita.samplers import step_size as sizes
from partita.samplers.adaptive import Adaptive, check_energies, check_shape, suiting
from partita.samplers.metric import Coordinates, Stretch, metric_between
from partita.samplers.step_size import StepSize


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
        check_shape(owner, model, x, energy)
        try:
            (gradient,) = torch.autograd.grad(energy.sum(), x)
        except RuntimeError as error:
            got = str(error) if energy.requires_grad else "a value without a gradient"
            remedy = "Compute it by torch operations that have one, without detach or no_grad."
            raise invalid(owner, what, "be differentiable in x", got, remedy) from None
    return energy.detach(), gradient


def check_start(owner: str, model: EnergyModel, energy: Tensor, gradient: Tensor) -> None:
    """Chains must begin where the energy and its gradient are finite."""
    check_energies(owner, model, energy)
    if not torch.isfinite(gradient).all():
        worst = torch.where(torch.isfinite(gradient), 0.0, gradient).sum(-1)
        check_energies(owner, model, worst, "gradient of the energy")


def leapfrog(
    owner: str,
    model: EnergyModel,
    x: Tensor,
    momentum: Tensor,
    gradient: Tensor,
    size: Tensor,
    steps: int,
    metric: Coordinates | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``steps`` leapfrog steps of length ``size`` ``(*, 1)``, in the coordinates of a ``metric``
    where there is one: the place, momentum, energy and gradient at their end.
    """
    stretch = None if metric is None else metric.stretch(model.beta, x)
    energy = gradient
    for _ in range(steps):
        x, momentum, energy, gradient = leap(owner, model, x, momentum, gradient, size, stretch)
    return x, momentum, energy, gradient


def leap(
    owner: str,
    model: EnergyModel,
    x: Tensor,
    momentum: Tensor,
    gradient: Tensor,
    size: Tensor,
    stretch: Stretch | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One leapfrog step."""
    force = gradient if stretch is None else stretch.force(gradient)
    half = torch.addcmul(momentum, size, force, value=-0.5)
    x = torch.addcmul(x, size, half if stretch is None else stretch.velocity(half))
    energy, gradient = energy_and_gradient(owner, model, x)
    force = gradient if stretch is None else stretch.force(gradient)
    return x, torch.addcmul(half, size, force, value=-0.5), energy, gradient


def slope_metric(owner: str, model: EnergyModel, x: Tensor) -> Coordinates | None:
    """From the slopes of the energy at draws of the reference and at ``x``."""
    draws = model.reference().draw(adaptive.TUNING_CHAINS, generator=suiting(x, 1))
    slopes = (
        energy_and_gradient(owner, target, at)[1]
        for target, at in ((model.annealed(0.0), draws), (model, x))
    )
    return metric_between(*slopes)


@dataclass(frozen=True)
class Metropolis(Adaptive[MetropolisState]):
    """A gradient proposal, accepted or rejected so that the target is left invariant."""

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

    def path_metric(self, model: EnergyModel, x: Tensor) -> Coordinates | None:
        return slope_metric(type(self).__name__, model, x)

    @torch.no_grad()
    def step(
        self, model: EnergyModel, state: MetropolisState, *, generator: torch.Generator
    ) -> tuple[MetropolisState, MetropolisInfo]:
        size = self.varied(self.size_now(model, state, generator), state, generator)
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
            self.size_after(state, info),
        )
        self.check_moving(model, moved, info)
        return moved, info
