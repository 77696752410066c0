r"""Replica exchange along a path that annealing took: a witness of another kind, in equilibrium where the other is not.

A chain that comes down from a state weighs w = Z_A / f_A, the mass of its region over the share of annealings that end there: the heavier
it is, the harder is its region to reach. Ladders that begin at the reference and reach states as hard as any witness have passed over none
of them for that reason.

Letters: C ladders, T rungs, D visible.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.core.protocols import EnergyModel, Sampler
from partita.core.quantity import Quantity, worst
from partita.diagnostics.weights import verdict_on_unseen
from partita.evaluators.partition.bridge import REACHED, Bridge, ladder_quantity
from partita.evaluators.partition.modes import hardness

METHOD = "replica exchange beside annealing from both sides"
LADDERS = 16
RUNGS, LEAST_RUNGS, MOST_RUNGS = 4, 16, 64  # for each unit of thermodynamic length
STEPS, LEAST_STEPS, LONGER = 9, 300, 4  # for each rung, and how many times as many where the first have not mixed
FEW_RUNGS = 32  # up to which there are longer ladders
WIDER = 1.25  # times the ladders' own half-width, which a few round trips know only roughly


class Ladders(NamedTuple):
    """What ladders say of log Z, and the weight of the hardest state that they reached from the reference."""

    q: Quantity
    hardest: float


def ladders_along(
    model: EnergyModel, kernel: Sampler, length: float, betas: Tensor, x: Tensor, level: float, *, generator: torch.Generator
) -> Ladders:
    """Ladders along the path of a model, half of them begun at its reference and half at ``x``; longer ones where they have not mixed.

    Arguments:
        length: Of the path, thermodynamic.
        betas: Along which chains come down from states that the ladders reached, rising.
        x: States in modes, ``(N, D)``.
    """
    rungs = max(LEAST_RUNGS, min(MOST_RUNGS, math.ceil(RUNGS * length)))
    model, steps = model.remembering(x, "Sandwich"), max(LEAST_STEPS, STEPS * rungs)
    for draws in (steps, LONGER * steps)[: 1 + (rungs <= FEW_RUNGS)]:
        seen = Bridge(rungs, LADDERS, draws, draws, kernel, level).look(model, generator=generator)
        q = ladder_quantity(seen, float(model.reference().log_z), level)
        if q.trusted:
            break
    return Ladders(q, hardness(model, kernel, betas, seen.reached(REACHED, generator), generator))


def agree(q: Quantity, other: Quantity) -> bool:
    """Whether two values are no further apart than their intervals are wide."""
    return abs(q.value - other.value) <= 0.5 * (q.width + other.width)


def over_both(q: Quantity, other: Quantity) -> Quantity:
    """What two witnesses that contradict each other leave."""
    return replace(q, low=min(q.low, other.low), high=max(q.high, other.high), verdict="do not publish")


def confirmed(q: Quantity, other: Quantity, reach: float) -> Quantity:
    """What ladders know that annealing does not contradict; the interval reaches to what they cannot have seen, ``reach``."""
    low, high = (other.value + WIDER * (end - other.value) for end in (other.low, other.high))
    reached = float(np.logaddexp(high, reach))
    verdict = worst(other.verdict, verdict_on_unseen(reached - high))
    details = {**q.details, "added": reached - high}
    return replace(q, value=other.value, low=low, high=reached, method=METHOD, verdict=verdict, details=details)
