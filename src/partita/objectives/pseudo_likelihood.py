r"""Pseudo-likelihood: every coordinate given all others, each normalized over its own few values
(Besag 1975).

.. math:: \ell = -E_{\mathrm{data}} \sum_i \log p(x_i \mid x_{\setminus i})
          (theory/objectives.md, eq. 6.12)

Letters: B batch, D visible, K values of a coordinate.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from partita.core import capability
from partita.core.protocols import Batch, Data, EnergyModel, Losses, Objective
from partita.objectives.base import Nothing, unwrapped, weighted_mean


@dataclass(frozen=True)
class PseudoLikelihood(Objective[Nothing]):
    """The negative log pseudo-likelihood per row, for supports whose coordinates have finitely many
    values.
    """

    deterministic: ClassVar[bool] = True

    def init(self, model: EnergyModel, data: Data, *, generator: torch.Generator) -> Nothing:
        capability.require("PseudoLikelihood", model)
        return Nothing()

    def losses(
        self, model: Any, batch: Batch, state: Nothing, *, generator: torch.Generator
    ) -> Losses[Nothing]:
        loss = -weighted_mean(pseudo_log_likelihood(model, batch.x), batch.weight)
        return {"model": loss}, state, {"pseudo_log_likelihood": -loss.detach()}


def pseudo_log_likelihood(model: Any, x: Tensor) -> Tensor:
    """Sum over sites of log p(x_i | the others), ``(*, D) -> (*)``."""
    logits, index = model.conditional_logits(x), value_index(unwrapped(model), x)
    return (
        -functional.cross_entropy(logits.flatten(0, -2), index.flatten(), reduction="none")
        .view(x.shape)
        .sum(-1)
    )


def value_index(model: EnergyModel, x: Tensor) -> Tensor:
    """The number of each coordinate's value in the support's rising list, ``(*, D)``."""
    return torch.searchsorted(model.support.values().to(x), x.contiguous())
