r"""Functions whose log Z is known, to be asked of methods that do not know it.

Real ones have a prior, as nested samplers want it, or live on all of space; discrete ones are
plain functions of spins, bits and categories. Truths are closed forms, integrals over one
coordinate, finite sums over few states, or transfer matrices; each builder takes its size, so that
small ones can be held against sums and grids over everything.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Exponential, HalfCauchy, Normal, Uniform
from torch.nn import functional

from partita.core.support import Binary, Categorical, Interval, Real, Spin, Support
from partita.models.energy import torus
from partita.models.energy.kaufman import CRITICAL_COUPLING, torus_log_z

LogDensity = Callable[[Tensor], Tensor]
LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Known:
    """A function and its log Z: the evidence where there is a prior, else the log of its integral
    or sum over the support.
    """

    name: str
    log_density: LogDensity
    log_z: float
    prior: tuple[Distribution, ...] | None = None
    support: Support | None = None

    @property
    def width(self) -> int:
        """Coordinates of a row."""
        if self.prior is not None:
            return len(self.prior)
        assert self.support is not None
        return self.support.width

    @property
    def discrete(self) -> bool:
        """Whether rows are lists of states."""
        return self.support is not None and math.isfinite(self.support.bits)


def number(value: float) -> Tensor:
    """A float64 scalar: distributions of float32 would round the prior."""
    return torch.tensor(value, dtype=torch.float64)


def box(width: int, low: float, high: float) -> tuple[Distribution, ...]:
    """Uniform priors."""
    return (Uniform(number(low), number(high), validate_args=False),) * width


def bell(width: int, scale: float = 1.0) -> tuple[Distribution, ...]:
    """Normal priors around zero."""
    return (Normal(number(0.0), number(scale)),) * width


def log_integral(log_f: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> float:
    """log of the integral of exp(log_f) over an interval, by Gauss and Legendre's rule on many
    pieces.

    >>> round(log_integral(lambda t: -0.5 * t**2, -9.0, 9.0), 9) == round(0.5 * LOG_2PI, 9)
    True
    """
    nodes, weights = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(low, high, 4001)
    half = 0.5 * np.diff(edges)[:, None]
    t = 0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes
    with np.errstate(divide="ignore"):
        terms = log_f(t.ravel()).reshape(t.shape) + np.log(half * weights)
    return float(np.logaddexp.reduce(terms, None))


# real, under a prior


def mixture(
    name: str,
    weights: Sequence[float],
    centers: Tensor,
    scales: Sequence[float],
    *,
    half: float | None = None,
    scale: float | None = None,
) -> Known:
    """Round normals of these masses, in a box of this half side or under normal priors."""
    w, s = (torch.tensor(values, dtype=torch.float64) for values in (weights, scales))
    c, width = centers.double(), centers.shape[-1]
    log_w = w.log() - width * (s.log() + 0.5 * LOG_2PI)

    def log_density(x: Tensor) -> Tensor:
        squares = (x[..., None, :] - c).square().sum(-1) / s.square()
        return torch.logsumexp(log_w - 0.5 * squares, -1)

    if half is not None:
        inside = Normal(c, s[:, None]).cdf(number(half)) - Normal(c, s[:, None]).cdf(number(-half))
        parts = w.log() + inside.log().sum(-1) - width * math.log(2 * half)
        return Known(name, log_density, float(torch.logsumexp(parts, 0)), box(width, -half, half))
    if scale is None:
        return Known(name, log_density, float(w.sum().log()), support=Real(width))
    wide = (s.square() + scale**2).sqrt()[:, None]
    parts = w.log() + Normal(number(0.0), wide).log_prob(c).sum(-1)
    return Known(name, log_density, float(torch.logsumexp(parts, 0)), bell(width, scale))


def two_normals(width: int = 5, narrow: float = 0.1) -> Known:
    """A narrow one with a fifth of the mass, far from a wide one."""
    centers = torch.tensor([-5.0, 3.0])[:, None].expand(2, width)
    return mixture(f"two far normals, {width}-D", (0.2, 0.8), centers, (narrow, 1.0), half=10.0)


def heavy_spike(width: int = 8, narrow: float = 0.1, at: float = 2.0) -> Known:
    """A normal of mass one, and a spike beside it of mass twenty."""
    centers = torch.tensor([0.0, at])[:, None].expand(2, width)
    name = f"spike of {narrow:g} with most of the mass, {width}-D"
    return mixture(name, (1.0, 20.0), centers, (1.0, narrow), half=10.0)


def spike_on_slab(width: int = 20) -> Known:
    """A spike of a tenth of the width and a hundred times the mass, off the top of a slab
    (Skilling 2006): tempering sees a first-order transition.
    """
    centers = torch.tensor([0.031, 0.0])[:, None].expand(2, width)
    name = f"spike on a slab, {width}-D"
    return mixture(name, (100.0, 1.0), centers, (0.01, 0.1), half=0.5)


def six_normals(width: int = 10) -> Known:
    """Six normals of unequal masses and widths under normal priors."""
    g = torch.Generator().manual_seed(1)
    centers = 4 * torch.randn(6, width, generator=g, dtype=torch.float64)
    masses, scales = (0.3, 0.25, 0.2, 0.15, 0.07, 0.03), (0.2, 0.5, 1.0, 0.3, 0.7, 0.15)
    return mixture(f"six normals, {width}-D", masses, centers, scales, scale=4.0)


def two_normals_under_a_prior(width: int = 20) -> Known:
    """Two normals of equal width, one of which has nine tenths of the mass."""
    centers = torch.tensor([-2.0, 2.0])[:, None].expand(2, width)
    name = f"two normals under a normal prior, {width}-D"
    return mixture(name, (0.9, 0.1), centers, (0.3, 0.3), scale=3.0)


def rosenbrock(width: int = 2, half: float = 5.0, steep: float = 100.0) -> Known:
    """Rosenbrock's valley, a chain of coordinates each of which is the square of the one before:
    integrated link by link.
    """

    def log_density(x: Tensor) -> Tensor:
        links = steep * (x[..., 1:] - x[..., :-1].square()).square() + (1 - x[..., :-1]).square()
        return -links.sum(-1)

    step = 0.01
    t = torch.arange(-half + 0.5 * step, half, step, dtype=torch.float64)
    deviation = 1 / math.sqrt(2 * steep)
    last = Normal(t.square(), number(deviation))
    rest = (last.cdf(number(half)) - last.cdf(number(-half))) * math.sqrt(math.pi / steep)
    own = torch.exp(-(1 - t).square())
    link = step * torch.exp(-steep * (t - t.square()[:, None]).square())
    for _ in range(width - 2):
        rest = link @ (own * rest)
    log_z = float((step * own * rest).sum().log()) - width * math.log(2 * half)
    return Known(f"Rosenbrock's valley, {width}-D", log_density, log_z, box(width, -half, half))


def funnel(width: int = 10, deviation: float = 3.0, half: float = 30.0) -> Known:
    """Neal's funnel in a box, integrated over its neck."""

    def log_density(x: Tensor) -> Tensor:
        v = x[..., 0]
        each = -0.5 * x[..., 1:].square().sum(-1) * torch.exp(-v) - 0.5 * (width - 1) * v
        return each - 0.5 * (v / deviation).square() - 0.5 * width * LOG_2PI - math.log(deviation)

    def log_mass(v: np.ndarray) -> np.ndarray:
        own = -0.5 * (v / deviation) ** 2 - math.log(deviation) - 0.5 * LOG_2PI
        beyond = torch.erf(torch.from_numpy(half * np.exp(-v / 2) / math.sqrt(2)))
        return own + (width - 1) * np.log(beyond.numpy())

    log_z = log_integral(log_mass, -half, half) - width * math.log(2 * half)
    return Known(f"funnel, {width}-D", log_density, log_z, box(width, -half, half))


