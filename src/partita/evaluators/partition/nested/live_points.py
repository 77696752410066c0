r"""Live points climb the likelihood: the K lowest are passed at once, and as many are born above
them.

.. math:: n_j = n,\, n - 1,\, \dots,\, n - K + 1 \text{ within a batch}, \qquad
          E[\log X] \leftarrow E[\log X] - \sum_{j=0}^{K-1} \frac{1}{n - j}
          (theory/scoring.md, eq. 5.52)

A new point begins at a survivor of its own group and moves above the contour for as many steps as
it takes to forget where it began. The groups never see one another but for the contour and the
directions of moves, so that leaving out one at a time shows the whole error, that of moves which do
not forget included.

Letters: n live points, K passed at once, G groups, D visible.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from partita.evaluators.partition.nested.constrained import (
    BOTTOM,
    TRIALS,
    Level,
    Places,
    Surroundings,
    Target,
    clustered,
    moved,
)
from partita.evaluators.partition.nested.volumes import Points, sequential_ranks

FORGOTTEN = 0.15  # correlation between where a chain begins and ends that is aimed at
LONGER, SHORTER = 1.15, 1.03  # by which steps change
MOST_STEPS = 20  # times the coordinates (slices), or sweeps
SPREADING = 3  # moves that take live points apart which began at one place
MEMORY = 0.9  # of averages over batches


@dataclass
class Pace:
    """How chains move: steps, the length of brackets, and what is remembered of their starts."""

    steps: float
    most: float
    width: float
    kept: float = FORGOTTEN  # running correlation between starts and ends
    history: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, target: Target) -> "Pace":
        D = int(target.real.sum())
        return cls(
            max(3.0, 1.5 * D) if D else 2.0, MOST_STEPS * max(1, D), 4 / math.sqrt(max(D, 1))
        )

    def learn(self, kept: float, trials: float) -> None:
        """From the correlation of one batch, and the evaluations that a slice took."""
        self.history.append(kept)
        self.kept = MEMORY * self.kept + (1 - MEMORY) * kept
        self.steps *= LONGER if self.kept > FORGOTTEN else 1 / SHORTER
        self.steps = min(self.most, max(1.0, self.steps))
        self.width *= math.exp(max(-0.1, min(0.1, 0.1 * (TRIALS - trials))))


@dataclass
class Climb:
    """Live points on their way up, and all that they passed."""

    target: Target
    points: Points
    live: Tensor  # (n,), numbers of points
    batch: int
    pace: Pace
    level: Level = BOTTOM
    log_x: float = 0.0
    log_z: float = -math.inf  # over Z_0
    ranks: list[Tensor] = field(default_factory=list)
    around: Surroundings | None = None
    age: int = 0  # points passed since clusters were found
    idle: int = 0  # chains that never moved
    born: int = 0

    def highest(self) -> float:
        """log of the most that the live points can hold."""
        return float(self.points.log_l[self.live].max()) + self.log_x

    def step(self, generator: torch.Generator) -> None:
        """Pass the lowest live points and give birth to as many above them."""
        log_l, label = self.points.log_l[self.live], self.points.label[self.live]
        by_label = label.argsort(stable=True)
        order = by_label[log_l[by_label].argsort(stable=True)]
        gone, rest = self.live[order[: self.batch]], self.live[order[self.batch :]]
        self._account(self.points.log_l[gone])
        last = gone[-1]
        self.level = Level(float(self.points.log_l[last]), float(self.points.label[last]))
        self._give_birth(rest, self.points.group[gone], int(last), generator)

    def spread(self, generator: torch.Generator) -> None:
        """Move all live points above the level, each along the directions of all."""
        for _ in range(SPREADING):
            around = clustered(self.target, self.points.x[self.live])
            steps = max(1, round(self.pace.steps))
            at = Places(*self.points[:3]).at(self.live)
            to = moved(
                self.target,
                at,
                self.level,
                around,
                around.cluster,
                steps,
                self.pace.width,
                generator,
            ).to
            for part, new in zip(self.points[:3], to, strict=True):
                part[self.live] = new

    def _account(self, log_l: Tensor) -> None:
        n = len(self.live)
        log_t = -1 / (n - torch.arange(len(log_l), dtype=torch.float64))
        log_x = self.log_x + log_t.cumsum(0)
        shells = log_l.cpu() + log_x - log_t + torch.log(-torch.expm1(log_t))
        self.log_z = float(torch.logsumexp(torch.cat([shells, torch.tensor([self.log_z])]), 0))
        self.log_x = float(log_x[-1])

    def _give_birth(
        self, rest: Tensor, group: Tensor, birth: int, generator: torch.Generator
    ) -> None:
        if self.around is None or self.age >= len(rest):
            self.around, self.age = clustered(self.target, self.points.x[rest]), 0
        self.age += len(group)
        start = chosen(self.points.group[rest], group, generator)
        at = Places(*self.points[:3]).at(rest[start])
        around = Surroundings(self.points.x[rest], self._clusters_of(self.points.x[rest]))
        steps = max(1, round(self.pace.steps))
        to, trials = moved(
            self.target,
            at,
            self.level,
            around,
            around.cluster[start],
            steps,
            self.pace.width,
            generator,
        )
        self.pace.learn(self._correlation(at, to, around, start), trials)
        self.idle += int((to.x == at.x).all(-1).sum())
        self.born += len(group)
        old = (self.points.log_l[rest], self.points.label[rest])
        rank = sequential_ranks(old, (to.log_l, to.label))
        self.ranks.append(rank)
        N = len(self.points.group)
        births = torch.full_like(group, birth)
        self.points = self.points.plus(Points(*to, births, group))
        self.live = torch.cat([rest, torch.arange(N, N + len(group), device=rest.device)])

    def _clusters_of(self, x: Tensor) -> Tensor:
        """Clusters of points, by the nearest of those that clusters were found among."""
        assert self.around is not None
        if self.around.clusters == 1:
            return torch.zeros(len(x), dtype=torch.long, device=x.device)
        scale = self.target.scale
        nearest = torch.cdist(x / scale, self.around.x / scale).argmin(1)
        return torch.unique(self.around.cluster[nearest], return_inverse=True)[1]

    def _correlation(self, at: Places, to: Places, around: Surroundings, start: Tensor) -> float:
        """Between starts and ends: of coordinates about the center of the cluster, and of the
        order by likelihood, whichever is larger.
        """
        means = around.means()
        scale = (around.x - means[around.cluster]).std(0)
        # a coordinate that is alike everywhere, but for rounding of its mean, tells nothing
        alike = scale <= 1e3 * torch.finfo(scale.dtype).eps * around.x.abs().amax(0)
        scale = scale.masked_fill(alike, math.inf)
        center = means[around.cluster[start]]
        a, b = ((place.x - center) / scale for place in (at, to))
        by_place = (a * b).sum() / (a.square().sum() * b.square().sum()).sqrt().clamp_min(1e-30)
        ranks = torch.stack([p.log_l.argsort().argsort().double() for p in (at, to)])
        by_height = torch.corrcoef(ranks)[0, 1] if len(at.x) > 2 else ranks.new_zeros(())
        # of so few ranks the correlation is mostly chance
        slack = 1 / math.sqrt(len(at.x))
        return max(float(by_place), float(torch.nan_to_num(by_height)) - slack)


def chosen(available: Tensor, wanted: Tensor, generator: torch.Generator) -> Tensor:
    """For each wanted group a random member, any where it has none, ``(n,), (K,) -> (K,)``."""
    fits = (available == wanted[:, None]).double() + 1e-12
    return torch.multinomial(fits, 1, generator=generator)[:, 0]


def begin(target: Target, n: int, batch: int, groups: int, generator: torch.Generator) -> Climb:
    """Live points drawn from the reference."""
    places = target.begin(n, generator)
    group = torch.arange(n, device=places.x.device) % groups
    points = Points(*places, torch.full_like(group, -1), group)
    return Climb(target, points, torch.arange(n, device=group.device), batch, Pace.of(target))
