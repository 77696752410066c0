r"""Reverse annealed importance sampling: log Z from the model downwards (Burda, Grosse and
Salakhutdinov 2015).

.. math:: \log \hat Z = \log Z_0 - \log \frac1C \sum_c w_c, \qquad E[\log \hat Z] \ge \log Z
          (theory/scoring.md, eq. 5.5)

A bound only if the chains begin at exact draws from the model; the Quantity says where they began.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from partita.core.arguments import check_choice
from partita.core.capability import require_need
from partita.core.enumeration import Side, probabilities
from partita.core.protocols import EnergyModel, Sampler, in_double
from partita.core.quantity import Quantity, Verdict, half_width, worst
from partita.core.rng import categorical, draw
from partita.diagnostics.weights import WeightReport, summarize_weights, verdict_on_weights
from partita.errors import invalid
from partita.evaluators.partition.annealing import Annealing, AnnealingEvaluator, anneal, resample
from partita.evaluators.partition.modes import settle, sought
from partita.evaluators.partition.rounding import prepared, reach_to_rounding
from partita.evaluators.partition.tails import reach_to_tails
from partita.evaluators.partition.witnesses import heard_by_modes, over_both_sides

Start = Literal["annealed", "data", "exact"]
STARTS: tuple[Start, ...] = ("annealed", "data", "exact")


@dataclass(frozen=True)
class FromBothEnds(AnnealingEvaluator):
    """An annealing that needs draws from the model.

    Arguments:
        start: ``"exact"`` (draws by enumeration), ``"annealed"`` (ends of a forward annealing,
            resampled by weight) or ``"data"`` (training rows that the model remembers, settled).
    """

    start: Start = "annealed"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(type(self).__name__, "start", self.start, STARTS)

    def _begin(
        self,
        model: EnergyModel,
        kernel: Sampler,
        up: Annealing | None,
        generator: torch.Generator,
    ) -> Tensor:
        """Where the chains begin: draws from the model, as near as ``start`` has them."""
        if up is None:
            return exact_draws(model, self.chains, generator=generator)
        rows = model.anchor_rows(self.chains)
        if self.start == "annealed" or rows is None:
            rows = resample(up.x, up.log_w, len(up.x), generator)
        return settle(model, kernel, rows, generator)

    def _check_start(self, model: EnergyModel) -> None:
        """Before anything runs: exact draws need few states, data rows that are known."""
        if self.start == "exact":
            require_need("enumerable", "start='exact'", model, "Use start='annealed'.")
        if self.start == "data" and model.anchor_rows(1) is None:
            raise invalid(
                type(self).__name__,
                "start",
                "be 'annealed' or 'exact' for a model that was never fitted",
                "'data'",
            )


@dataclass(frozen=True)
class ReverseAIS(FromBothEnds):
    """log Z by annealing from the model to the reference: an upper bound in expectation from exact
    draws, else an estimate that forward annealing and witnesses must agree with.
    """

    def __call__(
        self, model: EnergyModel, *, rows: Tensor | None = None, generator: torch.Generator
    ) -> Quantity:
        model = prepared("ReverseAIS", model, rows)
        self._check_start(model)
        kernel, betas = self._prepare(model, generator)
        log_z0 = float(model.reference().log_z)
        up = None if self.start == "exact" else self._climb(model, kernel, betas, generator)
        x = self._begin(model, kernel, up, generator)
        log_w = anneal(model, kernel, betas.flip(0), x, generator=generator).log_w
        climb = None if up is None else summarize_weights(up.log_w)
        q = reverse_quantity(log_z0, log_w, climb, self.level, self.start)
        q = reach_to_rounding(q, model)
        if up is None:
            return q
        q = reach_to_tails("ReverseAIS", q, model, up.x)
        seen = log_z0 + float(up.log_w.max())
        found = sought(model, kernel, generator)
        return heard_by_modes(q, model, kernel, betas, found, seen, self.chains, generator)


def reverse_quantity(
    log_z0: float, log_w: Tensor, climb: WeightReport | None, level: float, start: Start
) -> Quantity:
    """log Z from reverse weights. Draws that are not exact are trusted no more than a forward
    annealing, ``climb``, and the interval reaches over both.
    """
    report = summarize_weights(log_w)
    se = report.se if climb is None else math.hypot(report.se, climb.se)
    verdicts: list[Verdict] = [
        verdict_on_weights(side) for side in (report, climb) if side is not None
    ]
    value, half = log_z0 - report.log_mean, half_width(se, level)
    q = Quantity(
        value,
        value - half,
        value + half,
        level=level,
        kind="upper" if start == "exact" else "estimate",
        method=f"reverse AIS from {start} draws",
        verdict=worst(*verdicts),
        direction="high",
        details={
            "ess": report.ess,
            "khat": report.khat,
            "chains": report.n,
            "se": se,
            "start": start,
            "log_w": log_w,
        },
    )
    return q if climb is None else over_both_sides(q, log_z0, climb, report)


@torch.no_grad()
def exact_draws(model: EnergyModel, n: int, *, generator: torch.Generator) -> Tensor:
    """Independent draws by enumeration, through the hidden side where that is smaller."""
    require_need("enumerable", "start='exact'", model, "Use start='annealed'.")
    double = in_double(model)  # energies of many nats differ by less than float32 tells apart
    side: Side = min(double.sides(), key=lambda s: s.support.bits)
    log_p = probabilities(side, double.like).log()
    states = side.support.state_at(categorical(log_p, generator, n), model.like)
    if side.name == "visible":
        return states
    return draw(model.visible_given_hidden(states), generator)  # type: ignore[operator]