def eggbox() -> Known:
    """Eighteen equal peaks in a plane (Feroz et al. 2009), by Gauss and Legendre's rule."""
    side = 10 * math.pi

    def log_density(x: Tensor) -> Tensor:
        return (2 + torch.cos(x[..., 0] / 2) * torch.cos(x[..., 1] / 2)) ** 5

    nodes, weights = np.polynomial.legendre.leggauss(2000)
    t = 0.5 * side * (nodes + 1)
    cosines = np.cos(t[:, None] / 2) * np.cos(t / 2)
    terms = (2 + cosines) ** 5 + np.log(weights[:, None] / 2 * weights / 2)
    log_z = float(np.logaddexp.reduce(terms, None))
    return Known("eggbox, 2-D", log_density, log_z, box(2, 0.0, side))


def rastrigin(width: int = 5, depth: float = 5.0) -> Known:
    """Rastrigin's hills: eleven peaks along each coordinate, of unequal heights."""

    def one(x: Tensor) -> Tensor:
        return depth * (torch.cos(2 * math.pi * x) - 1) - 0.5 * x.square()

    def log_density(x: Tensor) -> Tensor:
        return one(x).sum(-1)

    along = log_integral(lambda t: one(torch.from_numpy(t)).numpy(), -5.12, 5.12)
    log_z = width * (along - math.log(10.24))
    return Known(f"Rastrigin's hills, {width}-D", log_density, log_z, box(width, -5.12, 5.12))


