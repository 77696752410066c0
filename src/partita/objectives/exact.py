r"""Exact maximum likelihood, where the partition function can be summed or the model has none.

.. math:: \ell(\theta) = E_{\mathrm{data}}[F(x)] + \log Z          (theory/learning.md, eq. 6.1)
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from partita.core.capability import require
from partita.core.enumeration import log_partition
from partita.core.protocols import Batch, Data, EnergyModel, Model
from partita.objectives.base import GradientObjective, Nothing, unwrapped, weighted_mean


@dataclass(frozen=True)
class ExactLikelihood(GradientObjective):
    """The negative mean log-likelihood in nats: from ``log_prob`` where the model has it, else by enumeration of the smaller side."""

    def init(self, model: Model, data: Data, *, generator: torch.Generator) -> Nothing:
        require("ExactLikelihood", model)
        return Nothing()

    def losses(
        self, model: Any, batch: Batch, state: Nothing, *, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Nothing, dict[str, Tensor]]:
        bare = unwrapped(model)
        if isinstance(bare, EnergyModel):
            side = min(bare.sides(), key=lambda side: side.support.bits)
            loss = weighted_mean(model(batch.x), batch.weight) + log_partition(side, batch.x)
        else:
            loss = -weighted_mean(model(batch.x), batch.weight)
        return {"model": loss}, state, {"log_likelihood": -loss.detach()}
