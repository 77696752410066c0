r"""What a number must answer to before it is trusted: the other direction, and modes it may have
missed.

.. math:: Z_A \le \tfrac3C \, \max_{j \in A} w_j          (theory/scoring.md, eq. 5.23)

A region A that none of C forward annealings reached can hold that much. The weights with which it
is compared are those of the annealings that made the number, never those of chains begun at its own
answer: one lucky chain of those would license everything.

Letters: C chains, D visible.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from partita.core.protocols import EnergyModel, Sampler
from partita.core.quantity import Quantity, half_width, worst
from partita.diagnostics.weights import (
    WeightReport,
    verdict_on_sandwich,
    verdict_on_unseen,
)
from partita.evaluators.partition.annealing import anneal
from partita.evaluators.partition.modes import SOUGHT, settle

HARDER = 3.0  # nats by which a mode may be harder to reach than states that ladders reached
# of the states that ladders reached, the heaviest that is believed: an equilibrium that holds 5 %
# of the mass in a region shows it that often in 96 draws
BELIEVED = 3
RULE_OF_THREE = 3.0  # what was seen in none of C draws has a share of at most 3 / C, at 95 %


def descents(
    model: EnergyModel, kernel: Sampler, betas: Tensor, x: Tensor, generator: torch.Generator
) -> Tensor:
    """Log weights of chains that come down from ``x``, in the forward sense and with the
    reference's log Z, ``(N,)``: log Z_A / f_A, more where annealing seldom reaches a region.
    """
    log_z0 = float(model.reference().log_z)
    return log_z0 - anneal(model, kernel, betas.flip(0), x, generator=generator).log_w


def hardness(
    model: EnergyModel, kernel: Sampler, betas: Tensor, x: Tensor, generator: torch.Generator
) -> float:
    """How hard to reach is what ladders reached, ``x``: the weight that a few of its chains
    exceed.
    """
    weights = descents(model, kernel, betas, x, generator)
    return float(weights.topk(min(BELIEVED, len(weights))).values[-1])


def over_both_sides(q: Quantity, log_z0: float, up: WeightReport, down: WeightReport) -> Quantity:
    """The quantity with an interval that reaches over forward and reverse annealing, and a verdict
    on the gap between them.
    """
    forward, reverse = log_z0 + up.log_mean, log_z0 - down.log_mean
    half = half_width(math.hypot(up.se, down.se), q.level)
    return replace(
        q,
        low=min(q.low, forward - half_width(up.se, q.level), reverse - half),
        high=max(q.high, forward, reverse + half),
        verdict=worst(q.verdict, verdict_on_sandwich(up, down, reverse - forward)),
        details={**q.details, "forward": forward, "reverse": reverse, "gap": reverse - forward},
    )


def heard_by_modes(
    q: Quantity,
    model: EnergyModel,
    kernel: Sampler,
    betas: Tensor,
    found: Tensor,
    seen: float,
    draws: int,
    generator: torch.Generator,
) -> Quantity:
    """The quantity after modes were heard, remembered and ``found``: the interval reaches to what
    may be held by those heavier than the largest weight ``seen`` in so many ``draws``.

    Without rows the verdict is at best "loose".
    """
    rows = model.anchor_rows(SOUGHT)
    modes = found if rows is None else torch.cat([found, settle(model, kernel, rows, generator)])
    heaviest = float(descents(model, kernel, betas, modes, generator).max())
    reach = heaviest + math.log(RULE_OF_THREE / draws) if heaviest > seen else -math.inf
    high = float(np.logaddexp(q.high, reach))
    details = {**q.details, "heaviest": heaviest, "hardest": seen, "added": high - q.high}
    verdict = worst(q.verdict, verdict_on_unseen(high - q.high))
    q = replace(q, high=high, verdict=verdict, details=details)
    return q if rows is not None else without_rows(q, draws)


def without_rows(q: Quantity, draws: int) -> Quantity:
    """The verdict where no rows show the modes: "loose" at best, and an upper end that leaves
    room for what none of the draws saw, by the rule of three, however little they differ.
    """
    room = math.log1p(RULE_OF_THREE / draws)
    return replace(q, high=max(q.high, q.value + room), verdict=worst(q.verdict, "loose"))