def log_gammas(width: int = 10) -> Known:
    """Four modes with long shoulders (Beaujean and Caldwell 2013); the density is normalized."""
    third = 1 / 3

    def log_gamma(x: Tensor, at: float) -> Tensor:
        z = (x - at) / third
        return z - torch.exp(z) - math.log(third)

    def normal(x: Tensor, at: float) -> Tensor:
        return -0.5 * ((x - at) / third).square() - 0.5 * LOG_2PI - math.log(third)

    def twice(f: Callable[[Tensor, float], Tensor], x: Tensor) -> Tensor:
        return torch.logaddexp(f(x, 10.0), f(x, -10.0)) - math.log(2)

    middle = (width + 2) // 2

    def log_density(x: Tensor) -> Tensor:
        ends = twice(log_gamma, x[..., 0]) + twice(normal, x[..., 1])
        return (
            ends + log_gamma(x[..., 2:middle], 10.0).sum(-1) + normal(x[..., middle:], 10.0).sum(-1)
        )

    name = f"shoulders in four modes, {width}-D"
    return Known(name, log_density, -width * math.log(60), box(width, -30.0, 30.0))


def round_shells(width: int = 5, radius: float = 2.0, thick: float = 0.1) -> Known:
    """Two Gaussian shells side by side (Feroz et al. 2009), integrated over the radius."""
    centers = torch.zeros(2, width, dtype=torch.float64)
    centers[:, 0] = torch.tensor([-3.5, 3.5])
    constant = -0.5 * LOG_2PI - math.log(thick)

    def log_density(x: Tensor) -> Tensor:
        r = ((x[..., None, :] - centers).square().sum(-1) + 1e-300).sqrt()
        return torch.logsumexp(constant - 0.5 * ((r - radius) / thick).square(), -1)

    def along(r: np.ndarray) -> np.ndarray:
        return (width - 1) * np.log(r) + constant - 0.5 * ((r - radius) / thick) ** 2

    one = log_integral(along, 0.0, radius + 12 * thick) + log_sphere(width)
    log_z = math.log(2) + one - width * math.log(12)
    return Known(f"two shells, {width}-D", log_density, log_z, box(width, -6.0, 6.0))


def log_sphere(width: int) -> float:
    """log of the surface of the unit ball.

    >>> round(math.exp(log_sphere(3)) / math.pi, 9)
    4.0
    """
    return math.log(2) + 0.5 * width * math.log(math.pi) - math.lgamma(0.5 * width)


def student_shell(width: int = 10, radius: float = 6.0, thick: float = 0.1) -> Known:
    """A shell with Student's tails inward and outward, under standard normal priors: what lies
    between prior and shell has little mass, and the tails as much as the shell.
    """

    def profile(r: Tensor) -> Tensor:
        return 30 - 6 * torch.log1p(((r - radius) / thick).square() / 3)

    def log_density(x: Tensor) -> Tensor:
        return profile((x.square().sum(-1) + 1e-300).sqrt())

    def along(r: np.ndarray) -> np.ndarray:
        prior = (width - 1) * np.log(r) - 0.5 * r**2 - 0.5 * width * LOG_2PI
        return prior + profile(torch.from_numpy(r)).numpy()

    log_z = log_integral(along, 0.0, 40.0) + log_sphere(width)
    return Known(f"Student shell, {width}-D", log_density, log_z, bell(width))


