r"""Replica exchange along a path that annealing took: a witness of another kind, in equilibrium
where the other is not.

A chain that comes down from a state weighs w = Z_A / f_A, the mass of its region over the share of
annealings that end there: the heavier it is, the harder is its region to reach. Ladders that begin
at the reference and reach states as hard as any witness have passed over none of them for that
reason.

Letters: C ladders, T rungs, D visible.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.core.quantity import Quantity, worst
from partita.diagnostics.weights import verdict_on_unseen
from partita.evaluators.partition.annealing import Path, placed_by
from partita.evaluators.partition.bridge import REACHED, ladder_quantity
from partita.evaluators.partition.ladders import Ladders
from partita.evaluators.partition.witnesses import hardness

METHOD = "replica exchange beside annealing from both sides"
LADDERS = 16
# one for each unit of thermodynamic length: about half of all exchanges are accepted then, and
# states travel fastest
LEAST_RUNGS, MOST_RUNGS = 16, 64
# times the square of the rungs, as states take to wander along them, before ladders are first read
STEPS = 2.4
BURN_IN = 1 / 3  # of the steps
# times as many steps where ladders have not mixed, again and again, and rungs times steps in all
LONGER, MOST = 1.5, 150_000
WIDER = 1.25  # times the ladders' own half-width, which a few round trips know only roughly


class Witness(NamedTuple):
    """What ladders say of log Z, and the weight of the hardest state that they reached from the
    reference.
    """

    q: Quantity
    hardest: float


def ladders_along(
    path: Path,
    betas: Tensor,
    x: Tensor,
    level: float,
    *,
    trained: Path | None = None,
    generator: torch.Generator,
) -> Witness:
    """Ladders along a path, half of them begun at its reference and half at ``x``, which go on
    until they have mixed.

    Arguments:
        path: Along which chains come down from states that the ladders reached.
        betas: At these temperatures, rising.
        x: States in modes, ``(N, D)``, those of one kind next to each other.
        trained: The path of the ladders, where it is another.
    """
    own = path if trained is None else trained
    model, kernel = own.model, own.kernel
    count = max(LEAST_RUNGS, min(MOST_RUNGS, math.ceil(own.length)))
    rungs = torch.unique(placed_by(own.pilot, count))
    modes = x[torch.linspace(0, len(x) - 1, LADDERS).round().long()]  # some of every kind
    ladders = Ladders(model, kernel, rungs, modes, generator)
    steps = 0
    more = math.ceil(min(STEPS * len(rungs) ** 2, MOST / len(rungs)))
    while True:
        ladders.go_on(more, generator)
        steps += more
        seen = ladders.seen(int(BURN_IN * steps))
        q = ladder_quantity(seen, float(model.reference().log_z), level)
        more = math.ceil((LONGER - 1) * steps)
        if q.trusted or len(rungs) * (steps + more) > MOST:
            reached = seen.reached(REACHED, generator)
            return Witness(q, hardness(path.model, path.kernel, betas, reached, generator))


def agree(q: Quantity, other: Quantity) -> bool:
    """Whether two values are no further apart than their intervals are wide."""
    return abs(q.value - other.value) <= 0.5 * (q.width + other.width)


def over_both(q: Quantity, other: Quantity) -> Quantity:
    """What two witnesses that contradict each other leave."""
    return replace(
        q, low=min(q.low, other.low), high=max(q.high, other.high), verdict="do not publish"
    )


def confirmed(q: Quantity, other: Quantity, reach: float) -> Quantity:
    """What ladders know that annealing does not contradict; the interval reaches to what they
    cannot have seen, ``reach``.
    """
    low, high = (other.value + WIDER * (end - other.value) for end in (other.low, other.high))
    reached = float(np.logaddexp(high, reach))
    verdict = worst(other.verdict, verdict_on_unseen(reached - high))
    details = {**q.details, "added": reached - high}
    return replace(
        q, value=other.value, low=low, high=reached, method=METHOD, verdict=verdict, details=details
    )
