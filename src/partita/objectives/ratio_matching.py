r"""Ratio matching: score matching for discrete supports (Hyvärinen 2007).

.. math:: \ell = \tfrac12 E_{\mathrm{data}} \sum_i \sum_v \big(p(v \mid x_{\setminus i}) - 1[x_i =
          v]\big)^2
          \;=\; E_{\mathrm{data}} \sum_i \Big(\frac{1}{1 + p(x) / p(\bar x_i)}\Big)^2 \text{ for two
          values}
          (theory/objectives.md, eq. 6.14)

where x-bar_i is x with coordinate i flipped: ratios of probabilities, in which Z cancels. For more
values it is half the Brier score of the conditionals, a proper score.

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
from partita.objectives.pseudo_likelihood import value_index


@dataclass(frozen=True)
class RatioMatching(Objective[Nothing]):
    """Half the Brier score of every coordinate given the others, for supports whose coordinates
    have finitely many values.
    """

    deterministic: ClassVar[bool] = True

    def init(self, model: EnergyModel, data: Data, *, generator: torch.Generator) -> Nothing:
        capability.require("RatioMatching", model)
        return Nothing()

    def losses(
        self, model: Any, batch: Batch, state: Nothing, *, generator: torch.Generator
    ) -> Losses[Nothing]:
        loss = weighted_mean(ratio_loss(model, batch.x), batch.weight)
        return {"model": loss}, state, {"ratio_matching": loss.detach()}


def ratio_loss(model: Any, x: Tensor) -> Tensor:
    """Sum over sites of half the squared distance between p(. | the others) and what is there,
    ``(*, D) -> (*)``.
    """
    p = torch.softmax(model.conditional_logits(x), -1)
    there = functional.one_hot(value_index(unwrapped(model), x), p.shape[-1])
    return 0.5 * (p - there).square().sum((-2, -1))