def correlated(width: int = 30) -> Known:
    """A normal likelihood whose scales and directions differ, under standard normal priors."""
    g = torch.Generator().manual_seed(2)
    turn = torch.linalg.qr(torch.randn(width, width, generator=g, dtype=torch.float64))[0]
    s = torch.logspace(-1.5, 0.5, width, dtype=torch.float64)
    mean = 0.5 * torch.randn(width, generator=g, dtype=torch.float64)
    constant = -0.5 * width * LOG_2PI - s.log().sum()

    def log_density(x: Tensor) -> Tensor:
        return constant - 0.5 * ((x - mean) @ turn / s).square().sum(-1)

    wide = 1 + s.square()
    log_z = float(-0.5 * (width * LOG_2PI + wide.log().sum() + ((mean @ turn) ** 2 / wide).sum()))
    return Known(f"correlated normal, {width}-D", log_density, log_z, bell(width))


SCHOOLS = (  # effects and their errors (Rubin 1981)
    torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], dtype=torch.float64),
    torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], dtype=torch.float64),
)


def eight_schools() -> Known:
    """Eight effects around a mean of unknown spread: effects and mean are integrated in closed
    form, the spread by quadrature.
    """
    y, error = SCHOOLS

    def log_density(x: Tensor) -> Tensor:
        effects = x[..., :1] + x[..., 1:2] * x[..., 2:]
        return Normal(y, error).log_prob(effects).sum(-1)

    def log_of(spread: np.ndarray) -> np.ndarray:
        tau = torch.from_numpy(spread)[:, None]
        precision = 1 / (error.square() + tau.square())
        total = precision.sum(-1) + 1 / 25
        center = (precision * y).sum(-1)
        squares = (precision * y.square()).sum(-1) - center.square() / total
        logs = precision.log().sum(-1) - (25 * total).log() - 8 * LOG_2PI
        return (0.5 * (logs - squares)).numpy()

    # tau = 5 tan(angle) has the half Cauchy prior where the angle is uniform
    log_z = log_integral(lambda a: log_of(5 * np.tan(a)), 0.0, math.pi / 2) - math.log(math.pi / 2)
    prior = (*bell(1, 5.0), HalfCauchy(number(5.0)), *bell(8))
    return Known("eight schools, 10-D", log_density, log_z, prior)


def regression(columns: int = 8, rows: int = 42) -> Known:
    """Rows like those of the radiata pines, with more columns: weights and noise are integrated in
    closed form. Weights are in units of the noise, whose precision has an exponential prior.
    """
    g = torch.Generator().manual_seed(3)
    X = torch.randn(rows, columns, generator=g, dtype=torch.float64)
    X[:, -1] = 0.95 * X[:, 0] + 0.3 * X[:, -1]  # two predictors that say nearly the same
    y = X @ torch.linspace(2, 0, columns, dtype=torch.float64)
    y = y + 0.7 * torch.randn(rows, generator=g, dtype=torch.float64)

    def log_density(x: Tensor) -> Tensor:
        noise = x[..., :1].rsqrt()
        mean = 3 * noise * (x[..., 1:] @ X.mT)
        return Normal(mean, noise, validate_args=False).log_prob(y).sum(-1)

    inner = torch.eye(rows, dtype=torch.float64) + 9 * X @ X.mT
    shape, rate = 1 + 0.5 * rows, 1 + 0.5 * float(y @ torch.linalg.solve(inner, y))
    log_z = -0.5 * rows * LOG_2PI - 0.5 * float(torch.logdet(inner))
    log_z += math.lgamma(shape) - shape * math.log(rate)
    name = f"regression, {columns + 1}-D"
    return Known(name, log_density, log_z, (Exponential(number(1.0)), *bell(columns)))


# real, without a prior


def student(width: int = 6, freedom: float = 3.0) -> Known:
    """Student's distribution with heavy tails, far from zero."""

    def log_density(x: Tensor) -> Tensor:
        squares = ((x - 40) / 5).square().sum(-1)
        return -0.5 * (freedom + width) * torch.log1p(squares / freedom)

    log_z = math.lgamma(freedom / 2) - math.lgamma((freedom + width) / 2)
    log_z += 0.5 * width * math.log(freedom * math.pi) + width * math.log(5)
    return Known(f"Student, all of {width}-D", log_density, log_z, support=Real(width))


def far_wells(width: int = 5) -> Known:
    """Two normals of unequal width and mass, thirty apart."""
    centers = torch.zeros(2, width)
    centers[1, 0] = 30.0
    return mixture(f"two far wells, all of {width}-D", (0.7, 0.3), centers, (1.0, 0.3))


