"""Energy models that are hard to sum and whose log Z is known all the same: many modes, far apart,
of unequal entropy.

Each builder takes a seed and what rows the model remembers: ``"fair"`` (draws of the model),
``"skewed"`` (modes out of proportion, or some only) or ``"none"``. Truths are finite sums over few
hidden states, over occupation numbers or by transfer matrices; densities have closed forms.
"""

import math
from collections.abc import Callable
from itertools import product
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

import partita
from partita.core import rng
from partita.core.protocols import EnergyModel
from partita.core.support import Binary, Real
from partita.datasets import load
from partita.evaluators import Enumeration
from partita.evaluators.partition.reverse_ais import exact_draws
from partita.models import RBM, Ising, LatentEnergy, MaxEnt, NeuralEnergy, Potts
from partita.models.energy import complete, torus
from partita.models.energy.kaufman import torus_log_z
from partita.objectives import CD, NCE, PCD, ExactLikelihood, PseudoLikelihood, RatioMatching

RowsKind = Literal["fair", "skewed", "none"]
N_ROWS = 128


class Case(NamedTuple):
    """A model and the truth about it."""

    model: EnergyModel
    log_z: float


def remember(model: EnergyModel, rows: Tensor | None) -> EnergyModel:
    """The model with these rows, repeated, as those of its training data."""
    if rows is None:
        model.anchored.fill_(False)
        return model
    model.anchors.copy_(rows[torch.arange(len(model.anchors)) % len(rows)])
    model.anchored.fill_(True)
    return model


def of_enumerated(model: RBM, rows: RowsKind, g: torch.Generator) -> Case:
    """An RBM with few hidden units; skewed rows are the half of its draws with the fewest ones."""
    truth = Enumeration()(model).value
    x = exact_draws(model, 2 * N_ROWS, generator=g)
    x = {"fair": x[:N_ROWS], "skewed": x[x.sum(-1).argsort()[:N_ROWS]], "none": None}[rows]
    return Case(remember(model, x), truth)


def templates(
    seed: int, rows: RowsKind, columns: int = 100, share: float = 0.5, sharpness: float = 3.0
) -> Case:
    """Noise and eight noisy templates, which hold a share of the mass; skewed rows show only two of
    the templates.
    """
    g, count = torch.Generator().manual_seed(seed), 8
    t = (torch.rand(count, columns, generator=g) < 0.5).double()
    W = sharpness * (2 * t - 1).mT
    c = (
        columns * math.log(2)
        - functional.softplus(W).sum(0)
        + math.log(share / (1 - share) / count)
    )
    model = RBM(columns, 2 * count, generator=g)
    with torch.no_grad():
        model.W.zero_()[:, :count] = W.float()
        model.b.zero_()
        model.c.fill_(-20.0)[:count] = c.float()
    if rows == "skewed":
        p = torch.sigmoid(sharpness * (2 * t[torch.arange(N_ROWS) % 2] - 1))
        return Case(
            remember(model, (torch.rand(p.shape, generator=g) < p).float()),
            Enumeration()(model).value,
        )
    return of_enumerated(model, rows, g)


def far_products(
    seed: int, rows: RowsKind, columns: int = 80, hidden: int = 3, width: float = 4.0
) -> Case:
    """A few products whose means are opposite in most coordinates, of equal mass."""
    g = torch.Generator().manual_seed(seed)
    model = RBM(columns, hidden, generator=g)
    with torch.no_grad():
        model.W.copy_(width * torch.randn(columns, hidden, generator=g).sign())
        model.b.copy_(-model.W.sum(1) / 2)
        model.c.copy_(
            -functional.softplus(model.b[:, None] + model.W).sum(0)
            + functional.softplus(model.b).sum()
        )
    return of_enumerated(model, rows, g)


def random_rbm(
    seed: int, rows: RowsKind, scale: float = 1.0, units: str = "bernoulli", columns: int = 50
) -> Case:
    g = torch.Generator().manual_seed(seed)
    states = 3 if units == "categorical" else None
    model = RBM(columns, 10, visible_units=units, states=states, scale=scale, generator=g)
    with torch.no_grad():
        model.b.normal_(generator=g)
        model.c.normal_(generator=g)
    return of_enumerated(model, rows, g)


