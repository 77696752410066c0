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


def witnessed(q: Quantity, other: Quantity, model: EnergyModel) -> Quantity:
    """What ``ImportanceSampling`` said of a model, judged again with the draws of another method.

    Where that one is trusted, modes that were found but once count as known, for it drew nothing
    that the mixture lacks; if it did, the interval reaches to it.
    """
    y: Tensor = other.details["draws"].double()
    distinct = len(torch.unique(y, dim=0))
    if distinct < ENOUGH:
        return q
    log_w: Tensor = q.details["log_w"]
    at_y = CountedDensity("ImportanceSampling", model)(y) - q.details["proposal"].log_density(y)
    ratio = acceptance_ratio(log_w, -at_y)
    half = half_width(ratio.se, q.level)
    high = float(np.logaddexp(max(q.high, ratio.value), unseen(log_w, at_y)))
    before = q.details["of_known_modes"] if other.trusted else q.verdict
    verdict = worst(before, verdict_on_unseen(high - q.high))
    if not abs(ratio.value - q.value) <= half + 0.5 * q.width:
        verdict = "do not publish"
    return replace(
        q,
        low=min(q.low, ratio.value),
        high=high,
        verdict=verdict,
        details={**q.details, "bridged": ratio.value, "witnesses": distinct},
    )
