r"""log Z between forward and reverse annealing, with Bennett's ratio of the two as the value.

.. math:: \log \hat Z_{\mathrm{AIS}} \lesssim \log Z \lesssim \log \hat Z_{\mathrm{reverse}}          (theory/scoring.md, eq. 5.7)

The interval reaches from the lower end of the forward side to the upper end of the reverse side, so a gap between them, the mark
of annealing that was too fast, widens it.
"""

from dataclasses import dataclass

import torch

from partita.core.protocols import EnergyModel
from partita.core.quantity import Quantity, worst
from partita.diagnostics.weights import summarise_weights, verdict_on_gap
from partita.evaluators.partition.ais import forward_quantity
from partita.evaluators.partition.bridge import Ratio, acceptance_ratio
from partita.evaluators.partition.interval import half_width
from partita.evaluators.partition.reverse_ais import FromBothEnds


@dataclass(frozen=True)
class Sandwich(FromBothEnds):
    """log Z from both sides. Arguments as for :class:`FromBothEnds`; each side uses them."""

    def __call__(self, model: EnergyModel, *, generator: torch.Generator) -> Quantity:
        kernel, betas = self._prepare(model, generator)
        up = self._climb(model, kernel, betas, generator)
        log_z0 = float(model.reference().log_z)
        forward = forward_quantity(log_z0, summarise_weights(up.log_w), self.level)
        reverse = self._descend(model, kernel, betas, up, generator)
        ratio = acceptance_ratio(up.log_w, reverse.details["log_w"])
        return combine(log_z0, forward, reverse, ratio, self.level, len(betas))


def combine(log_z0: float, forward: Quantity, reverse: Quantity, ratio: Ratio, level: float, temperatures: int) -> Quantity:
    """One Quantity from the two sides and Bennett's ratio between them."""
    value, half = log_z0 + ratio.value, half_width(ratio.se, level)
    gap = reverse.value - forward.value
    verdict = worst(forward.verdict, reverse.verdict, verdict_on_gap(gap))
    return Quantity(
        value,
        min(value - half, forward.low),
        max(value + half, reverse.high),
        level=level,
        kind="estimate",
        method="sandwich of AIS and reverse AIS",
        verdict=verdict,
        details={
            "forward": forward.value,
            "reverse": reverse.value,
            "gap": gap,
            "overlap": ratio.overlap,
            "ess": forward.details["ess"],
            "ess_reverse": reverse.details["ess"],
            "khat": forward.details["khat"],
            "khat_reverse": reverse.details["khat"],
            "chains": forward.details["chains"],
            "temperatures": temperatures,
            "start": reverse.details["start"],
            "se": ratio.se,
        },
    )