def curie_weiss(
    seed: int, rows: RowsKind, sites: int = 100, beta: float = 1.5, field: float = 0.0
) -> Case:
    """All spins coupled alike, below the critical temperature; skewed rows are all in the smaller
    mode.
    """
    g = torch.Generator().manual_seed(seed)
    model = Ising(sites, generator=g)
    with torch.no_grad():
        model.J.fill_(beta / sites)
        model.h.fill_(field)
    up = torch.arange(sites + 1, dtype=torch.float64)
    m = 2 * up - sites
    log_mass = _log_binomial(sites, up) + beta * (m.square() - sites) / (2 * sites) + field * m
    if rows == "none":
        return Case(remember(model, None), float(torch.logsumexp(log_mass, 0)))
    k = up[torch.multinomial(torch.softmax(log_mass, 0), N_ROWS, replacement=True, generator=g)]
    k = torch.minimum(k, sites - k) if rows == "skewed" else k
    x = torch.where(torch.rand(N_ROWS, sites, generator=g).argsort(-1) < k[:, None], 1.0, -1.0)
    return Case(remember(model, x), float(torch.logsumexp(log_mass, 0)))


def lattice_below_critical(seed: int, rows: RowsKind, side: int = 12, beta: float = 0.6) -> Case:
    """Ising spins on a torus, ordered; skewed rows are all of one sign."""
    g = torch.Generator().manual_seed(seed)
    model = Ising(side**2, edges=torus(side, side), generator=g)
    with torch.no_grad():
        model.J.fill_(beta)
        model.h.zero_()
    sign = (
        torch.where(torch.rand(N_ROWS, 1, generator=g) < 0.5, 1.0, -1.0)
        if rows == "fair"
        else torch.ones(N_ROWS, 1)
    )
    x = sign * torch.where(torch.rand(N_ROWS, side**2, generator=g) < 0.03, -1.0, 1.0)
    return Case(
        remember(model, None if rows == "none" else x), float(torus_log_z(side, side, beta))
    )


def strip_in_field(
    seed: int,
    rows: RowsKind,
    around: int = 6,
    long: int = 8,
    beta: float = 0.6,
    field: float = 0.03,
) -> Case:
    """Ising spins on a small torus below the critical temperature, in a weak field; skewed rows all
    point against it.
    """
    g = torch.Generator().manual_seed(seed)
    model = Ising(around * long, edges=torus(long, around), generator=g)
    with torch.no_grad():
        model.J.fill_(beta)
        model.h.fill_(field)
    ring = 2.0 * torch.tensor(list(product((0, 1), repeat=around)), dtype=torch.float64) - 1
    within = beta * (ring * ring.roll(1, -1)).sum(-1) + field * ring.sum(-1)
    transfer = torch.exp(0.5 * (within[:, None] + within[None]) + beta * ring @ ring.mT)
    truth = float(torch.linalg.eigvalsh(transfer).pow(long).sum().log())
    sign = (
        -torch.ones(N_ROWS, 1)
        if rows == "skewed"
        else torch.where(torch.rand(N_ROWS, 1, generator=g) < 0.9, 1.0, -1.0)
    )
    x = sign * torch.where(torch.rand(N_ROWS, around * long, generator=g) < 0.03, -1.0, 1.0)
    return Case(remember(model, None if rows == "none" else x), truth)


def hopfield(seed: int, rows: RowsKind, sites: int = 80, beta: float = 2.0) -> Case:
    """Two patterns stored in couplings; skewed rows show the first only."""
    g = torch.Generator().manual_seed(seed)
    patterns = torch.randn(2, sites, generator=g).sign()
    model = Ising(sites, generator=g)
    i, j = model.graph.edges.unbind(1)
    with torch.no_grad():
        model.J.copy_(beta / sites * (patterns[:, i] * patterns[:, j]).sum(0))
        model.h.zero_()
    alike = int((patterns[0] == patterns[1]).sum())
    a, b = (torch.arange(n + 1, dtype=torch.float64) for n in (alike, sites - alike))
    first, second = (2 * a - alike)[:, None], (2 * b - (sites - alike))[None]
    exponent = beta / (2 * sites) * ((first + second).square() + (first - second).square()) - beta
    log_mass = _log_binomial(alike, a)[:, None] + _log_binomial(sites - alike, b)[None] + exponent
    which = torch.randint(1 if rows == "skewed" else 2, (N_ROWS,), generator=g)
    flip = torch.where(torch.rand(N_ROWS, 1, generator=g) < 0.5, 1.0, -1.0)
    x = (
        flip
        * patterns[which]
        * torch.where(torch.rand(N_ROWS, sites, generator=g) < 0.02, -1.0, 1.0)
    )
    return Case(
        remember(model, None if rows == "none" else x),
        float(torch.logsumexp(log_mass.flatten(), 0)),
    )


