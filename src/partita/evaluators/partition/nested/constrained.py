r"""Moves that leave the reference, cut to where the likelihood is above a contour, as it is.

.. math:: p(x, u) \propto e^{-F_0(x)}\, 1\big[ (\ell(x), u) > (\ell^*, u^*) \big], \qquad
          \ell(x) = F_0(x) - F(x)          (theory/scoring.md, eq. 5.50)

Every point carries a uniform label u, by which equal likelihoods are ordered: plateaus and discrete
supports need nothing else. Real coordinates move by slices along random directions: those in which
the live points of a cluster spread, differences of any two, and those of the reference. Other
coordinates are drawn anew, one after the other, from the reference, which must be a product there.

Letters: K chains, n live points, D visible.
"""

import math
from typing import NamedTuple

import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.nn import functional

from partita.core import rng
from partita.core.protocols import EnergyModel
from partita.core.support import Product, Real, Sequence, Support
from partita.errors import Unsupported
from partita.evaluators.partition.truncation import CutReference

SPREAD, PAIRS = 0.8, 0.1  # shares of directions: spread of a cluster, differences of any two
TRIALS = 3.0  # evaluations that a slice should take, by which brackets are scaled
SHRUNK = 1e-10  # of a bracket below which a slice is given up
AT_A_TIME = 8  # trials after which chains that have arrived are set aside
ADDITIVE = 1e-3  # nats by which a product may fail to be one, by rounding
MOST_CLUSTERED = 512  # points that are compared with one another


class Level(NamedTuple):
    """A contour: a likelihood, and the label that breaks ties."""

    log_l: float
    label: float

    def below(self, log_l: Tensor, label: Tensor) -> Tensor:
        """Whether points lie above it, ``(n,)``."""
        return (log_l > self.log_l) | ((log_l == self.log_l) & (label > self.label))


BOTTOM = Level(-math.inf, -1.0)


class Places(NamedTuple):
    """Points with their likelihoods and labels."""

    x: Tensor  # (n, D)
    log_l: Tensor  # (n,), float64
    label: Tensor  # (n,), float64

    def at(self, index: Tensor) -> "Places":
        return Places(self.x[index], self.log_l[index], self.label[index])

    def plus(self, more: "Places") -> "Places":
        return Places(*(torch.cat(pair) for pair in zip(self, more, strict=True)))


class Target:
    """A model as nested sampling sees it: a reference to draw from and a likelihood to climb."""

    def __init__(self, owner: str, model: EnergyModel) -> None:
        reference = model.reference()
        # what it forbids has likelihood zero
        self.base = reference.base if isinstance(reference, CutReference) else reference
        self.model, self.reference, self.evaluations = model, reference, 0
        self.real = real_columns(model.support).to(model.like.device)
        drawn = self.base.draw(MOST_CLUSTERED, generator=_fixed(model))
        self.scale = drawn.std(0).clamp_min(1e-6 * float(drawn.std().clamp_min(1e-30)))
        if not bool(self.real.all()):
            self._check_product(owner, drawn)

    def _check_product(self, owner: str, drawn: Tensor) -> None:
        """Two draws that exchange a coordinate must keep the sum of their energies."""
        a, b = drawn[::2], drawn[1::2]
        swap = torch.rand(a.shape, generator=_fixed(self.model), device=a.device) < 0.5
        swap[:, self.real] = swap[:, self.real][:, :1]
        mixed = (torch.where(swap, b, a), torch.where(swap, a, b))
        before, after = (
            sum(self.base.free_energy(x).double() for x in two) for two in ((a, b), mixed)
        )
        size = 1 + float(torch.as_tensor(before).abs().max())
        if float((torch.as_tensor(before) - after).abs().max()) > ADDITIVE * size:
            raise Unsupported(
                f"{owner} cannot run on {self.model.title()}: its reference is no product of "
                "independent coordinates. Use Sandwich instead."
            )

    def log_likelihood(self, x: Tensor, energy: Tensor | None = None) -> Tensor:
        """F_0 - F in float64, minus infinity where the model forbids a state; ``energy`` is F_0
        where it is known.
        """
        self.evaluations += len(x)
        energy = self.base.free_energy(x) if energy is None else energy
        gain = (energy - self.model.free_energy(x)).double()
        return torch.nan_to_num(gain, -math.inf, math.inf, -math.inf)

    def begin(self, n: int, generator: torch.Generator) -> Places:
        """Exact draws of the reference."""
        x = self.reference.draw(n, generator=generator)
        return Places(x, self.log_likelihood(x), _labels(n, x, generator))


def real_columns(support: Support) -> Tensor:
    """Which coordinates are real numbers, ``(D,)``."""
    if isinstance(support, Product):
        return torch.cat([real_columns(part) for part in support.parts])
    if isinstance(support, Sequence):
        return real_columns(support.element).repeat(support.L)
    return torch.full((support.width,), isinstance(support, Real))


