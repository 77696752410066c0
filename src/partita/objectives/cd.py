r"""Contrastive divergence: the negative phase from chains that start at the data and take k steps
(Hinton 2002).

.. math:: \ell = E_{\mathrm{data}}[F(x)] - E_{x_k}[F(x)], \qquad x_0 = \text{data},\; x_{k} \sim
          T^k(\cdot \mid x_0)
          (theory/learning.md, eq. 6.2)
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.checks import check_choice, check_count
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
from partita.objectives.base import unwrapped, weighted_mean


class Restarted(NamedTuple):
    """The data's mean, at which gradients are centered, and what the sampler knows of the last
    chains, its step size too.
    """

    mu: Tensor  # (D,)
    last: ChainState


@dataclass(frozen=True)
class CD(Objective[Restarted]):
    """CD-k with any sampler.

    Arguments:
        sampler: Moves the chains; chosen by the capability table if not given.
        steps: k.
        centered: Center the gradient where the model can; None does so if it can.
    """

    sampler: Sampler | None = None
    steps: int = 1
    centered: bool | None = None

    def __post_init__(self) -> None:
        check_count("CD", "steps", self.steps)

    def init(self, model: EnergyModel, data: Data, *, generator: torch.Generator) -> Restarted:
        capability.require("CD", model)
        resolve_centering("CD", self.centered, model)
        index = torch.arange(min(2, len(data)))
        x = data.batch(index, generator=rng.child(generator)).x.to(model.like)
        last = resolve_sampler(self.sampler, model).init(model, x, generator=generator)
        return Restarted(data.mean().to(model.like), last)

    def losses(
        self, model: EnergyModel, batch: Batch, state: Restarted, *, generator: torch.Generator
    ) -> Losses[Restarted]:
        bare = unwrapped(model)
        sampler = resolve_sampler(self.sampler, bare)
        chains = sampler.place(bare, sampler.reopen(state.last), batch.x, generator=generator)
        for _ in range(self.steps):
            chains, _ = sampler.step(bare, chains, generator=generator)
        positive, negative = (
            weighted_mean(model(rows), batch.weight) for rows in (batch.x, chains.x)
        )
        loss = positive - negative
        return {"model": loss}, state._replace(last=chains), {"energy_gap": loss.detach()}

    def precondition(self, model: EnergyModel, state: Restarted) -> None:
        if resolve_centering("CD", self.centered, model):
            model.center(state.mu)


def resolve_sampler(sampler: Sampler | None, model: EnergyModel) -> Sampler:
    """The sampler given, or the default of the capability table."""
    if sampler is None:
        return capability.default("sampler", model)
    check_kernel("fit", "the objective's sampler", sampler)
    return sampler


def resolve_centering(owner: str, centered: bool | None, model: EnergyModel) -> bool:
    """Whether to center: as requested, or wherever the model can."""
    check_choice(owner, "centered", centered, (None, True, False))
    if centered:
        capability.require_need(
            "centering", f"{owner}(centered=True)", model, "Leave centered at None."
        )
    return capability.NEEDS["centering"].holds(model) if centered is None else centered