def open_funnel(width: int = 6, deviation: float = 1.5) -> Known:
    """Neal's funnel without a box."""
    boxed = funnel(width, deviation)
    return Known(f"funnel, all of {width}-D", boxed.log_density, 0.0, support=Real(width))


def banana(width: int = 8, bend: float = 2.0) -> Known:
    """Normal coordinates, of which half are bent along the squares of the others."""

    def log_density(x: Tensor) -> Tensor:
        a, b = x[..., : width // 2], x[..., width // 2 :]
        bent = (b + bend * (a.square() - 1)) / 0.3
        return -0.5 * (a.square().sum(-1) + bent.square().sum(-1))

    log_z = 0.5 * width * LOG_2PI + (width // 2) * math.log(0.3)
    return Known(f"bananas, all of {width}-D", log_density, log_z, support=Real(width))


def gammas(width: int = 6) -> Known:
    """Gamma densities on positive numbers, some with a pole at zero."""
    shapes = torch.linspace(0.3, 4, width, dtype=torch.float64)

    def log_density(x: Tensor) -> Tensor:
        return ((shapes - 1) * x.log() - x).sum(-1)

    log_z = float(torch.lgamma(shapes).sum())
    name = f"gammas, positive {width}-D"
    return Known(name, log_density, log_z, support=Interval(width, 0, math.inf))


# discrete


def pairs(edges: Tensor, couplings: Tensor) -> LogDensity:
    """The sum of couplings times products of neighbors."""
    i, j = edges.unbind(1)

    def log_density(x: Tensor) -> Tensor:
        return (x[..., i] * x[..., j]) @ couplings.to(x)

    return log_density


def ising(rows: int = 7, columns: int = 8, coupling: float = CRITICAL_COUPLING) -> Known:
    """Spins on a torus at the critical coupling, solved by Kaufman."""
    edges = torch.as_tensor(torus(rows, columns))
    log_density = pairs(edges, torch.full((len(edges),), coupling, dtype=torch.float64))
    log_z = float(torus_log_z(rows, columns, coupling))
    name = f"Ising at K = {coupling:.3g}, {rows} x {columns}"
    return Known(name, log_density, log_z, support=Spin(rows * columns))


def glass(around: int = 5, long: int = 12, beta: float = 1.5, seed: int = 4) -> Known:
    """A spin glass on a strip whose ends and sides meet, summed ring by ring."""
    g = torch.Generator().manual_seed(seed)
    site = torch.arange(around * long).view(long, around)
    within = torch.stack([site, site.roll(-1, 1)], -1)  # (long, around, 2)
    across = torch.stack([site, site.roll(-1, 0)], -1)
    J, K = beta * torch.randn(2, long, around, generator=g, dtype=torch.float64)
    edges = torch.cat([within.reshape(-1, 2), across.reshape(-1, 2)])
    ring = 2 * torch.tensor(list(product((0, 1), repeat=around)), dtype=torch.float64) - 1
    total, shift = torch.eye(len(ring), dtype=torch.float64), 0.0
    for own, on in zip(J, K, strict=True):
        log_step = (ring * ring.roll(-1, 1)) @ own[:, None] + (ring * on) @ ring.mT
        top = float(log_step.max())
        total = total @ torch.exp(log_step - top)
        scale = float(total.max())
        total, shift = total / scale, shift + top + math.log(scale)
    log_z = float(total.trace().log()) + shift
    log_density = pairs(edges, torch.cat([J.flatten(), K.flatten()]))
    name = f"spin glass at beta = {beta:g}, {around} x {long}"
    return Known(name, log_density, log_z, support=Spin(around * long))


def hopfield(sites: int = 60, beta: float = 2.0, seed: int = 5) -> Known:
    """Two stored patterns, summed over their overlaps."""
    g = torch.Generator().manual_seed(seed)
    patterns = 2.0 * torch.randint(2, (2, sites), generator=g, dtype=torch.float64) - 1

    def log_density(x: Tensor) -> Tensor:
        return beta / (2 * sites) * (x @ patterns.to(x).mT).square().sum(-1) - beta

    alike = int((patterns[0] == patterns[1]).sum())
    a, b = (torch.arange(n + 1, dtype=torch.float64) for n in (alike, sites - alike))
    one, two = (2 * a - alike)[:, None], (2 * b - (sites - alike))[None]
    squares = (one + two).square() + (one - two).square()
    log_mass = log_binomial(alike, a)[:, None] + log_binomial(sites - alike, b)
    log_mass = log_mass + beta / (2 * sites) * squares - beta
    log_z = float(torch.logsumexp(log_mass.flatten(), 0))
    return Known(f"Hopfield, {sites} sites", log_density, log_z, support=Spin(sites))


def log_binomial(n: int, k: Tensor) -> Tensor:
    """log of n over k."""
    return math.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)


def potts(around: int = 4, long: int = 10, states: int = 6) -> Known:
    """Categories on a torus at the transition, where order and disorder weigh the same, by the
    transfer matrix.
    """
    coupling = math.log1p(math.sqrt(states))
    i, j = torch.as_tensor(torus(long, around)).unbind(1)

    def log_density(x: Tensor) -> Tensor:
        return coupling * (x[..., i] == x[..., j]).to(x).sum(-1)

    ring = torch.tensor(list(product(range(states), repeat=around)))
    within = coupling * (ring == ring.roll(1, -1)).double().sum(-1)
    across = coupling * (ring[:, None] == ring[None]).double().sum(-1)
    transfer = torch.exp(0.5 * (within[:, None] + within[None]) + across)
    log_z = float(torch.linalg.eigvalsh(transfer).pow(long).sum().log())
    name = f"Potts with {states} states at the transition, {around} x {long}"
    return Known(name, log_density, log_z, support=Categorical(around * long, states))


def all_alike(sites: int = 60, states: int = 10) -> Known:
    """Potts sites that all couple with one another, at the first-order transition, summed over
    counts.
    """
    beta = 2 * (states - 1) / (states - 2) * math.log(states - 1)

    def log_density(x: Tensor) -> Tensor:
        one_hot = x[..., None] == torch.arange(states).to(x)
        counts = one_hot.sum(-2).to(x)
        return beta / (2 * sites) * (counts.square().sum(-1) - sites)

    n = torch.arange(sites + 1, dtype=torch.float64)
    one = beta * n.square() / (2 * sites) - torch.lgamma(n + 1)
    total = torch.full_like(n, -math.inf).index_fill_(0, torch.tensor([0]), 0.0)
    for _ in range(states):
        sums = [torch.logsumexp(total[: m + 1] + one[: m + 1].flip(0), 0) for m in range(sites + 1)]
        total = torch.stack(sums)
    log_z = float(total[sites]) + math.lgamma(sites + 1) - beta / 2
    name = f"mean-field Potts at the transition, {sites} sites"
    return Known(name, log_density, log_z, support=Categorical(sites, states))


def planted(columns: int = 60, hidden: int = 8, sharpness: float = 3.0, seed: int = 6) -> Known:
    """A Boltzmann machine into which as many templates as hidden units are planted, which hold half
    of its mass, summed over the hidden units.
    """
    g = torch.Generator().manual_seed(seed)
    W = sharpness * (2.0 * torch.randint(2, (columns, hidden), generator=g).double() - 1)
    c = columns * math.log(2) - functional.softplus(W).sum(0) - math.log(hidden)

    def log_density(x: Tensor) -> Tensor:
        return functional.softplus(x @ W.to(x) + c.to(x)).sum(-1)

    h = torch.tensor(list(product((0, 1), repeat=hidden)), dtype=torch.float64)
    log_z = float(torch.logsumexp(h @ c + functional.softplus(h @ W.mT).sum(-1), 0))
    return Known(f"planted templates, {columns} bits", log_density, log_z, support=Binary(columns))


def real_targets() -> list[Known]:
    """Those with a prior, which every method can be asked about."""
    return [
        two_normals(),
        heavy_spike(narrow=0.3),
        heavy_spike(narrow=0.1),
        spike_on_slab(),
        six_normals(),
        two_normals_under_a_prior(),
        rosenbrock(2),
        rosenbrock(6),
        funnel(),
        eggbox(),
        rastrigin(),
        log_gammas(),
        round_shells(5),
        round_shells(10),
        student_shell(),
        correlated(),
        eight_schools(),
        regression(),
    ]


def open_targets() -> list[Known]:
    """Real ones without a prior, whose mass has to be found."""
    return [student(), far_wells(), open_funnel(), banana(), gammas()]


def discrete_targets() -> list[Known]:
    """Those on finite lists of states."""
    return [
        ising(),
        ising(8, 8, 0.6),
        glass(),
        hopfield(),
        potts(),
        all_alike(),
        planted(),
    ]
