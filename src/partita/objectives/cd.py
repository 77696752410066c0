r"""Contrastive divergence: the negative phase from chains that start at the data and take k steps
(Hinton 2002), or go on from update to update (Tieleman 2008), tempered if the sampler is.

.. math:: \ell = E_{\mathrm{data}}[F(x)] - E_{x_k}[F(x)], \qquad x_0 = \text{data},\; x_{k} \sim
          T^k(\cdot \mid x_0)
          (theory/learning.md, eq. 6.2)

.. math:: \ell = E_{\mathrm{data}}[F(x)] - E_{\mathrm{chains}}[F(x)], \qquad x^{(t+1)} \sim
          T_{\theta_t}^k(\cdot \mid x^{(t)})
          (theory/learning.md, eq. 6.3)

``PCD(Tempering(Gibbs(), betas=...))`` keeps a ladder and learns from its rung at beta = 1. With
``active`` the chains are a replay buffer (Du and Mordatch 2019): at each update only some of them
move, and a share of those begin again at the reference.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.arguments import PositiveInt, Share, check_choice
from partita.core.protocols import (
    Batch,
    Capability,
    Chains,
    ChainState,
    Data,
    EnergyModel,
    Losses,
    Objective,
    Sampler,
    check_kernel,
    unwrapped,
)
from partita.errors import invalid
from partita.objectives.base import trial_rows


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
        positive, negative = (batch.mean(model(rows)) for rows in (batch.x, chains.x))
        loss = positive - negative
        return {"model": loss}, state._replace(last=chains), {"energy_gap": loss.detach()}


class Buffer(NamedTuple):
    """Chains of which only some move at an update; ``moved`` is what the sampler knows of the last
    that did, its step size too.
    """

    x: Tensor  # (C, D)
    moved: ChainState


class Persistent(NamedTuple):
    """The chains, and the data's mean at which gradients are centered."""

    chains: ChainState
    mu: Tensor  # (D,)


@dataclass(frozen=True)
class PCD(ByChains[Persistent]):
    """PCD-k with any sampler.

    Arguments:
        sampler: Moves the chains; chosen by the capability table if not given.
        chains: Number of chains C.
        steps: k, between two updates.
        centered: Center the gradient where the model can; None does so if it can.
        active: Chains that move at an update, drawn at random from all C; None moves them all.
        restart: Share of the active chains that begin again at a draw from the reference.
    """

    sampler: Sampler | None = None
    chains: PositiveInt = 256
    steps: PositiveInt = 1
    centered: bool | None = None
    active: PositiveInt | None = None
    restart: Share = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.active is not None and self.active > self.chains:
            raise invalid("PCD", "active", f"be at most chains = {self.chains}", self.active)
        if self.restart and self.active is None:
            allowed = "go with active, the number of chains that move at an update"
            raise invalid("PCD", "restart", allowed, self.restart)

    def shared(self, processes: int) -> "PCD":
        """Each process moves its part of the chains."""
        counts = {"chains": self.chains}
        if self.active is not None:
            counts["active"] = self.active
        for name, count in counts.items():
            if count % processes:
                allowed = f"be a multiple of the {processes} processes"
                remedy = f"The next one is {name}={count + -count % processes}."
                raise invalid("PCD", name, allowed, count, remedy)
        return replace(self, **{name: count // processes for name, count in counts.items()})

    def init(self, model: EnergyModel, data: Data, *, generator: torch.Generator) -> Persistent:
        self.require(model)
        start = model.reference().draw(self.chains, generator=generator)
        chains = self.kernel(model).init(model, start[: self.active], generator=generator)
        chains = with_field(model, chains)
        kept = chains if self.active is None else Buffer(start, chains)
        return Persistent(kept, data.mean().to(model.like))

    def losses(
        self, model: EnergyModel, batch: Batch, state: Persistent, *, generator: torch.Generator
    ) -> Losses[Persistent]:
        bare = unwrapped(model)
        if isinstance(state.chains, Buffer):
            chains, kept = self._replayed(bare, state.chains, generator)
        else:
            chains = self.kernel(bare).refresh(bare, state.chains, generator=generator)
            chains = kept = with_field(bare, self.moved(bare, chains, generator))
        field = chains.field if isinstance(chains, Chains) else None
        loss = batch.mean(model(batch.x)) - model(chains.x, field).mean()
        return {"model": loss}, state._replace(chains=kept), {"energy_gap": loss.detach()}

    @torch.no_grad()
    def _replayed(
        self, model: EnergyModel, buffer: Buffer, generator: torch.Generator
    ) -> tuple[ChainState, Buffer]:
        """The active chains k steps on, to learn from, and the buffer with them in it, to keep."""
        assert self.active is not None
        index = rng.permutation(self.chains, generator)[: self.active]
        fresh = model.reference().draw(self.active, generator=generator).to(buffer.x)
        anew = rng.uniform((self.active, 1), fresh, generator) < self.restart
        start = torch.where(anew, fresh, buffer.x[index])
        moved = with_field(model, self.restarted(model, buffer.moved, start, generator))
        return moved, Buffer(buffer.x.index_copy(0, index, moved.x), moved)


@torch.no_grad()
def with_field(model: EnergyModel, chains: ChainState) -> ChainState:
    """The chains with the model's field at them, which serves the loss now and the next step's
    conditional after.

    The parameters move between the two, so the chain alternates h | x under the old and x | h under
    the new ones: the same persistent chain, updated at half steps, for one matrix product fewer.
    """
    if Capability.FIELD in model.capabilities and isinstance(chains, Chains):
        return Chains(chains.x, model.field(chains.x))
    return chains