def potts_transition(
    seed: int, rows: RowsKind, sites: int = 60, states: int = 10, shift: float = 0.0
) -> Case:
    """All sites coupled alike at the first-order transition, where order and disorder weigh the
    same; skewed rows are disordered.
    """
    g = torch.Generator().manual_seed(seed)
    beta = 2 * (states - 1) / (states - 2) * math.log(states - 1) + shift
    model = Potts(sites, states, edges=complete(sites), generator=g)
    with torch.no_grad():
        model.J.copy_(beta / sites * torch.eye(states).expand_as(model.J))
        model.h.zero_()
    n = torch.arange(sites + 1, dtype=torch.float64)
    one = -torch.lgamma(n + 1) + beta * n.square() / (2 * sites)
    total = torch.full((sites + 1,), -math.inf, dtype=torch.float64)
    total[0] = 0.0
    for _ in range(states):
        total = torch.stack(
            [torch.logsumexp(total[: m + 1] + one[: m + 1].flip(0), 0) for m in range(sites + 1)]
        )
    truth = float(total[sites]) + math.lgamma(sites + 1) - beta / 2
    order = torch.randint(states, (N_ROWS, 1), generator=g)
    anywhere = torch.randint(states, (N_ROWS, sites), generator=g)
    ordered = torch.where(torch.rand(N_ROWS, sites, generator=g) < 0.85, order, anywhere)
    x = (
        anywhere
        if rows == "skewed"
        else torch.where(torch.rand(N_ROWS, 1, generator=g) < 0.5, ordered, anywhere)
    )
    return Case(remember(model, None if rows == "none" else x.float()), truth)


def spin_glass(seed: int, rows: RowsKind, sites: int = 18, beta: float = 2.5) -> Case:
    """Random couplings between all spins, cold; skewed rows have a positive sum."""
    g = torch.Generator().manual_seed(seed)
    model = Ising(sites, generator=g)
    with torch.no_grad():
        model.J.copy_(beta / math.sqrt(sites) * torch.randn(len(model.J), generator=g))
        model.h.zero_()
    x = exact_draws(model, N_ROWS, generator=g)
    x = (
        x * x.sum(-1, keepdim=True).sign().where(x.sum(-1, keepdim=True) != 0, torch.tensor(1.0))
        if rows == "skewed"
        else x
    )
    return Case(remember(model, None if rows == "none" else x), Enumeration()(model).value)


def local_features(seed: int, rows: RowsKind, columns: int = 16) -> Case:
    """Maximum entropy with strong features of three neighbors; skewed rows are the half with the
    fewest ones.
    """
    g = torch.Generator().manual_seed(seed)
    model = MaxEnt(
        lambda x: (2 * x[..., :-2] - 1) * (2 * x[..., 1:-1] - 1) * (2 * x[..., 2:] - 1),
        Binary(columns),
        generator=g,
    )
    with torch.no_grad():
        model.theta.copy_(3 * torch.randn(columns - 2, generator=g))
    x = exact_draws(model, 2 * N_ROWS, generator=g)
    x = x[x.sum(-1).argsort()[:N_ROWS]] if rows == "skewed" else x[:N_ROWS]
    return Case(remember(model, None if rows == "none" else x), Enumeration()(model).value)


