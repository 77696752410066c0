r"""Objectives from every coordinate given all others, each normalized over its own few values.

Pseudo-likelihood (Besag 1975) scores what is there by its log-probability,

.. math:: \ell = -E_{\mathrm{data}} \sum_i \log p(x_i \mid x_{\setminus i})
          (theory/objectives.md, eq. 6.12)

and ratio matching (Hyvärinen 2007), score matching for discrete supports, by half the Brier score,

.. math:: \ell = \tfrac12 E_{\mathrm{data}} \sum_i \sum_v \big(p(v \mid x_{\setminus i}) - 1[x_i =
          v]\big)^2
          \;=\; E_{\mathrm{data}} \sum_i \Big(\frac{1}{1 + p(x) / p(\bar x_i)}\Big)^2 \text{ for two
          values}
          (theory/objectives.md, eq. 6.14)

where x-bar_i is x with coordinate i flipped: ratios of probabilities, in which Z cancels.

Letters: B batch, D visible, K values of a coordinate.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from partita.core.protocols import Batch, EnergyModel, unwrapped
from partita.objectives.base import Stateless


@dataclass(frozen=True)
class PseudoLikelihood(Stateless):
    """The negative log pseudo-likelihood per row, for supports whose coordinates have finitely many
    values.
    """

    deterministic = True

    def loss(
        self, model: EnergyModel, batch: Batch, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        loss = -batch.mean(pseudo_log_likelihood(model, batch.x))
        return loss, {"pseudo_log_likelihood": -loss.detach()}


@dataclass(frozen=True)
class RatioMatching(Stateless):
    """Half the Brier score of every coordinate given the others, for the same supports."""

    deterministic = True

    def loss(
        self, model: EnergyModel, batch: Batch, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        loss = batch.mean(ratio_loss(model, batch.x))
        return loss, {"ratio_matching": loss.detach()}


def pseudo_log_likelihood(model: EnergyModel, x: Tensor) -> Tensor:
    """Sum over sites of log p(x_i | the others), ``(*, D) -> (*)``."""
    logits, index = model.conditional_logits(x), value_index(unwrapped(model), x)
    return (
        -functional.cross_entropy(logits.flatten(0, -2), index.flatten(), reduction="none")
        .view(x.shape)
        .sum(-1)
    )


def ratio_loss(model: EnergyModel, x: Tensor) -> Tensor:
    """Sum over sites of half the squared distance between p(. | the others) and what is there,
    ``(*, D) -> (*)``.
    """
    p = torch.softmax(model.conditional_logits(x), -1)
    there = functional.one_hot(value_index(unwrapped(model), x), p.shape[-1])
    return 0.5 * (p - there).square().sum((-2, -1))


def value_index(model: EnergyModel, x: Tensor) -> Tensor:
    """The number of each coordinate's value in the support's rising list, ``(*, D)``."""
    return torch.searchsorted(model.support.values().to(x), x.contiguous())
