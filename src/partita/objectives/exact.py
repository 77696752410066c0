r"""Exact maximum likelihood, where the partition function can be summed or integrated, or the model
has none.

.. math:: \ell(\theta) = E_{\mathrm{data}}[F(x)] + \log Z          (theory/learning.md, eq. 6.1)

On one or two real coordinates Z is an integral, taken on a grid around the data. For a network the
grid is shifted at random for each update: unbiased, and no peak can hide between the points; other
densities are smooth on the scale of the data, and their grid stays.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from partita.core import rng
from partita.core.capability import EXACT_BITS, require, smallest_bits
from partita.core.enumeration import log_partition
from partita.core.protocols import (
    Batch,
    Capability,
    Data,
    EnergyModel,
    Losses,
    Model,
    Objective,
    unwrapped,
)
from partita.integration.quadrature import Box, log_integral
from partita.nets.base import dropping
from partita.objectives.base import Nothing
from partita.runtime.seeds import stretches

MARGIN = 2.0  # deviations by which the grid reaches beyond the data
SPACING = 0.125  # deviations between its points
FEWEST, MOST = {1: 256, 2: 48}, {1: 4096, 2: 192}  # cells of each coordinate
ROWS_AT_ONCE = 8192


class IntegrationGrid(NamedTuple):
    """Where Z is integrated: n cells along each coordinate of a box."""

    box: Box
    n: int


Integration = Nothing | IntegrationGrid


@dataclass(frozen=True)
class ExactLikelihood(Objective[Integration]):
    """The negative mean log-likelihood in nats.

    From ``log_prob`` where the model has it, else by enumeration of the smaller side, else by
    quadrature over one or two coordinates.
    """

    deterministic = True

    def deterministic_on(self, model: Model) -> bool:
        """All but the integral of a network, whose grid is shifted at random, and networks with
        dropout.
        """
        shifted = _integrates(model) and Capability.NETWORK in model.capabilities
        return not shifted and Capability.DROPS not in model.capabilities

    def init(self, model: Model, data: Data, *, generator: torch.Generator) -> Integration:
        require("ExactLikelihood", model)
        return grid_around(data, model.like, generator) if _integrates(model) else Nothing()

    def losses(
        self,
        model: Model,
        batch: Batch,
        state: Integration,
        *,
        generator: torch.Generator,
    ) -> Losses[Integration]:
        bare = unwrapped(model)
        if isinstance(state, IntegrationGrid):
            shift = 0.5
            if not self.deterministic_on(bare):
                shift = rng.uniform((bare.support.width,), batch.x, generator)
            log_z = log_integral(model, state.box, int(state.n), shift)
            loss = batch.mean(model(batch.x)) + log_z
        elif isinstance(bare, EnergyModel):
            side = min(bare.sides(), key=lambda side: side.support.bits)
            loss = batch.mean(model(batch.x)) + log_partition(side, batch.x)
        else:
            ends = () if batch.lengths is None else (batch.lengths,)  # of rows that end early
            with dropping(generator):
                loss = -batch.mean(model(batch.x, *ends))
        return {"model": loss}, state, {"log_likelihood": -loss.detach()}


def grid_around(data: Data, like: Tensor, generator: torch.Generator) -> IntegrationGrid:
    """A grid over the range of the data and some deviations beyond, as fine as their deviation
    requires.
    """
    low, high = like.new_full((data.width,), torch.inf), like.new_full((data.width,), -torch.inf)
    for index in stretches(len(data), ROWS_AT_ONCE):
        x = data.batch(index, generator=generator).x.to(like)
        low, high = torch.minimum(low, x.amin(0)), torch.maximum(high, x.amax(0))
    deviation = data.variance().sqrt().to(like)
    box = Box(low - MARGIN * deviation, high + MARGIN * deviation)
    n = int(((box.high - box.low) / (SPACING * deviation)).max())
    return IntegrationGrid(box, max(FEWEST[data.width], min(MOST[data.width], n)))


def _integrates(model: Model) -> bool:
    """Whether Z is an integral, for want of a finite sum."""
    return (
        isinstance(model, EnergyModel)
        and not model.support.discrete
        and smallest_bits(model) > EXACT_BITS
    )
