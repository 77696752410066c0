r"""log Z between forward and reverse annealing, with Bennett's ratio of the two as the value.

.. math:: \log \hat Z_{\mathrm{AIS}} \lesssim \log Z \lesssim \log \hat Z_{\mathrm{reverse}}          (theory/scoring.md, eq. 5.7)

The interval reaches from the lower end of the forward side to the upper end of the reverse side, so a gap between them, the mark
of annealing that was too fast, widens it.
"""

from dataclasses import dataclass

import torch

from partita.core.protocols import EnergyModel
from partita.core.quantity import Quantity, Verdict
from partita.diagnostics.weights import summarise_weights, verdict_on_sandwich
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
        report = summarise_weights(up.log_w)
        forward = forward_quantity(log_z0, report, self.level)
        reverse = self._descend(model, kernel, betas, up, generator)
        log_w = reverse.details["log_w"]
        verdict = verdict_on_sandwich(report, summarise_weights(log_w), reverse.value - forward.value)
        return combine(log_z0, forward, reverse, acceptance_ratio(up.log_w, log_w), verdict, self.level, len(betas))


def combine(
    log_z0: float, forward: Quantity, reverse: Quantity, ratio: Ratio, verdict: Verdict, level: float, temperatures: int
) -> Quantity:
    """One Quantity from the two sides and Bennett's ratio between them."""
    value, half = log_z0 + ratio.value, half_width(ratio.se, level)
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
            "gap": reverse.value - forward.value,
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
