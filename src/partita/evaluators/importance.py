r"""log p(x) of latent-variable models by importance sampling from the encoder: a lower bound in
expectation, tighter with every draw.

.. math:: \log \hat p_k(x) = \log \frac1k \sum_{i=1}^k w_i, \qquad E[\log \hat p_k(x)] \le \log p(x)
          (theory/latent_variables.md, eq. 41.6)

With a draw of the exact posterior beside the k, the average of all errs high (41.10). The two sides
of rows that the model draws, where that draw is known, and of rows on which it was sought, say how
far log p(x) lies above the bound. Where the encoder is too poor for that to be little, the draws
are taken from a mixture with the prior and with what restarts found (41.16), if its gap is smaller.
Processes that work together share out the rows.

Letters: N rows, k draws for each, w weights.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple
from zlib import crc32

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.arguments import check_count, check_flag, check_level
from partita.core.quantity import Quantity, Verdict, half_width
from partita.diagnostics.weights import MIN_ESS, REACH_LOOSE, REACH_TIGHT
from partita.evaluators.latent_gaps import (
    Above,
    Bound,
    Gap,
    auto_simulated,
    check_simulated,
    check_weights,
    conclude,
    gap_of,
    searched,
    simulated_rows,
    stratified,
)
from partita.evaluators.latent_proposals import FromEncoder, FromMixture, Proposal
from partita.runtime import processes

CELLS = 1 << 22  # rows x draws x columns at once
TRIED = 64  # simulated rows on which a mixture is tried where the encoder's two sides are far apart
FEW = 500  # rows, whose places are soon sought
SIMULATED_BY_ROW = 200  # where each row is scored by itself
Law = type[FromEncoder] | type[FromMixture]
Gaps = dict[str, Gap]


class Sums(NamedTuple):
    """What k weights of each row say: their log mean, and how many of them carry it."""

    log_mean: Tensor  # (N,), float64
    ess: Tensor  # (N,)
    log_half: Tensor  # (N,), the log mean of the first half alone

    def variance(self, k: int) -> Tensor:
        """Of each log mean, by the delta method."""
        return (1 / self.ess - 1 / k).clamp_min(0)


@dataclass(frozen=True)
class IWAE:
    """Mean lower bound per row from k draws of q(z | x), with an interval that is about log p(x)
    itself.

    The value errs low. The interval reaches down by the noise of the draws, and up by the larger of
    two gaps: of rows that the model draws (``details["gap"]``), and of some of the rows themselves
    (``details["gap_of_search"]``), whose posterior is sought by restarts. "tight" says that log
    p(x) lies at most a quarter of a nat above the value, "loose" a nat. Where a gap says more (of
    at most 500 rows, where it is not tight), k draws of a mixture of the encoder, the prior and the
    places that restarts find in each row are taken instead, if they leave less than half of it; a
    row then costs about ten times as much.

    Arguments:
        k: Draws for each row.
        simulated: Rows drawn from the model on which both sides are computed; by default as many as
            are scored, from 100 to 2,000, so that it costs as much as the bound. 0 leaves both gaps
            out; the interval is then the bound's own, and not to be published.
        by_row: Seed the draws of each row by the row itself, so that its score does not depend on
            which rows stand beside it; slower.
        level: Of the interval.
    """

    k: int = 128
    simulated: int | None = None
    by_row: bool = False
    level: float = 0.95

    def __post_init__(self) -> None:
        check_count("IWAE", "k", self.k, 2)
        check_simulated("IWAE", self.simulated)
        check_flag("IWAE", "by_row", self.by_row)
        check_level("IWAE", self.level)

    @torch.no_grad()
    def __call__(self, model: Any, x: Tensor, *, generator: torch.Generator) -> Quantity:
        capability.require("IWAE", model)
        x = x.to(model.like)
        # before anything that the rows have a say in
        key = rng.seed(generator) if self.by_row else 0
        law, gaps = self._choose(model, x, generator)
        if gaps:
            law, gaps = self._look(model, x, law, gaps, generator)
        sums = (
            self._by_row(model, x, law, key, generator)
            if self.by_row
            else weigh(model, x, self.k, generator, law)
        )
        check_weights(model, sums.log_mean)
        bound = Bound(
            sums.log_mean, math.sqrt(float(sums.variance(self.k).sum())) / len(x), cap(sums)
        )
        drawn = "" if law is FromEncoder else " of a mixture found by restarts"
        details = {"k": self.k, "ess_of_rows": float(sums.ess.median())}
        return conclude(
            model, x, bound, gaps, self.level, f"IWAE with {self.k} draws{drawn}", details
        )

    def _choose(self, model: Any, x: Tensor, generator: torch.Generator) -> tuple[Law, Gaps]:
        """What to draw from, by rows of the model alone, and its gap on them.

        Where their two sides are far apart, the mixture's are computed for the worst of them, and
        for some of the others.
        """
        n = auto_simulated(self.simulated, SIMULATED_BY_ROW if self.by_row else len(x))
        if not n:
            return FromEncoder, {}
        # or the score of a row would hang on the others
        rows = simulated_rows(model, n, None if self.by_row else x, generator)
        each = rows.gaps(self._sides(model, FromEncoder), generator)
        if self._reach(gap := gap_of(each)) <= REACH_TIGHT:
            return FromEncoder, {"gap": gap}
        tried = rows.some(each[0].argsort(descending=True)[_spread_out(n)]).gaps(
            self._three(model), generator
        )
        law, gap = self._better(
            gap, [stratified(part, n, min(n, TRIED // 2)) for part in tried], len(x)
        )
        return law, {"gap": gap}

    def _look(
        self, model: Any, x: Tensor, law: Law, gaps: Gaps, generator: torch.Generator
    ) -> tuple[Law, Gaps]:
        """The gap on some of the rows themselves, which may change what is drawn from too."""
        rows = searched(model, x, self.k, generator)
        gap = gap_of(rows.gaps(self._sides(model, law), generator))
        if law is FromEncoder and self._reach(gap) > REACH_TIGHT:
            tried = [gap_of(part) for part in rows.gaps(self._three(model), generator).chunk(2)]
            law, gap = self._better(gap, tried, len(x), fixed=self.by_row)
            if law is FromMixture:
                gaps = {
                    "gap": gap_of(
                        simulated_rows(model, TRIED, x, generator).gaps(
                            self._sides(model, FromMixture), generator
                        )
                    )
                }
        return law, {**gaps, "gap_of_search": gap}

    def _better(self, gap: Gap, tried: list[Gap], n: int, fixed: bool = False) -> tuple[Law, Gap]:
        """The encoder and the smaller of its gaps; a mixture, where that is much, and the mixture's
        own is less than half of it.

        Much is more than loose; where few rows are to be searched, more than tight.
        """
        gap = min(gap, tried[0], key=self._reach)
        much = REACH_TIGHT if n <= FEW and not self.by_row else REACH_LOOSE
        if not fixed and self._reach(gap) > much and self._reach(tried[1]) < self._reach(gap) / 2:
            return FromMixture, tried[1]
        return FromEncoder, gap

    def _reach(self, gap: Gap) -> float:
        return gap.reach(0.0, self.level)

    def _sides(self, model: Any, law: Law) -> Above:
        def gaps(x: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
            low, high = sides_at(model, x, z, self.k, generator, law)
            return high - low

        return gaps

    def _three(self, model: Any) -> Above:
        """From a mixture's upper side to the encoder's lower one, and to its own, one after the
        other ``(2 R, B)``.
        """

        def gaps(x: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
            low, high = sides_at(model, x, z, self.k, generator, FromMixture)
            return torch.cat([high - weigh(model, x, self.k, generator).log_mean, high - low])

        return gaps

    def _by_row(
        self, model: Any, x: Tensor, law: Law, key: int, generator: torch.Generator
    ) -> Sums:
        seeds = [rng.keyed(key, crc32(row.double().cpu().numpy().tobytes())) for row in x]

        def of(part: slice, _: torch.Generator) -> Sums:
            each = zip(x[part], seeds[part], strict=True)
            return joined(
                [weigh(model, row[None], self.k, _on(row, seed), law) for row, seed in each]
            )

        return joined(processes.shared_out(len(x), of, generator))


@torch.no_grad()
def weigh(
    model: Any, x: Tensor, k: int, generator: torch.Generator, law: Law = FromEncoder
) -> Sums:
    """The weights of k draws for each row, a few rows or draws at a time, ``(N, D)``; processes
    that work together share out the rows.
    """
    draws, size = _at_once(x, k)

    def of(part: slice, own: torch.Generator) -> Sums:
        return joined(
            [_weighed(law.of(model, rows, own), k, draws, own) for rows in x[part].split(size)]
        )

    return joined(processes.shared_out(len(x), of, generator))


def _at_once(x: Tensor, k: int) -> tuple[int, int]:
    """How many of k draws, for how many rows, are held at a time."""
    width = max(1, int((~x.isnan()).sum(-1).max()))  # of the longest row, where rows end early
    draws = max(1, min(k, CELLS // width))
    return draws, max(1, CELLS // (draws * width))


def joined(parts: list[Sums]) -> Sums:
    """Sums of rows one after the other."""
    return Sums(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _weighed(made: Proposal, k: int, draws: int, generator: torch.Generator) -> Sums:
    return sums_of(
        torch.cat(
            [made.log_weights(min(draws, k - done), generator) for done in range(0, k, draws)]
        )
    )


def sums_of(log_w: Tensor) -> Sums:
    """Of log weights ``(k, N)``."""
    total = torch.logsumexp(log_w, 0)
    ess = torch.exp(2 * total - torch.logsumexp(2 * log_w, 0))
    half = max(1, len(log_w) // 2)
    return Sums(
        total - math.log(len(log_w)), ess, torch.logsumexp(log_w[:half], 0) - math.log(half)
    )


@torch.no_grad()
def sides_at(
    model: Any, x: Tensor, z: Tensor, k: int, generator: torch.Generator, law: Law = FromEncoder
) -> tuple[Tensor, Tensor]:
    """The log mean of k weights, ``(B,)``, and that of the same k with one of a posterior draw
    beside them, ``(R, B)``.
    """
    parts, (draws, size) = [], _at_once(x, k)
    for rows, known in zip(x.split(size), z.split(size, 1), strict=True):
        made = law.of(model, rows, generator)
        low = _weighed(made, k, draws, generator).log_mean
        parts.append(
            (low, torch.logaddexp(made.log_weight(known), low + math.log(k)) - math.log(k + 1))
        )
    check_weights(model, low := torch.cat([part[0] for part in parts]))
    return low, torch.cat([part[1] for part in parts], 1)


@torch.no_grad()
def simulated_bounds(
    model: Any, n: int, k: int, *, level: float = 0.95, generator: torch.Generator
) -> tuple[Quantity, Quantity]:
    """The mean log-likelihood of ``n`` rows drawn from the model, from below with k draws, and from
    above with the known z beside them.
    """
    x, z = model.draw_joint(n, generator=generator)
    sides = processes.shared_out(
        n, lambda part, own: sides_at(model, x[part], z[None, part], k, own), generator
    )
    low, high = torch.cat([side[0] for side in sides]), torch.cat([side[1][0] for side in sides])
    return one_side(low, "lower", k, level), one_side(high, "upper", k, level)


def one_side(rows: Tensor, kind: Any, k: int, level: float) -> Quantity:
    """The mean over rows; its interval covers the draws of rows too, for they are the model's
    own.
    """
    value = float(rows.mean())
    se = float(rows.std()) / math.sqrt(len(rows)) if len(rows) > 1 else math.inf
    half = half_width(se, level)
    return Quantity(
        value,
        value - half,
        value + half,
        level,
        kind,
        "nats",
        f"simulated rows, {k} draws",
        len(rows),
        se,
        direction="low" if kind == "lower" else "high",
        details={"rows": rows},
    )


def _spread_out(n: int) -> Tensor:
    """Of n places the first TRIED / 2, and as many at even distances among the others.

    >>> _spread_out(40).tolist() == list(range(40)), len(_spread_out(1000))
    (True, 64)
    """
    worst = min(n, TRIED // 2)
    others = torch.linspace(worst, n - 1, min(n, TRIED) - worst, dtype=torch.float64).round().long()
    return torch.cat([torch.arange(worst), others])


def cap(sums: Sums) -> Verdict:
    """The best verdict that the draws allow: where few of them count, or their second half still
    gained a nat, the error means little.
    """
    if float((sums.log_mean - sums.log_half).mean()) > REACH_LOOSE:
        return "do not publish"
    return "tight" if float(sums.ess.median()) >= MIN_ESS else "loose"


def _on(like: Tensor, generator: torch.Generator) -> torch.Generator:
    """The generator on the device of ``like``."""
    return (
        generator
        if like.device.type == "cpu"
        else torch.Generator(like.device).manual_seed(generator.initial_seed())
    )
