r"""log Z by importance sampling from a mixture that was fitted to the density beforehand.

.. math:: \hat Z = \frac1n \sum_{i=1}^n \frac{f(x_i)}{q(x_i)}, \qquad x_i \sim q, \qquad
          Z_A \le \tfrac3n \max_{x \in A} \frac{f(x)}{q(x)}
          (theory/scoring.md, eq. 5.29)

The proposal q is frozen before the first of these draws is made, so that nothing it learned biases
the number. A region A that none of the n draws saw holds at most the second expression; its maximum
is sought by ascent, against the proposal.

Letters: n draws, D coordinates.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.arguments import check_count, check_generator, check_level, check_real
from partita.core.protocols import EnergyModel
from partita.core.quantity import Quantity, Verdict, half_width, worst
from partita.diagnostics.weights import (
    WeightReport,
    summarize_weights,
    verdict_on_ess,
    verdict_on_unseen,
)
from partita.errors import Unsupported, invalid
from partita.evaluators.partition.importance.ascent import climbed
from partita.evaluators.partition.importance.counted_density import CountedDensity
from partita.evaluators.partition.importance.far_out import reach_far_out
from partita.evaluators.partition.importance.proposal_search import Search
from partita.evaluators.partition.modes import minima_of
from partita.evaluators.partition.rounding import reach_to_rounding_of
from partita.evaluators.partition.witnesses import RULE_OF_THREE, without_rows

OWNER = "ImportanceSampling"
MOST = 100_000  # evaluations where no number of them is given
LEAST_EVALUATIONS = 1000
LEAST_FINAL = 4000  # draws of the number, whose tail must be seen
KHAT_TIGHT, KHAT_LOOSE = 0.5, 0.7  # nothing but these weights speaks for the number
TOP_TIGHT, TOP_LOOSE = 0.02, 0.1  # share of the weight in the heaviest draw
HALVES_TIGHT, HALVES_LOOSE = 3.0, 4.0  # standard errors between the halves
ROWS, AGAINST, KEPT = 64, 10, 1000  # rows that are looked at, ascents against q, draws kept
SAFELY = math.log(2.0)  # nats by which places of one kind may hold more than those found
# coordinates up to which tempered draws alone find modes: no slopes, no rows
MOST_BLIND = 3
FRESH = 6  # ascents to modes from where no draw led


@dataclass(frozen=True)
class ImportanceSampling:
    """log Z on real coordinates from few evaluations: importance sampling from a mixture of Student
    distributions, fitted to the density by tempered rounds and ascents to its modes.

    For densities of a few to some twenty coordinates. Where the mixture does not fit, as in a long
    funnel, the verdict says so. A mode that ascents found but once says that others may be left:
    the number is not trusted then, and ``details["of_known_modes"]`` is the verdict if there are
    none. Without any rows modes are sought far and wide beforehand, which takes up to 450,000
    evaluations more, and the verdict is at best "loose"; with ``evaluations`` there is no such
    search, and without rows no trust.

    Arguments:
        evaluations: Of F at most, a gradient counted as one more; 100,000 if not given.
        tolerance: Half width of the interval, in nats, at which it stops.
        level: Of the interval.
    """

    evaluations: int | None = None
    tolerance: float = 0.02
    level: float = 0.95

    def __post_init__(self) -> None:
        if self.evaluations is not None:
            check_count(OWNER, "evaluations", self.evaluations, LEAST_EVALUATIONS)
        if not check_real(OWNER, "tolerance", self.tolerance) > 0:
            raise invalid(OWNER, "tolerance", "be positive", self.tolerance)
        check_level(OWNER, self.level)

    @torch.no_grad()
    def __call__(
        self, model: EnergyModel, *, rows: Tensor | None = None, generator: torch.Generator
    ) -> Quantity:
        capability.require(OWNER, model)
        check_generator(OWNER, generator)
        model = model.remembering(rows, OWNER)
        density, known = CountedDensity(OWNER, model), model.anchor_rows(ROWS)
        known = None if known is None else known.double()
        needed = (half_width(1.0, self.level) / self.tolerance) ** 2
        pointed = model.landmarks(ROWS)
        if known is None and pointed is None and self.evaluations is None:
            pointed = minima_of(model, generator)
        search = Search(density, known, pointed, self.evaluations or MOST, generator)
        search.run(needed)
        if not bool((search.population.log_f > -math.inf).any()):
            raise Unsupported(
                f"{OWNER} cannot run on {model.title()}: its density is zero at all of "
                f"{density.count} states that were drawn. Give rows where it is not."
            )
        x, log_f, log_w = self._final(search, generator)
        q = self._quantity(search, log_w)
        q = self._against(q, search, x, log_w)
        q = reach_far_out(OWNER, q, density, x, log_w)
        size = float(log_f[log_f > -math.inf].abs().median())
        q = reach_to_rounding_of(q, model, density.like.dtype, size)
        q = without_rows(q, len(x)) if known is None else q
        drawn = x[rng.systematic(log_w, generator, KEPT)].to(model.like)
        details = {
            **q.details,
            "evaluations": density.count,
            "draws": drawn,
            "proposal": search.proposal,
            "log_w": log_w,
            "of_known_modes": q.verdict,
        }
        return replace(q, verdict="do not publish" if search.lone else q.verdict, details=details)

    def _final(self, search: Search, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Draws of the frozen proposal, log f and log weights: twice as many until the interval is
        narrow enough or the budget ends.
        """
        density, most = search.density, search.budget
        reserve = AGAINST * 150 if density.differentiable else AGAINST * 200
        n = max(100, min(LEAST_FINAL, most - density.count - reserve))
        x, log_f, log_w = [], [], torch.empty(0)
        while True:
            x.append(search.proposal.draw(n, generator))
            log_f.append(density(x[-1]))
            log_q = torch.cat([search.proposal.log_density(part) for part in x])
            log_w = torch.cat(log_f) - log_q
            enough = half_width(summarize_weights(log_w).se, self.level) <= self.tolerance
            n = min(len(log_w), most - density.count - reserve)
            if enough or n < len(log_w) // 4:
                return torch.cat(x), torch.cat(log_f), log_w

    def _quantity(self, search: Search, log_w: Tensor) -> Quantity:
        """The number with the error that its own weights show."""
        report, n = summarize_weights(log_w), len(log_w)
        halves = [summarize_weights(part) for part in (log_w[: n // 2], log_w[n // 2 :])]
        se = max(math.hypot(halves[0].se, halves[1].se), 1e-300)
        apart = abs(halves[0].log_mean - halves[1].log_mean) / se
        top = float((log_w.max() - torch.logsumexp(log_w, 0)).exp())
        # a mean of heavy-tailed weights is low more often than its own spread shows
        heavy = 1 + 2 * max(0.0, min(report.khat, 1.0) - 0.4) if report.khat > 0.4 else 1.0
        half = half_width(report.se, self.level)
        mixture = search.mixture
        return Quantity(
            report.log_mean,
            report.log_mean - half,
            report.log_mean + heavy * half,
            level=self.level,
            kind="estimate",
            method="importance sampling from a fitted mixture",
            verdict=_verdict(report, top, apart, search),
            details={
                "khat": report.khat,
                "ess": report.ess,
                "n": n,
                "top": top,
                "halves": apart,
                "components": 0 if mixture is None else mixture.size,
                "modes": 0 if search.modes is None else len(search.modes.x),
                "lone_modes": search.lone,
                "se": report.se,
            },
        )

    def _against(self, q: Quantity, search: Search, x: Tensor, log_w: Tensor) -> Quantity:
        """The quantity with an upper end that holds what places heavier than any draw may hold:
        those found by ascent of f / q, from the heaviest draws, rows, known and fresh modes.
        """
        starts = [x[log_w.topk(AGAINST).indices]]
        if search.rows is not None:
            starts.append(search.rows[: AGAINST // 2])
        if search.modes is not None:
            order = search.modes.log_mass.argsort(descending=True)
            starts.append(search.modes.x[order[:AGAINST]])
        if search.density.differentiable:
            fresh = search.base.draw(FRESH, search.generator)
            starts.append(climbed(search.density.slope, fresh, search.scale)[0])
        known = torch.cat(starts)
        here = search.density(known) - search.proposal.log_density(known)
        best = known[here.topk(min(AGAINST, len(here))).indices]
        places, found = search.ascents(best)
        sup, seen = float(torch.cat([found, here]).max()), float(log_w.max())
        reach = -math.inf
        if sup > seen:
            at = torch.cat([places, best])[torch.cat([found, here.topk(len(best)).values]) > seen]
            reach = SAFELY + search.excess(at, seen)
            reach = min(reach, sup + math.log(RULE_OF_THREE / len(log_w)))
        high = float(np.logaddexp(q.high, reach))
        details = {**q.details, "thinnest": sup - q.value, "added": high - q.high}
        verdict = worst(q.verdict, verdict_on_unseen(high - q.high))
        return replace(q, high=high, verdict=verdict, details=details)


def _verdict(report: WeightReport, top: float, apart: float, search: Search) -> Verdict:
    """From tails, effective number, the heaviest draw, the two halves, and how the search went."""
    steep = search.density.differentiable or search.density.width <= MOST_BLIND
    known = search.rows is not None or (search.pointed is not None and steep)
    if search.gamma < 1.0 or not known:
        return "do not publish"
    return worst(
        verdict_on_ess(report.ess, report.n),
        _below(report.khat, KHAT_TIGHT, KHAT_LOOSE),
        _below(top, TOP_TIGHT, TOP_LOOSE),
        _below(apart, HALVES_TIGHT, HALVES_LOOSE),
    )


def _below(value: float, tight: float, loose: float) -> Verdict:
    if value <= tight:
        return "tight"
    return "loose" if value <= loose else "do not publish"
