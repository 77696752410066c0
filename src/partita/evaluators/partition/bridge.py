r"""Bennett's acceptance ratio: the best combination of draws from both ends of a step (Bennett
1976).

.. math:: \sum_i \frac{1}{1 + \frac{n_f}{n_r} e^{\Delta - w_i}} = \sum_j \frac{1}{1 +
          \frac{n_r}{n_f} e^{-\Delta - w'_j}},
          \qquad \Delta = \log (Z_1 / Z_0)          (theory/scoring.md, eq. 5.6)

Between two annealings (the sandwich) w and w' are their log weights; between neighboring rungs of a
ladder in equilibrium they are energy differences at the draws.

Letters: C chains, T temperatures, n draws.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from scipy.optimize import brentq
from scipy.special import stdtrit
from torch import Tensor

from partita.core import rng
from partita.core.arguments import check_count
from partita.core.protocols import EnergyModel, Sampler
from partita.core.quantity import Quantity, Verdict, worst
from partita.diagnostics.chains import summarize_chains
from partita.errors import Diverged
from partita.evaluators.partition.annealing import check_annealing, resolve_kernel, temperatures_for
from partita.evaluators.partition.difference import Between
from partita.evaluators.partition.ladders import Ladders, Seen
from partita.evaluators.partition.modes import sought
from partita.evaluators.partition.rounding import prepared, reach_to_rounding
from partita.evaluators.partition.tails import reach_to_tails
from partita.evaluators.partition.witnesses import HARDER, hardness, heard_by_modes

OVERLAP_TIGHT, OVERLAP_LOOSE = 0.10, 0.02  # share of draws that neighboring rungs have in common
# standard errors between the halves of the run, and between ladders from both ends
DRIFT_TIGHT, DRIFT_LOOSE = 2.0, 3.0
TRAVELED = 0.5  # share of the ladders in which a replica has made a round trip
# nats; the error is linear in the chains' influence, which holds only where it is small
SE_TIGHT, SE_LOOSE = 0.5, 1.0
REACHED = 96  # states that ladders reached, from which chains come down


class Ratio(NamedTuple):
    """log(Z1 / Z0) with its standard error and the overlap of the two ends, between 0 and 1."""

    value: float
    se: float
    overlap: float


def acceptance_ratio(forward: Tensor, reverse: Tensor) -> Ratio:
    """Bennett's estimate from log weights of draws at the lower end ``(n,)`` and, with opposite
    sign, at the upper ``(m,)``.
    """
    w, v = forward.double().cpu(), reverse.double().cpu()
    shift = math.log(len(w) / len(v))

    def balance(delta: float) -> float:
        return float(
            torch.sigmoid(w - delta - shift).sum() - torch.sigmoid(v + delta + shift).sum()
        )

    ends = torch.cat([w, -v])
    ends = ends[ends.isfinite()]  # zero density at one end says nothing of the other
    if not len(ends):
        raise Diverged(
            "log Z: no state of either end has a density at the other. Give more of both."
        )
    # from the middle outward: a few ends may be so far away that no digits are left
    center, reach = float(ends.median()), abs(shift) + 1.0
    while balance(center - reach) < 0 or balance(center + reach) > 0:
        reach *= 2
    low, high = center - reach, center + reach
    delta: float = brentq(balance, low, high, xtol=1e-10)  # type: ignore[assignment]
    f, r = torch.sigmoid(w - delta - shift), torch.sigmoid(v + delta + shift)
    variance = _relative_variance(f) / len(f) + _relative_variance(r) / len(r)
    return Ratio(delta, math.sqrt(variance), float(2 * torch.minimum(f.mean(), r.mean())))


def _relative_variance(values: Tensor) -> float:
    return float(values.var(correction=0) / values.mean().square().clamp_min(1e-300))


@dataclass(frozen=True)
class Bridge:
    """log Z from a tempered ladder in equilibrium, Bennett's ratio between each two neighbors.

    Half of the ladders begin at the reference, half in modes: rows that a fitted model remembers,
    or ``rows``, and modes that were sought. Without any rows the verdict is at best ``loose``.

    Arguments:
        temperatures: Rungs of the ladder.
        chains: Independent ladders C; their spread gives the interval.
        draws: States of each ladder that are used.
        burn_in: Steps before them.
        kernel: Moves each rung; chosen by the capability table if not given.
        level: Of the interval.
    """

    temperatures: int = 24
    chains: int = 32
    draws: int = 400
    burn_in: int = 200
    kernel: Sampler | None = None
    level: float = 0.95

    def __post_init__(self) -> None:
        check_annealing("Bridge", self.temperatures, self.chains, self.level)
        check_count("Bridge", "draws", self.draws, 4)
        check_count("Bridge", "burn_in", self.burn_in, 0)

    def __call__(
        self, model: EnergyModel, *, rows: Tensor | None = None, generator: torch.Generator
    ) -> Quantity:
        model = prepared("Bridge", model, rows)
        kernel = resolve_kernel("Bridge", self.kernel, model, generator=generator)
        found = sought(model, kernel, generator)
        seen = self.look(model, kernel, found, generator=generator)
        q = ladder_quantity(seen, float(model.reference().log_z), self.level)
        betas = temperatures_for(model, kernel, None, generator=generator)
        reached = seen.reached(REACHED, generator)
        last = model.last if isinstance(model, Between) else model
        q = reach_to_rounding(reach_to_tails("Bridge", q, last, reached), model)
        hardest = hardness(model, kernel, betas, reached, generator)
        q = heard_by_modes(q, model, kernel, betas, found, hardest + HARDER, REACHED, generator)
        return q if q.details["added"] == 0 else replace(q, verdict="do not publish")

    def ratio(self, a: EnergyModel, b: EnergyModel, *, generator: torch.Generator) -> Quantity:
        """log Z_a - log Z_b of two models on one support, along the path (1 - beta) F_b + beta F_a
        between them.
        """
        return self(Between(b, a), generator=generator)

    def look(
        self, model: EnergyModel, kernel: Sampler, found: Tensor, *, generator: torch.Generator
    ) -> Seen:
        """Run the ladders and keep what they show: a fourth begin at modes that were ``found``, a
        fourth at rows if any are known.
        """
        betas = torch.unique(
            temperatures_for(model, kernel, self.temperatures, generator=generator)
        )
        rows, each = model.anchor_rows(self.chains), torch.arange(self.chains)
        modes = found[rng.permutation(len(found), generator)[each % len(found)]]
        modes = (
            modes
            if rows is None
            else torch.where((each % 4 == 3)[:, None].to(modes.device), modes, rows)
        )
        ladders = Ladders(model, kernel, betas, modes, generator)
        ladders.go_on(self.burn_in + self.draws, generator)
        return ladders.seen(self.burn_in)


def ladder_quantity(seen: Seen, log_z0: float, level: float) -> Quantity:
    """log Z from what independent ladders show; the interval reaches over both ends where ladders
    that began there disagree.
    """
    traveled = float((seen.trips.sum(0) > 0).double().mean()) >= TRAVELED
    together = seen.from_modes[0].long().argsort(stable=True)  # ladders that began alike
    report = summarize_chains(seen.energies[:, together].movedim(0, -1), redrawn=traveled)
    (delta, se, overlap), drift, ends = (
        ladder_ratio(seen.up, seen.down),
        drift_between_halves(seen.up, seen.down),
        both_ends(seen),
    )
    rungs, chains = seen.trips.shape
    # Student's, for the error comes from few ladders
    half = float(stdtrit(chains - 1, 0.5 + level / 2)) * se
    reach = [delta - half, delta + half, *(ends.values if ends.apart >= DRIFT_LOOSE else ())]
    verdict = worst(
        report.verdict, _verdict(overlap, drift, se), _verdict_on_travel(traveled, ends.apart)
    )
    details = {
        "overlap": overlap,
        "drift": drift,
        "ends": ends.apart,
        "round_trips": int(seen.trips.sum()),
        "rhat": report.rhat,
        "ess": report.ess,
        "mixing": report.finding,
        "chains": chains,
        "temperatures": rungs,
        "se": se,
    }
    return Quantity(
        log_z0 + delta,
        log_z0 + min(reach),
        log_z0 + max(reach),
        level=level,
        kind="estimate",
        method="Bennett's ratio on a tempered ladder",
        verdict=verdict,
        details=details,
    )


class Ends(NamedTuple):
    """What ladders from the reference and ladders from modes say, and how many standard errors lie
    between; nan without one of them.
    """

    values: tuple[float, ...]
    apart: float


def both_ends(seen: Seen) -> Ends:
    """The ratios of the two kinds of ladders, where there are two of each."""
    kinds = [seen.from_modes[0] == kind for kind in (False, True)]
    if min(int(kind.sum()) for kind in kinds) < 2:
        return Ends((), math.nan)
    up, down = (ladder_ratio(seen.up[:, kind], seen.down[:, kind]) for kind in kinds)
    return Ends((up.value, down.value), _apart(up, down))


def ladder_ratio(up: Tensor, down: Tensor) -> Ratio:
    """Sum of the neighbors' ratios; its error comes from the spread of the C independent ladders'
    influence on the sum.
    """
    steps = [acceptance_ratio(u.flatten(), d.flatten()) for u, d in zip(up, down, strict=True)]
    influence = sum(
        _influence(u, d, step.value) for u, d, step in zip(up, down, steps, strict=True)
    )
    chains = up.shape[1]
    se = math.sqrt(float(torch.as_tensor(influence).square().sum()) * chains / (chains - 1))
    return Ratio(sum(step.value for step in steps), se, min(step.overlap for step in steps))


def drift_between_halves(up: Tensor, down: Tensor) -> float:
    """How far the ratio of the first half of the draws is from that of the second, in standard
    errors: near one in equilibrium.
    """
    half = up.shape[-1] // 2
    first = ladder_ratio(up[..., :half], down[..., :half])
    second = ladder_ratio(up[..., half:], down[..., half:])
    return _apart(first, second)


def _apart(a: Ratio, b: Ratio) -> float:
    return abs(a.value - b.value) / max(math.hypot(a.se, b.se), 1e-12)


def _influence(up: Tensor, down: Tensor, delta: float) -> Tensor:
    """How far each chain moves the solution of Bennett's equation, ``(C, n), (C, n) -> (C,)``."""
    f, r = torch.sigmoid(up - delta), torch.sigmoid(down + delta)
    slope = (f * (1 - f)).sum() + (r * (1 - r)).sum()
    return (f.sum(1) - r.sum(1)) / slope.clamp_min(1e-300)


def _verdict(overlap: float, drift: float, se: float) -> Verdict:
    """Neighbors must overlap, the two halves of the run must agree, and the error must be small."""
    if overlap >= OVERLAP_TIGHT and drift < DRIFT_TIGHT and se < SE_TIGHT:
        return "tight"
    return (
        "loose"
        if overlap >= OVERLAP_LOOSE and drift < DRIFT_LOOSE and se < SE_LOOSE
        else "do not publish"
    )


def _verdict_on_travel(traveled: bool, apart: float) -> Verdict:
    """States must travel between the ends of the ladder, or else ladders that began at both must
    agree; they may never contradict.
    """
    if apart >= DRIFT_LOOSE or (not traveled and math.isnan(apart)):
        return "do not publish"
    return "tight" if traveled and not apart >= DRIFT_TIGHT else "loose"
