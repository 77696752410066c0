r"""log Z between forward and reverse annealing, with Bennett's ratio of the two as the value.

.. math:: \log \hat Z_{\mathrm{AIS}} \lesssim \log Z \lesssim \log \hat Z_{\mathrm{reverse}}          (theory/scoring.md, eq. 5.7)

The interval reaches from the lower end of the forward side to the upper end of the reverse side, so a gap between them, the mark
of annealing that was too fast, widens it.
"""

from dataclasses import dataclass

import torch

from partita.core.protocols import EnergyModel, Sampler
from partita.core.quantity import Quantity, worst
from partita.diagnostics.weights import summarise_weights, verdict_on_gap
from partita.evaluators.partition.ais import forward_quantity
from partita.evaluators.partition.annealing import anneal, check_annealing, from_reference, resolve_kernel, temperatures_for
from partita.evaluators.partition.bridge import Ratio, acceptance_ratio
from partita.evaluators.partition.interval import half_width
from partita.evaluators.partition.reverse_ais import Start, exact_draws, from_annealing, reverse_quantity


@dataclass(frozen=True)
class Sandwich:
    """log Z from both sides.

    Arguments:
        temperatures, chains, kernel, adaptive, level: As for AIS; each side uses them.
        start: Where the reverse side begins, as for ReverseAIS.
    """

    temperatures: int | None = None
    chains: int = 128
    kernel: Sampler | None = None
    adaptive: bool = True
    level: float = 0.95
    start: Start = "annealed"

    def __post_init__(self) -> None:
        check_annealing("Sandwich", self.temperatures, self.chains, self.level)

    def __call__(self, model: EnergyModel, *, generator: torch.Generator) -> Quantity:
        kernel = resolve_kernel("Sandwich", self.kernel, model)
        betas = temperatures_for(model, kernel, self.temperatures, adaptive=self.adaptive, generator=generator)
        up = anneal(model, kernel, betas, from_reference(model, self.chains, generator), generator=generator)
        exact = self.start == "exact"
        x, start_se = (exact_draws(model, self.chains, generator=generator), 0.0) if exact else from_annealing(model, kernel, up, generator)
        down = anneal(model, kernel, betas.flip(0), x, generator=generator)
        log_z0 = float(model.reference().log_z)
        forward = forward_quantity(log_z0, summarise_weights(up.log_w), self.level)
        reverse = reverse_quantity(log_z0, summarise_weights(down.log_w), start_se, self.level, self.start)
        return combine(log_z0, forward, reverse, acceptance_ratio(up.log_w, down.log_w), self.level)


def combine(log_z0: float, forward: Quantity, reverse: Quantity, ratio: Ratio, level: float) -> Quantity:
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
            "start": reverse.details["start"],
            "se": ratio.se,
        },
    )
