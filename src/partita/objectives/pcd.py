r"""Persistent contrastive divergence: chains that go on from update to update (Tieleman 2008), tempered if the sampler is.

.. math:: \ell = E_{\mathrm{data}}[F(x)] - E_{\mathrm{chains}}[F(x)], \qquad x^{(t+1)} \sim T_{\theta_t}^k(\cdot \mid x^{(t)})
          (theory/learning.md, eq. 6.3)

``PCD(Tempering(Gibbs(), betas=...))`` keeps a ladder and learns from its rung at beta = 1.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from partita.core import capability
from partita.core.checks import check_count
from partita.core.protocols import Batch, Data, EnergyModel, Sampler
from partita.objectives.base import GradientObjective, unwrapped, weighted_mean
from partita.objectives.cd import resolve_centering, resolve_sampler


class Persistent(NamedTuple):
    """The chains, and the data's mean at which gradients are centred."""

    chains: Any
    mu: Tensor  # (D,)


@dataclass(frozen=True)
class PCD(GradientObjective):
    """PCD-k with any sampler.

    Arguments:
        sampler: Moves the chains; chosen by the capability table if not given.
        chains: Number of chains C.
        steps: k, between two updates.
        centered: Centre the gradient where the model can; None does so if it can.
    """

    sampler: Sampler | None = None
    chains: int = 256
    steps: int = 1
    centered: bool | None = None

    def __post_init__(self) -> None:
        check_count("PCD", "chains", self.chains)
        check_count("PCD", "steps", self.steps)

    def init(self, model: EnergyModel, data: Data, *, generator: torch.Generator) -> Persistent:
        capability.require("PCD", model)
        resolve_centering("PCD", self.centered, model)
        start = model.reference().draw(self.chains, generator=generator)
        chains = resolve_sampler(self.sampler, model).init(model, start, generator=generator)
        return Persistent(with_field(model, chains), data.mean().to(model.device_like))

    def losses(
        self, model: Any, batch: Batch, state: Persistent, *, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Persistent, dict[str, Tensor]]:
        bare, chains = unwrapped(model), state.chains
        sampler = resolve_sampler(self.sampler, bare)
        for _ in range(self.steps):
            chains, _ = sampler.step(bare, chains, generator=generator)
        chains = with_field(bare, chains)
        loss = weighted_mean(model(batch.x), batch.weight) - model(chains.x, getattr(chains, "field", None)).mean()
        return {"model": loss}, state._replace(chains=chains), {"energy_gap": loss.detach()}

    def precondition(self, model: Any, state: Persistent) -> None:
        if resolve_centering("PCD", self.centered, model):
            model.center(state.mu)


@torch.no_grad()
def with_field(model: EnergyModel, chains: Any) -> Any:
    """The chains with the model's field at them, which serves the loss now and the next step's conditional after.

    The parameters move between the two, so the chain alternates h | x under the old and x | h under the new ones: the same
    persistent chain, updated at half steps, for one matrix product fewer.
    """
    return chains._replace(field=model.field(chains.x)) if "field" in model.offers and hasattr(chains, "field") else chains