def trained(seed: int, rows: RowsKind, how: str = "pcd") -> Case:
    """An RBM with 14 hidden units on digits, well or badly trained; skewed rows are a few of the
    first digits.
    """
    g = torch.Generator().manual_seed(seed)
    data = load("digits").train
    model = RBM(64, 14, generator=g)
    objective, options = {
        "pcd": (PCD(chains=64), {"epochs": 15}),
        "cd": (CD(), {"epochs": 15}),
        "nce": (NCE(), {"epochs": 10}),
        "pseudo-likelihood": (PseudoLikelihood(), {"epochs": 10}),
        "ratio matching": (RatioMatching(), {"epochs": 10}),
        "exact": (ExactLikelihood(), {"epochs": 10}),
        "too fast": (
            PCD(chains=8),
            {"epochs": 5, "learning_rate": 3.0, "optimizer": "sgd", "average": 0.0},
        ),
    }[how]
    partita.fit(model, data, objective, generator=g, **options)
    if rows == "skewed":
        remember(model, model.anchors[:5].clone())
    return Case(model if rows != "none" else remember(model, None), Enumeration()(model).value)


class Density(nn.Module):
    """-log of a density that is known but for a constant, as a network to which a standard normal
    reference is added.
    """

    def __init__(self, energy: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.energy, self.shift = energy, nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.energy(x) - 0.5 * x.square().sum(-1) + self.shift


def real_model(
    energy: Callable[[Tensor], Tensor], width: int, draws: Tensor, rows: RowsKind, log_z: float
) -> Case:
    """A density on real coordinates; skewed rows are those with the smaller first coordinate, and
    the reference is fitted to the rows.
    """
    model = NeuralEnergy(Density(energy), Real(width))
    x = {
        "fair": draws[:N_ROWS],
        "skewed": draws[draws[:, 0].argsort()[: len(draws) // 2]],
        "none": None,
    }[rows]
    return Case(remember(model, x), log_z)


def wells(
    seed: int,
    rows: RowsKind,
    width: int = 5,
    scales: tuple[float, ...] = (0.3, 1.0),
    distance: float = 6.0,
) -> Case:
    """Normal wells of different widths and equal mass, far apart."""
    g = torch.Generator().manual_seed(seed)
    centers = distance * functional.normalize(torch.randn(len(scales), width, generator=g), dim=-1)
    s = torch.tensor(scales)

    def energy(x: Tensor) -> Tensor:
        squares = (x[..., None, :] - centers.to(x)).square().sum(-1) / s.to(x).square()
        return -torch.logsumexp(-0.5 * squares - width * s.to(x).log(), -1)

    k = torch.randint(len(scales), (2 * N_ROWS,), generator=g)
    draws = centers[k] + s[k, None] * torch.randn(2 * N_ROWS, width, generator=g)
    return real_model(
        energy, width, draws, rows, 0.5 * width * math.log(2 * math.pi) + math.log(len(scales))
    )


def banana(seed: int, rows: RowsKind, width: int = 4, bend: float = 1.0) -> Case:
    """A normal distribution bent along a parabola, which leaves its volume as it is."""
    g = torch.Generator().manual_seed(seed)

    def energy(x: Tensor) -> Tensor:
        bent = x[..., 1] + bend * (x[..., 0].square() - 4)
        return 0.5 * (x[..., 0].square() / 4 + bent.square() / 0.25 + x[..., 2:].square().sum(-1))

    u = torch.randn(2 * N_ROWS, width, generator=g)
    x0 = 2 * u[:, :1]
    draws = torch.cat([x0, 0.5 * u[:, 1:2] - bend * (x0.square() - 4), u[:, 2:]], -1)
    return real_model(
        energy, width, draws, rows, 0.5 * width * math.log(2 * math.pi) + math.log(2 * 0.5)
    )


def funnel(seed: int, rows: RowsKind, width: int = 4) -> Case:
    """Neal's funnel: the log-scale of all other coordinates is the first, a normal one."""
    g = torch.Generator().manual_seed(seed)

    def energy(x: Tensor) -> Tensor:
        v = x[..., 0]
        return (
            0.5 * v.square() / 2.25
            + 0.5 * x[..., 1:].square().sum(-1) * torch.exp(-v)
            + 0.5 * (width - 1) * v
        )

    v = 1.5 * torch.randn(2 * N_ROWS, 1, generator=g)
    draws = torch.cat([v, torch.exp(v / 2) * torch.randn(2 * N_ROWS, width - 1, generator=g)], -1)
    return real_model(
        energy, width, draws, rows, 0.5 * width * math.log(2 * math.pi) + math.log(1.5)
    )


def turned_scales(seed: int, rows: RowsKind, scales: tuple[float, ...]) -> Case:
    """A normal distribution of very different scales along axes that are no coordinates."""
    g = torch.Generator().manual_seed(seed)
    width, scale = len(scales), torch.tensor(scales)
    turn = torch.linalg.qr(torch.randn(width, width, generator=g, dtype=torch.float64))[0]

    def energy(x: Tensor) -> Tensor:
        return 0.5 * (x @ turn.to(x) / scale.to(x)).square().sum(-1)

    draws = (scale * torch.randn(2 * N_ROWS, width, generator=g)).double() @ turn.mT
    log_z = 0.5 * width * math.log(2 * math.pi) + float(scale.double().log().sum())
    return real_model(energy, width, draws.float(), rows, log_z)


def spike_and_slab(seed: int, rows: RowsKind, width: int = 5, narrow: float = 0.2) -> Case:
    """A narrow normal distribution within a wide one, of equal mass."""
    g = torch.Generator().manual_seed(seed)

    def energy(x: Tensor) -> Tensor:
        square = 0.5 * x.square().sum(-1)
        return -torch.logaddexp(-square / narrow**2 - width * math.log(narrow), -square)

    inside = torch.rand(2 * N_ROWS, 1, generator=g) < 0.5
    draws = torch.where(inside, narrow, 1.0) * torch.randn(2 * N_ROWS, width, generator=g)
    return real_model(energy, width, draws, rows, 0.5 * width * math.log(2 * math.pi) + math.log(2))


def turned_tail(seed: int, rows: RowsKind, width: int = 4) -> Case:
    """Cauchy's distribution along a direction that is no coordinate, and normal across."""
    g = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(width, width, generator=g, dtype=torch.float64))[0]

    def energy(x: Tensor) -> Tensor:
        u = x @ turn.to(x)
        return torch.log1p(u[..., 0].square()) + 0.5 * u[..., 1:].square().sum(-1)

    across = torch.randn(2 * N_ROWS, width, generator=g)
    across[:, 0] /= torch.randn(2 * N_ROWS, generator=g)  # the ratio of two normals is Cauchy's
    draws = (across.double() @ turn.mT).float()
    log_z = math.log(math.pi) + 0.5 * (width - 1) * math.log(2 * math.pi)
    return real_model(energy, width, draws, rows, log_z)


def ring(
    seed: int, rows: RowsKind, width: int = 2, radius: float = 4.0, thickness: float = 0.3
) -> Case:
    """A shell about the origin; the truth is an integral over the radius, on a fine grid."""
    g = torch.Generator().manual_seed(seed)

    def energy(x: Tensor) -> Tensor:
        return 0.5 * (x.norm(dim=-1) - radius).square() / thickness**2

    r = torch.linspace(
        radius - 10 * thickness, radius + 10 * thickness, 20_001, dtype=torch.float64
    )
    density = r ** (width - 1) * torch.exp(-0.5 * (r - radius).square() / thickness**2)
    surface = math.log(2) + 0.5 * width * math.log(math.pi) - math.lgamma(width / 2)
    far = r[torch.multinomial(density, 2 * N_ROWS, replacement=True, generator=g)].float()
    draws = far[:, None] * functional.normalize(torch.randn(2 * N_ROWS, width, generator=g), dim=-1)
    return real_model(
        energy, width, draws, rows, surface + math.log(float(torch.trapezoid(density, r)))
    )


class Steps(nn.Module):
    """Features that step from -1 to 1 within a tenth."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(10 * torch.cat([x, x - 1, x + 1], -1))


def steep_latent(seed: int, rows: RowsKind) -> Case:
    """Hidden units behind steep features on the plane, whose terraces are modes; the truth is a sum
    over a fine grid.
    """
    g = torch.Generator().manual_seed(seed)
    model = LatentEnergy(Steps(), visible=2, hidden=3, features=6, generator=g)
    with torch.no_grad():
        model.W.copy_(3 * torch.randn(model.W.shape, generator=g))
        model.c.copy_(torch.randn(3, generator=g))
    line, step = torch.linspace(-6, 6, 2401), 12 / 2400
    grid = torch.cartesian_prod(line, line)
    with torch.no_grad():
        log_mass = -model.free_energy(grid).double()
    draws = grid[rng.categorical(log_mass, g, 2 * N_ROWS)] + step * (
        torch.rand(2 * N_ROWS, 2, generator=g) - 0.5
    )
    x = {"fair": draws[:N_ROWS], "skewed": draws[draws[:, 0].argsort()[:N_ROWS]], "none": None}[
        rows
    ]
    return Case(remember(model, x), float(torch.logsumexp(log_mass, 0)) + 2 * math.log(step))


def _log_binomial(n: int, k: Tensor) -> Tensor:
    return math.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)


# a needle that no search here finds
UNSEEN: set[tuple[str, RowsKind]] = {("narrow well", "skewed"), ("narrow well", "none")}
FAMILIES: dict[str, Callable[[int, RowsKind], Case]] = {
    "templates 100, half": templates,
    "templates 100, most": lambda seed, rows: templates(seed, rows, share=0.99),
    "templates 200, half": lambda seed, rows: templates(seed, rows, 200),
    "templates 200, little": lambda seed, rows: templates(seed, rows, 200, share=0.1),
    "templates 150, blunt": lambda seed, rows: templates(seed, rows, 150, sharpness=1.5),
    "far products": far_products,
    "far products 2": lambda seed, rows: far_products(seed, rows, 60, 1),
    "RBM 0.01": lambda seed, rows: random_rbm(seed, rows, 0.01),
    "RBM 1": lambda seed, rows: random_rbm(seed, rows, 1.0),
    "RBM 3": lambda seed, rows: random_rbm(seed, rows, 3.0),
    "RBM 10": lambda seed, rows: random_rbm(seed, rows, 10.0),
    "Gaussian RBM": lambda seed, rows: random_rbm(seed, rows, 1.0, "gaussian", 20),
    "categorical RBM": lambda seed, rows: random_rbm(seed, rows, 2.0, "categorical", 30),
    "Curie-Weiss": curie_weiss,
    "Curie-Weiss in a field": lambda seed, rows: curie_weiss(seed, rows, field=0.02),
    "Ising lattice": lattice_below_critical,
    "Ising strip in a field": strip_in_field,
    "Hopfield": hopfield,
    "Potts transition": potts_transition,
    "Potts ordered": lambda seed, rows: potts_transition(seed, rows, shift=0.3),
    "Potts of 20 states": lambda seed, rows: potts_transition(seed, rows, 30, 20),
    "spin glass": spin_glass,
    "local features": local_features,
    "trained by PCD": trained,
    "trained by CD": lambda seed, rows: trained(seed, rows, "cd"),
    "trained by NCE": lambda seed, rows: trained(seed, rows, "nce"),
    "trained by pseudo-likelihood": lambda seed, rows: trained(seed, rows, "pseudo-likelihood"),
    "trained by ratio matching": lambda seed, rows: trained(seed, rows, "ratio matching"),
    "trained exactly": lambda seed, rows: trained(seed, rows, "exact"),
    "trained too fast": lambda seed, rows: trained(seed, rows, "too fast"),
    "wells": wells,
    "narrow well": lambda seed, rows: wells(seed, rows, 4, (0.05, 1.0), 4.0),
    "four wells in 10": lambda seed, rows: wells(seed, rows, 10, (0.5, 0.7, 1.0, 1.0), 5.0),
    "banana": banana,
    "banana in 8": lambda seed, rows: banana(seed, rows, 8, 0.5),
    "funnel": funnel,
    "funnel in 2": lambda seed, rows: funnel(seed, rows, 2),
    "ring": ring,
    "shell in 5": lambda seed, rows: ring(seed, rows, 5),
    "terraces": steep_latent,
    "turned scales": lambda seed, rows: turned_scales(seed, rows, (0.01, 0.1, 1.0, 10.0)),
    "spike and slab": spike_and_slab,
    "turned tail": turned_tail,
}
