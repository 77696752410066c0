r"""Nested sampling: log Z by climbing the likelihood through shrinking volumes of the reference
(Skilling 2006).

.. math:: Z = Z_0 \int_0^1 e^{\ell(X)}\, dX, \qquad
          \mathrm{se}^2 = \max\Big( \mathrm{Var}_t\big[\log \hat Z\big],\;
          \tfrac{G-1}{G} \sum_g \big( \log \hat Z_{-g} - \overline{\log \hat Z_{-\cdot}} \big)^2
          \Big)          (theory/scoring.md, eq. 5.53)

It orders states by likelihood and never weighs one temperature against another, so that a
first-order transition, at which every ladder of temperatures breaks, is to it a slope like any
other.

Letters: n live points, K passed at once, G groups, D visible.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from partita.core import rng
from partita.core.arguments import (
    check_choice,
    check_count,
    check_flag,
    check_level,
    check_parameters,
    check_real,
)
from partita.core.protocols import EnergyModel
from partita.core.quantity import Quantity, Verdict, worst
from partita.diagnostics.weights import verdict_on_unseen
from partita.evaluators.partition.nested.constrained import Level, Target, clustered
from partita.evaluators.partition.nested.live_points import Climb, Pace, begin, chosen
from partita.evaluators.partition.nested.passed_by import HEARD, contours, missed, scouted
from partita.evaluators.partition.nested.volumes import (
    Passed,
    Points,
    jackknife,
    left_out,
    passed,
    rank_p_value,
    simulated,
)
from partita.evaluators.partition.rounding import prepared, reach_to_rounding
from partita.evaluators.partition.tails import reach_to_tails
from partita.evaluators.partition.witnesses import without_rows

GROUPS = 16  # of live points that never see one another
SE_TIGHT, SE_LOOSE = 0.5, 1.0  # nats
RANKS_TIGHT, RANKS_LOOSE = 0.01, 1e-3  # p-values of insertion ranks
# correlation between the starts and ends of chains, on average over the run
KEPT_TIGHT, KEPT_LOOSE = 0.3, 0.6
REACHED_TIGHT, REACHED_LOOSE = 6, 3  # groups that must have reached a mode that counts
COUNTS = 0.02  # share of the mass from which a mode does
GONE_ON = 4  # times that a run goes on for what scouts have found
ADDED = 4  # batches of live points that a dynamic run adds
WANTED = 0.5  # of the highest importance, above which live points are added
MOST_DRAWS = 2000


@dataclass(frozen=True)
class NestedSampling:
    """log Z by nested sampling, which first-order transitions do not stop.

    Without any rows the verdict is at best ``loose``; rows that lie where no live point ever was
    raise the upper end. ``details["draws"]`` are draws of the model, equally weighted.

    Arguments:
        live: Live points n; the error falls as one over the square root of n.
        batch: Points passed at once; a third of the live points if not given.
        dynamic: Begin with half of the live points, and add as many four times where they tell
            most.
        goal: What a dynamic run is to tell: "evidence" (log Z) or "posterior" (draws).
        remaining: Share of the mass that live points may still hold when the run ends.
        evaluations: Of the energy, after which it ends unfinished.
        level: Of the interval.
    """

    live: int = 400
    batch: int | None = None
    dynamic: bool = False
    goal: Literal["evidence", "posterior"] = "evidence"
    remaining: float = 1e-3
    evaluations: int = 20_000_000
    level: float = 0.95

    def __post_init__(self) -> None:
        name = "NestedSampling"
        check_count(name, "live", self.live, 2 * GROUPS)
        if self.batch is not None:
            check_count(name, "batch", self.batch, 1, self.live // 2)
        check_flag(name, "dynamic", self.dynamic)
        check_choice(name, "goal", self.goal, ("evidence", "posterior"))
        check_real(name, "remaining", self.remaining, 0.0, 0.5, open_low=True)
        check_count(name, "evaluations", self.evaluations)
        check_level(name, self.level)

    @torch.no_grad()
    def __call__(
        self, model: EnergyModel, *, rows: Tensor | None = None, generator: torch.Generator
    ) -> Quantity:
        check_parameters(
            "NestedSampling",
            model.title(),
            model.named_parameters(),
            "Fit it again with a lower learning_rate.",
        )
        model = prepared("NestedSampling", model, rows)
        target = Target("NestedSampling", model)
        climb = self._climbed(target, generator)
        ranks, points = torch.cat(climb.ranks), climb.points
        if self.dynamic:
            for _ in range(ADDED):
                points, more = self._added(target, points, climb.pace, generator)
                ranks = torch.cat([ranks, more])
        run = passed(points)
        q = self._quantity(target, climb, run, ranks, generator)
        drawn = q.details["draws"]
        q = reach_to_rounding(reach_to_tails("NestedSampling", q, model, drawn), model)
        known = model.anchor_rows(HEARD)
        q = q if known is None else self._heard(q, target, run, climb, known, generator)
        q = q if known is not None else without_rows(q, self.live)
        return replace(q, details={**q.details, "evaluations": target.evaluations})

    def _climbed(self, target: Target, generator: torch.Generator) -> Climb:
        """A run until little is left, and until scouts find no more above."""
        n = self.live // 2 if self.dynamic else self.live
        n = max(n, 2 * GROUPS)
        batch = min(self.batch or n // 3, n // 2)
        climb, until = begin(target, n, batch, GROUPS, generator), -math.inf
        for _ in range(GONE_ON):
            while (
                climb.highest() > climb.log_z + math.log(self.remaining)
                or climb.level.log_l < until
            ) and target.evaluations < self.evaluations:
                climb.step(generator)
            above, until = scouted(climb, self.evaluations, generator)
            if above < climb.log_z + math.log(10 * self.remaining):
                break
        return climb

    def _added(
        self, target: Target, points: Points, pace: Pace, generator: torch.Generator
    ) -> tuple[Points, Tensor]:
        """More points, born where those that there are tell too little, and their ranks."""
        run = passed(points)
        low, high = self._wanted(run)
        place = Level(float(run.points.log_l[low]), float(run.points.label[low]))
        n, N = max(self.live // 2, 2 * GROUPS), len(points.x)
        group = torch.arange(n, device=points.x.device) % GROUPS
        if low == 0:
            fresh = begin(target, n, 1, GROUPS, generator).points
        else:
            alive = (run.born <= low) & (torch.arange(N, device=group.device) >= low)
            pool = run.points.at(alive & place.below(run.points.log_l, run.points.label))
            some = pool.at(chosen(pool.group, group, generator))
            number = int(_number(points, run, low))
            fresh = Points(*some[:3], torch.full_like(group, number), group)
        live = torch.arange(N, N + n, device=group.device)
        climb = Climb(target, points.plus(fresh), live, min(self.batch or n // 3, n // 2), pace)
        if low > 0:
            climb.level = place
            climb.spread(generator)
        stop = float(run.points.log_l[high])
        while climb.level.log_l < stop and target.evaluations < self.evaluations:
            climb.step(generator)
        return climb.points, torch.cat([torch.zeros(0).to(climb.points.log_l), *climb.ranks])

    def _wanted(self, run: Passed) -> tuple[int, int]:
        """The range of points where another live point tells most (Higson et al. 2019): of the
        evidence by what lies above, of the posterior by the weight itself.
        """
        counts = run.counts()
        weights = torch.softmax(run.log_weights(counts), 0)
        if self.goal == "posterior":
            told = weights * counts / counts.double().mean()
        else:
            told = weights.flip(0).cumsum(0).flip(0) / counts
        told = torch.nn.functional.avg_pool1d(
            told[None], 2 * (len(told) // 100) + 1, 1, len(told) // 100
        )[0]
        where = (told >= WANTED * told.max()).nonzero()[:, 0]
        return int(where[0]), int(where[-1])

    def _quantity(
        self,
        target: Target,
        climb: Climb,
        run: Passed,
        ranks: Tensor,
        generator: torch.Generator,
    ) -> Quantity:
        log_w = run.log_weights(run.counts())
        log_z0 = float(target.reference.log_z)
        value = float(torch.logsumexp(log_w, 0))
        volumes = float(simulated(run, generator).std())
        groups = jackknife(left_out(run, GROUPS))
        se = max(volumes, groups)
        share = torch.exp(log_w - value)
        information = float(torch.where(share > 0, share * run.points.log_l, 0.0).sum()) - value
        ess = float(1 / share.square().sum())
        pick = rng.systematic(log_w, generator, max(1, min(MOST_DRAWS, int(ess))))
        draws, of = run.points.x[pick], run.points.group[pick]
        left = climb.highest() - climb.log_z
        clusters, reached = _reached(target, draws, of)
        p, kept = rank_p_value(ranks), float(np.mean(climb.pace.history))
        # Student's, for the error may come from few groups
        half = float(stdtrit(GROUPS - 1, 0.5 + self.level / 2)) * se
        verdict = worst(
            _at_most(se, SE_TIGHT, SE_LOOSE),
            _at_most(-p, -RANKS_TIGHT, -RANKS_LOOSE),
            _at_most(kept, KEPT_TIGHT, KEPT_LOOSE),
            _at_most(-reached, -REACHED_TIGHT, -REACHED_LOOSE),
            _at_most(left, math.log(1.01 * self.remaining), math.log(self.remaining) + 1),
        )
        details = {
            "se": se,
            "se_volumes": volumes,
            "se_groups": groups,
            "information": information,
            "ranks": p,
            "kept": kept,
            "steps": climb.pace.steps,
            "clusters": clusters,
            "reached": reached,
            "left": math.exp(min(left, 0.0)),
            "replacements": len(ranks),
            "live": self.live,
            "ess": ess,
            "draws": draws,
        }
        return Quantity(
            log_z0 + value,
            log_z0 + value - half,
            log_z0 + value + half,
            level=self.level,
            kind="estimate",
            method="nested sampling",
            verdict=verdict,
            details=details,
        )

    def _heard(
        self,
        q: Quantity,
        target: Target,
        run: Passed,
        climb: Climb,
        rows: Tensor,
        generator: torch.Generator,
    ) -> Quantity:
        """The quantity after rows were heard: the upper end reaches to what may lie where only
        rows were.
        """
        n = max(self.live // 2, 2 * GROUPS) if self.dynamic else self.live
        log_z0 = float(target.reference.log_z)
        left = q.value - log_z0 + math.log(10 * self.remaining)
        found = missed(target, contours(run, n), rows, climb.pace, left, generator)
        high = float(np.logaddexp(q.high, log_z0 + found.log_mass))
        details = {**q.details, "passed_by": found.rows, "added": high - q.high}
        verdict = worst(q.verdict, verdict_on_unseen(high - q.high))
        return replace(q, high=high, verdict=verdict, details=details)


def _number(points: Points, run: Passed, place: int) -> Tensor:
    """The number, in the order of birth, of a point that is known by its place among all."""
    same = (points.log_l == run.points.log_l[place]) & (points.label == run.points.label[place])
    return same.nonzero()[0, 0]


def _reached(target: Target, draws: Tensor, group: Tensor) -> tuple[int, int]:
    """Clusters of the draws that count, and the fewest groups that reached one of them."""
    if len(draws) < 4 * GROUPS:
        return 1, len(torch.unique(group))
    cluster = clustered(target, draws).cluster
    sizes = torch.bincount(cluster)
    heavy = (sizes >= COUNTS * len(draws)).nonzero()[:, 0]
    return len(heavy), min(len(torch.unique(group[cluster == k])) for k in heavy.tolist())


def _at_most(value: float, tight: float, loose: float) -> Verdict:
    if value <= tight:
        return "tight"
    return "loose" if value <= loose else "do not publish"
