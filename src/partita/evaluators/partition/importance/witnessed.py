r"""An importance-sampled number beside draws of the density that know nothing of its proposal.

.. math:: \sum_i \sigma\big(w(x_i) - \Delta - \log \tfrac nm\big)
          = \sum_j \sigma\big(\Delta + \log \tfrac nm - w(y_j)\big), \qquad
          w = \log f - \log q          (theory/evidence.md, eq. 60.11)

Where the proposal misses a mode that the other method found, draws y there weigh more than any of
its own draws x, and Bennett's ratio lies higher than their mean.

Letters: n draws of the proposal, m of the other method.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from partita.core.protocols import EnergyModel
from partita.core.quantity import Quantity, half_width, worst
from partita.diagnostics.weights import unseen, verdict_on_unseen
from partita.evaluators.partition.bridge import acceptance_ratio
from partita.evaluators.partition.importance.counted_density import CountedDensity

ENOUGH = 200  # different draws that can bear witness


def witnessed(q: Quantity, draws: Tensor, model: EnergyModel) -> Quantity:
    """What ``ImportanceSampling`` said of a model, after ``draws`` of another method were heard.

    Modes that it found but once count as known, for nothing that it does not know was drawn; where
    something was, the interval reaches to it.
    """
    y = torch.unique(draws.double(), dim=0)
    if len(y) < ENOUGH:
        return q
    log_w: Tensor = q.details["log_w"]
    at_y = CountedDensity("ImportanceSampling", model)(y) - q.details["proposal"].log_density(y)
    ratio = acceptance_ratio(log_w, -at_y)
    half = half_width(ratio.se, q.level)
    high = float(np.logaddexp(max(q.high, ratio.value), unseen(log_w, at_y)))
    verdict = worst(q.details["of_known_modes"], verdict_on_unseen(high - q.high))
    if abs(ratio.value - q.value) > half + 0.5 * q.width:
        verdict = "do not publish"
    return replace(
        q,
        low=min(q.low, ratio.value),
        high=high,
        verdict=verdict,
        details={**q.details, "bridged": ratio.value, "witnesses": len(y)},
    )
