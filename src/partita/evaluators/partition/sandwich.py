r"""log Z between forward and reverse annealing, with Bennett's ratio of the two as the value.

.. math:: \log \hat Z_{\mathrm{AIS}} \lesssim \log Z \lesssim \log \hat Z_{\mathrm{reverse}}          (theory/scoring.md, eq. 5.7)

The interval reaches from the lower end of the forward side to the upper end of the reverse side, so a gap between them, the mark
of annealing that was too fast, widens it.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from partita.core.protocols import EnergyModel
from partita.core.quantity import Quantity, Verdict, half_width, worst
from partita.diagnostics.weights import WeightReport, summarise_weights, verdict_on_sandwich
from partita.evaluators.partition.ais import forward_quantity
from partita.evaluators.partition.bridge import acceptance_ratio
from partita.evaluators.partition.reverse_ais import FromBothEnds, Start


@dataclass(frozen=True)
class Sandwich(FromBothEnds):
    """log Z from both sides. Arguments as for :class:`FromBothEnds`; each side uses them.

    With ``start="annealed"`` a fitted model's reverse side begins a second time, at training rows: a mode that the forward side
    never visited shows there. Where no rows are known the verdict is at best ``loose``.
    """

    def __call__(self, model: EnergyModel, *, generator: torch.Generator) -> Quantity:
        kernel, betas = self._prepare(model, generator)
        up = self._climb(model, kernel, betas, generator)
        report = summarise_weights(up.log_w)
        forward = forward_quantity(float(model.reference().log_z), report, self.level)
        starts: list[Start] = [self.start]
        if self.start == "annealed" and model.anchor_rows(1) is not None:
            starts.append("data")
        reverses = [self._descend(model, kernel, betas, start, up, generator) for start in starts]
        verdicts: list[Verdict] = [judge(report, forward, reverse) for reverse in reverses]
        verdict = worst(*verdicts) if len(starts) > 1 or self.start != "annealed" else worst("loose", *verdicts)
        return replace(combine(forward, up.log_w, reverses, self.level, len(betas)), verdict=verdict)


def judge(report: WeightReport, forward: Quantity, reverse: Quantity) -> Verdict:
    """One pair of sides."""
    return verdict_on_sandwich(report, summarise_weights(reverse.details["log_w"]), reverse.value - forward.value)


def combine(forward: Quantity, log_w: Tensor, reverses: list[Quantity], level: float, temperatures: int) -> Quantity:
    """One Quantity from all sides: Bennett's ratio as the value, an interval that reaches over them."""
    ratio = acceptance_ratio(log_w, torch.cat([reverse.details["log_w"] for reverse in reverses]))
    log_z0 = forward.value - summarise_weights(log_w).log_mean
    value, half = log_z0 + ratio.value, half_width(ratio.se, level)
    reverse = max(reverses, key=lambda side: abs(side.value - forward.value))
    return Quantity(
        value,
        min(value - half, forward.low),
        max(value + half, forward.value, *(side.high for side in reverses)),  # the forward side is a lower bound, whatever came back
        level=level,
        kind="estimate",
        method="sandwich of AIS and reverse AIS",
        details={
            "forward": forward.value,
            "reverse": reverse.value,
            "gap": reverse.value - forward.value,
            "overlap": ratio.overlap,
            "ess": forward.details["ess"],
            "ess_reverse": min(side.details["ess"] for side in reverses),
            "khat": forward.details["khat"],
            "khat_reverse": reverse.details["khat"],
            "chains": forward.details["chains"],
            "temperatures": temperatures,
            "start": " and ".join(side.details["start"] for side in reverses),
            "se": ratio.se,
        },
    )
