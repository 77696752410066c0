r"""Contrastive divergence: the negative phase from chains that start at the data and take k steps
(Hinton 2002).

.. math:: \ell = E_{\mathrm{data}}[F(x)] - E_{x_k}[F(x)], \qquad x_0 = \text{data},\; x_{k} \sim
          T^k(\cdot \mid x_0)
          (theory/learning.md, eq. 6.2)
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from partita.core import capability
from partita.core.arguments import PositiveInt
from partita.core.checks import check_choice
from partita.core.protocols import (
    Batch,
    ChainState,
    Data,
    EnergyModel,
    Losses,
    Objective,
    Sampler,
    check_kernel,
)
from partita.objectives.base import trial_rows, unwrapped, weighted_mean


class Centered(Protocol):
    """A state that holds the data's mean, at which gradients are centered."""

    @property
    def mu(self) -> Tensor: ...  # (D,)


State = TypeVar("State", bound=Centered)


class ByChains(Objective[State]):
    """What CD and PCD share: chains that any sampler moves k steps, and a gradient that may be
    centered.
    """

    sampler: Sampler | None
    steps: int
    centered: bool | None

    def require(self, model: EnergyModel) -> None:
        """Refuse a model that the objective, or centering as requested, cannot run on."""
        capability.require(type(self).__name__, model)
        self.centers(model)

    def kernel(self, model: EnergyModel) -> Sampler:
        """The sampler given, or the default of the capability table."""
        if self.sampler is None:
            return capability.default("sampler", model)
        check_kernel("fit", "the objective's sampler", self.sampler)
        return self.sampler

    def centers(self, model: EnergyModel) -> bool:
        """Whether to center: as requested, or wherever the model can."""
        owner = type(self).__name__
        check_choice(owner, "centered", self.centered, (None, True, False))
        if self.centered:
            capability.require_need(
                "centering", f"{owner}(centered=True)", model, "Leave centered at None."
            )
        can = capability.NEEDS["centering"].holds(model)
        return can if self.centered is None else self.centered

    def moved(
        self, model: EnergyModel, chains: ChainState, generator: torch.Generator
    ) -> ChainState:
        """The chains k steps on."""
        sampler = self.kernel(model)
        for _ in range(self.steps):
            chains, _ = sampler.step(model, chains, generator=generator)
        return chains

    def restarted(
        self, model: EnergyModel, last: ChainState, x: Tensor, generator: torch.Generator
    ) -> ChainState:
        """The chains k steps on from ``x``, with what the sampler learned of the ``last``."""
        sampler = self.kernel(model)
        start = sampler.place(model, sampler.reopen(last), x, generator=generator)
        return self.moved(model, start, generator)

    def precondition(self, model: EnergyModel, state: State) -> None:
        if self.centers(model):
            model.center(state.mu)


class Restarted(NamedTuple):
    """The data's mean, at which gradients are centered, and what the sampler knows of the last
    chains, its step size too.
    """

    mu: Tensor  # (D,)
    last: ChainState


@dataclass(frozen=True)
class CD(ByChains[Restarted]):
    """CD-k with any sampler.

    Arguments:
        sampler: Moves the chains; chosen by the capability table if not given.
        steps: k.
        centered: Center the gradient where the model can; None does so if it can.
    """

    sampler: Sampler | None = None
    steps: PositiveInt = 1
    centered: bool | None = None

    def init(self, model: EnergyModel, data: Data, *, generator: torch.Generator) -> Restarted:
        self.require(model)
        x = trial_rows(data, model, generator)
        last = self.kernel(model).init(model, x, generator=generator)
        return Restarted(data.mean().to(model.like), last)

    def losses(
        self, model: EnergyModel, batch: Batch, state: Restarted, *, generator: torch.Generator
    ) -> Losses[Restarted]:
        chains = self.restarted(unwrapped(model), state.last, batch.x, generator)
        positive, negative = (
            weighted_mean(model(rows), batch.weight) for rows in (batch.x, chains.x)
        )
        loss = positive - negative
        return {"model": loss}, state._replace(last=chains), {"energy_gap": loss.detach()}