def _fixed(model: EnergyModel) -> torch.Generator:
    return torch.Generator(model.like.device).manual_seed(1409)


def _labels(n: int, like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(n, generator=generator, device=like.device, dtype=torch.float64)


def _relabeled(at: Places, level: Level, generator: torch.Generator) -> Tensor:
    """Labels drawn anew, given where the points are."""
    low = torch.where(at.log_l == level.log_l, max(level.label, 0.0), 0.0)
    return low + (1 - low) * _labels(len(low), at.x, generator)


class Surroundings(NamedTuple):
    """The live points that directions are made of, and the clusters they form."""

    x: Tensor  # (n, D)
    cluster: Tensor  # (n,)

    @property
    def clusters(self) -> int:
        return int(self.cluster.max()) + 1

    def means(self) -> Tensor:
        """Centers of the clusters, ``(k, D)``."""
        members = functional.one_hot(self.cluster, self.clusters).to(self.x)
        return members.mT @ self.x / members.sum(0)[:, None]


def clustered(target: Target, x: Tensor) -> Surroundings:
    """Points in clusters: the components of the graph of their nearest neighbors; a cluster of too
    few is no cluster.
    """
    n = len(x)
    neighbors = min(n - 1, 2 + int(2 * math.log2(n)))
    scaled = (x / target.scale).double()
    apart = torch.cdist(scaled, scaled)
    near = apart.fill_diagonal_(math.inf).topk(neighbors, largest=False).indices.cpu()
    rows = torch.arange(n).repeat_interleave(neighbors)
    graph = coo_matrix(
        (torch.ones(len(rows)).numpy(), (rows.numpy(), near.flatten().numpy())), (n, n)
    )
    labels = torch.as_tensor(connected_components(graph, directed=False)[1]).long()
    return Surroundings(x, labels.to(x.device))


class Moved(NamedTuple):
    """Where chains ended, and how many evaluations a slice took."""

    to: Places
    trials: float


def moved(
    target: Target,
    start: Places,
    level: Level,
    around: Surroundings,
    cluster: Tensor,
    steps: int,
    width: float,
    generator: torch.Generator,
) -> Moved:
    """Chains from ``start``, each moved ``steps`` times above the level: slices of real
    coordinates, sweeps over the others.
    """
    to, trials = start, TRIALS
    if bool(target.real.any()):
        lines = _lines(target, around, cluster, steps, width, generator)
        to, trials = _sliced(target, to, level, lines, generator)
    if not bool(target.real.all()):
        for _ in range(steps):
            to = _swept(target, to, level, generator)
    return Moved(to, trials)


def _swept(target: Target, at: Places, level: Level, generator: torch.Generator) -> Places:
    """Every coordinate that is not real once, in an order of its own, drawn from the reference and
    kept where the likelihood allows.
    """
    x, log_l, label = at.x.clone(), at.log_l.clone(), at.label
    drawn = target.base.draw(len(x), generator=generator)
    sites = (~target.real).nonzero()[:, 0]
    noise = torch.rand(len(x), len(sites), generator=generator, device=x.device)
    order = sites[noise.argsort(-1)]
    for j in range(len(sites)):
        site = order[:, j : j + 1]
        new = drawn.gather(1, site)
        label = _relabeled(Places(x, log_l, label), level, generator)
        changed = (new != x.gather(1, site)).nonzero()[:, 0]
        if len(changed):
            trial = x[changed].scatter(1, site[changed], new[changed])
            value = target.log_likelihood(trial)
            allowed = level.below(value, label[changed])
            kept = changed[allowed]
            x[kept], log_l[kept] = trial[allowed], value[allowed]
    return Places(x, log_l, label)


class Lines(NamedTuple):
    """Lines along which chains will move, S for each: nothing of them depends on where it is."""

    v: Tensor  # (S, K, D)
    low: Tensor  # (S, K), float64, where brackets begin
    high: Tensor  # (S, K)
    noise: Tensor  # (S, K), log of uniform numbers, for heights
    label: Tensor  # (S, K)

    def at(self, chains: Tensor) -> "Lines":
        return Lines(*(part[:, chains] for part in self))


def _lines(
    target: Target,
    around: Surroundings,
    cluster: Tensor,
    steps: int,
    width: float,
    generator: torch.Generator,
) -> Lines:
    """Directions in which a chain's cluster spreads, between any two points, and of the
    reference's scales; a cluster of two points says nothing of directions.
    """
    x, shape, means = around.x, (steps, len(cluster)), around.means()
    centered, (low, noise, label) = x - means[around.cluster], _uniform((3, *shape), x, generator)
    sizes = torch.bincount(around.cluster).to(x)
    kind = rng.uniform(shape, x, generator)
    kind = torch.where((sizes < 3)[cluster] & (kind < SPREAD), 1.0, kind)[..., None]
    v = x.new_empty(*shape, x.shape[1])
    for k in range(around.clusters):
        mine, members = cluster == k, centered[around.cluster == k]
        z = rng.normal((steps, int(mine.sum()), len(members)), x, generator)
        v[:, mine] = z @ members / math.sqrt(len(members))
    pair = torch.randint(len(x), (2, *shape), generator=generator, device=x.device)
    jump = (kind >= SPREAD) & (kind < SPREAD + PAIRS)
    v = torch.where(jump, x[pair[0]] - x[pair[1]], v)
    shrink = centered.square().mean().sqrt() / target.scale.square().mean().sqrt()
    anywhere = target.scale * (shrink if float(shrink) > 0 else 1e-3)
    v = torch.where(kind >= SPREAD + PAIRS, rng.normal(v.shape, x, generator) * anywhere, v)
    length = torch.where(jump, 3.0, width)[..., 0].double()
    low = -length * low
    return Lines(v * target.real, low, low + length, noise.clamp_min(1e-300).log(), label)


def _uniform(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=like.device, dtype=torch.float64)


class _Walk:
    """Chains that move along lines by Neal's slices without stepping out: a bracket at random
    about the point is shrunk to what is allowed; a chain that arrives begins its next line.
    """

    def __init__(self, target: Target, at: Places, level: Level, lines: Lines) -> None:
        self.target, self.level, self.lines = target, level, lines
        self.x, self.log_l, self.label = at.x, at.log_l, at.label
        self.energy = target.base.free_energy(at.x).double()
        self.step = torch.zeros(len(at.x), dtype=torch.long, device=at.x.device)
        self.begin_lines(torch.ones_like(self.step, dtype=torch.bool))

    def begin_lines(self, fresh: Tensor) -> None:
        """The next line of chains that are fresh, and their labels given where they are."""
        last = self.step.clamp_max(len(self.lines.low) - 1)
        each = torch.arange(len(last), device=last.device)
        v, low, high, noise, label = (part[last, each] for part in self.lines)
        low_label = torch.where(self.log_l == self.level.log_l, max(self.level.label, 0.0), 0.0)
        label = low_label + (1 - low_label) * label
        height = noise - self.energy
        if bool(fresh.all()):
            self.v, self.low, self.high, self.height, self.label = v, low, high, height, label
            return
        self.v = torch.where(fresh[:, None], v, self.v)
        self.low, self.high = torch.where(fresh, low, self.low), torch.where(fresh, high, self.high)
        self.height = torch.where(fresh, height, self.height)
        self.label = torch.where(fresh, label, self.label)

    def trial(self, generator: torch.Generator) -> None:
        """One point of each chain's bracket; chains that have made all steps stay."""
        t = torch.lerp(self.low, self.high, _uniform((len(self.x),), self.x, generator))
        x = self.x + t[:, None].to(self.x) * self.v
        energy = self.target.base.free_energy(x)
        log_l = self.target.log_likelihood(x, energy)
        energy, going = energy.double(), self.step < len(self.lines.low)
        good = going & (-energy > self.height) & self.level.below(log_l, self.label)
        self.x = torch.where(good[:, None], x, self.x)
        self.log_l, self.energy = (
            torch.where(good, log_l, self.log_l),
            torch.where(good, energy, self.energy),
        )
        self.low, self.high = (
            torch.where(t < 0, t, self.low),
            torch.where(t < 0, self.high, t),
        )
        fresh = going & (good | (self.high - self.low < SHRUNK))
        self.step += fresh
        self.begin_lines(fresh & (self.step < len(self.lines.low)))

    def kept(self, chains: Tensor) -> None:
        """Go on with some of the chains."""
        for name in ("x", "log_l", "label", "energy", "step", "v", "low", "high", "height"):
            setattr(self, name, getattr(self, name)[chains])
        self.lines = self.lines.at(chains)


def _sliced(
    target: Target, at: Places, level: Level, lines: Lines, generator: torch.Generator
) -> tuple[Places, float]:
    """Where chains arrive after all of their lines, and how many trials a line took."""
    walk, before = _Walk(target, at, level, lines), target.evaluations
    to = Places(at.x.clone(), at.log_l.clone(), at.label.clone())
    chains = torch.arange(len(at.x), device=at.x.device)
    while len(chains):
        for _ in range(AT_A_TIME):
            walk.trial(generator)
        done = walk.step >= len(lines.low)
        for part, now in zip(to, (walk.x, walk.log_l, walk.label), strict=True):
            part[chains[done]] = now[done]
        chains = chains[~done]
        walk.kept((~done).nonzero()[:, 0])
    return to, (target.evaluations - before) / lines.low.numel()
