r"""Rows that nested sampling passed by: what a region may hold in which no live point ever was.

.. math:: Z_A \le \frac3n \, Z_0\, X(\ell_c)\; E\big[ e^{\ell} \mid A,\, \ell > \ell_c \big]
          (theory/scoring.md, eq. 5.54)

A row is compared with the n points that were alive at its contour. Chains from it, held above that
contour, should come to lie as near to the live points as these lie to one another. If they do not,
the contour is lowered, an e-fold of volume at a time, until they do: at the last contour l_c at
which they did not, none of n points lay in the row's region A, so its share of the volume is at
most 3 / n with 95 % confidence. A short climb from there gives the mean likelihood within A.

Letters: n live points, D visible.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from partita.core import rng
from partita.evaluators.partition.nested.constrained import (
    BOTTOM,
    Level,
    Places,
    Target,
    clustered,
    moved,
)
from partita.evaluators.partition.nested.live_points import Climb, Pace
from partita.evaluators.partition.nested.volumes import Passed, Points

HEARD = 48  # rows at most
COPIES = 8  # chains from each row that seems far
SEEMS, FAR = 0.9, 0.9  # quantiles of the distances between live points beyond which a row is far
AWAY = 5  # of its copies that must be far after moving: 4e-4 by chance
SCOUTS = 32  # live points of a short climb
MOST_CLIMBS = 4  # regions that are climbed
RULE_OF_THREE = 3.0
QUICKLY = 0.5  # of the steps of a run
DEEPER = 30.0  # nats by which what is left must fall before a scout turns back


class Contours(NamedTuple):
    """Contours of a run, an e-fold of volume apart, from the reference upward."""

    run: Passed
    places: Tensor  # (J,), numbers of points
    log_x: Tensor  # (J,)

    def level(self, j: int) -> Level:
        if j < 0:
            return BOTTOM
        i = int(self.places[j])
        return Level(float(self.run.points.log_l[i]), float(self.run.points.label[i]))

    def alive(self, j: int) -> Tensor:
        """Points alive just above a contour, ``(n, D)``."""
        i = int(self.places[j]) if j >= 0 else -1
        later = torch.arange(len(self.run.born), device=self.run.born.device) > i
        return self.run.points.x[later & (self.run.born <= i + 1)]

    def log_volume(self, j: int) -> float:
        return float(self.log_x[j]) if j >= 0 else 0.0


def contours(run: Passed, live: int) -> Contours:
    """As far as at least half as many points as at first are alive."""
    counts = run.counts()
    log_x = -(1 / counts.double()).cumsum(0)
    enough = (counts >= max(2, live // 2)).nonzero()[:, 0]
    last = int(enough[-1]) if len(enough) else 0
    folds = torch.arange(1, int(-float(log_x[last])) + 1).to(log_x)
    places = torch.searchsorted(-log_x[: last + 1].contiguous(), folds).clamp_max(last)
    places = torch.cat([places, places.new_tensor([last])])
    return Contours(run, places, log_x[places])


class Missed(NamedTuple):
    """log of what regions may hold in which no live point was, over Z_0, and how many rows lie
    there.
    """

    log_mass: float
    rows: int


def missed(
    target: Target,
    lines: Contours,
    rows: Tensor,
    pace: Pace,
    left: float,
    generator: torch.Generator,
) -> Missed:
    """What rows show that the run never saw; ``left`` is log of what may be neglected."""
    x = torch.unique(rows, dim=0)
    x = x[rng.permutation(len(x), generator)[:HEARD].to(x.device)]
    at = Places(x, target.log_likelihood(x), torch.ones(len(x)).to(x).double())
    at = at.at(at.log_l > -math.inf)
    away = _stopped(target, lines, at, pace, left, generator)
    masses, found = [-math.inf], 0
    for j in sorted(away, reverse=True)[:MOST_CLIMBS]:
        starts = away[j]
        found += len(starts.x) // COPIES
        n = len(lines.alive(j))
        share = lines.log_volume(j) + math.log(min(1.0, RULE_OF_THREE / n))
        masses.append(share + _mean_above(target, starts, lines.level(j), pace, generator))
    return Missed(float(torch.logsumexp(torch.tensor(masses, dtype=torch.float64), 0)), found)


def _stopped(
    target: Target, lines: Contours, at: Places, pace: Pace, left: float, generator: torch.Generator
) -> dict[int, Places]:
    """Copies of rows that were passed by, under the number of the last contour at which they were
    far from all live points; all rows go down together.
    """
    found: dict[int, Places] = {}
    last = len(lines.places) - 1
    heights = lines.run.points.log_l[lines.places].contiguous()
    start = (torch.searchsorted(heights, at.log_l) - 1).clamp_max(last)  # the contour below each
    share = lines.log_volume(last) + math.log(RULE_OF_THREE / len(lines.alive(last)))
    beyond = (at.log_l > lines.run.points.log_l.max()) & (at.log_l + share > left)
    if bool(beyond.any()):
        found[last] = _copied(at, beyond.nonzero()[:, 0])
    going = _copied(at, start.new_empty(0))
    for j in range(last, -1, -1):
        here = ((start == j) & ~beyond).nonzero()[:, 0]
        here = here[_far(target, at.x[here], lines.alive(j), SEEMS)]
        before, going = len(going.x), going.plus(_copied(at, here))
        if not len(going.x):
            continue
        stay, going = going, _held(target, going, lines, j, pace, generator)
        far = _far(target, going.x, lines.alive(j), FAR).view(-1, COPIES).sum(1) >= AWAY
        far = far.repeat_interleave(COPIES)
        near = ~far
        near[before:] = False  # rows that were never far are no rows that were passed by
        if bool(near.any()):
            some = stay.at(near)
            found[j + 1] = found[j + 1].plus(some) if j + 1 in found else some
        going = going.at(far)
    if len(going.x):
        found[0] = found[0].plus(going) if 0 in found else going
    return found


def _copied(at: Places, rows: Tensor) -> Places:
    return at.at(rows.repeat_interleave(COPIES))


def _held(
    target: Target, at: Places, lines: Contours, j: int, pace: Pace, generator: torch.Generator
) -> Places:
    """Chains moved above contour ``j`` along directions of the points alive there and of their own
    spread.
    """
    around = clustered(target, lines.alive(j))
    cluster = torch.randint(around.clusters, (len(at.x),), generator=generator, device=at.x.device)
    steps = max(1, round(pace.steps))
    return moved(target, at, lines.level(j), around, cluster, steps, pace.width, generator).to


def _far(target: Target, x: Tensor, alive: Tensor, quantile: float) -> Tensor:
    """Whether points are farther from all that are alive than most of these from one another."""
    alive, x = (alive / target.scale).double(), (x / target.scale).double()
    between = torch.cdist(alive, alive).fill_diagonal_(math.inf).amin(1)
    return torch.cdist(x, alive).amin(1) > between.quantile(quantile)


def _mean_above(
    target: Target, starts: Places, level: Level, pace: Pace, generator: torch.Generator
) -> float:
    """log of the mean likelihood above a level in the region of ``starts``, by a short climb."""
    pick = torch.randint(len(starts.x), (SCOUTS,), generator=generator, device=starts.x.device)
    group = torch.arange(SCOUTS, device=pick.device)
    points = Points(*starts.at(pick), torch.full_like(group, -1), torch.zeros_like(group))
    climb = Climb(target, points, group, SCOUTS // 4, _quicker(pace), level)
    climb.spread(generator)
    while climb.highest() > climb.log_z + math.log(1e-2):
        climb.step(generator)
    return climb.log_z


def _quicker(pace: Pace) -> Pace:
    steps = max(1.0, QUICKLY * pace.steps)
    return Pace(steps, steps, pace.width)


def scouted(climb: Climb, most: int, generator: torch.Generator) -> tuple[float, float]:
    """What a few of the live points find far above where the run would end: log of the mass there,
    over Z_0, and the likelihood up to which the run has to go on for it; at ``most`` so many
    evaluations in all.
    """
    order = rng.permutation(len(climb.live), generator).to(climb.live.device)
    some = climb.points.at(climb.live[order[:SCOUTS]])
    fresh = Points(some.x, some.log_l, some.label, torch.full_like(some.birth, -1), some.group * 0)
    numbers = torch.arange(len(fresh.x), device=some.x.device)
    scout = Climb(
        climb.target, fresh, numbers, max(1, len(numbers) // 4), _quicker(climb.pace), climb.level
    )
    scout.log_x, floor = climb.log_x, climb.log_z - DEEPER
    heights, masses = [], []
    while scout.highest() > max(floor, scout.log_z - DEEPER) and scout.target.evaluations < most:
        scout.step(generator)
        heights.append(scout.level.log_l)
        masses.append(scout.log_z)
    if not masses:
        return -math.inf, -math.inf
    total = masses[-1]
    until = next(h for h, m in zip(heights, masses, strict=True) if m > total - 1e-2)
    return total, until
