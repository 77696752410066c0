"""The truths of the evidence challenge against grids, sums over all states and draws."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from torch.distributions import Normal

import evidence_targets
from evidence_targets import Known


def on_a_grid(known: Known, low: float, high: float, points: int) -> float:
    """The evidence, or the integral, by the trapezoidal rule over all coordinates."""
    t = torch.linspace(low, high, points, dtype=torch.float64)
    x = torch.cartesian_prod(*[t] * known.width)
    log_f = known.log_density(x)
    for prior, column in zip(known.prior or (), x.unbind(-1), strict=False):
        log_f = log_f + prior.log_prob(column.clamp(max=high - 1e-9))  # the end is outside
    for column in x.unbind(-1):
        log_f = log_f - math.log(2) * ((column == low) | (column == high)).double()
    return float(torch.logsumexp(log_f, 0)) + known.width * math.log((high - low) / (points - 1))


def over_all(known: Known) -> float:
    """The sum over all states."""
    assert known.support is not None
    values = known.support.values().double().tolist()
    x = torch.tensor(list(product(values, repeat=known.width)), dtype=torch.float64)
    return float(torch.logsumexp(known.log_density(x), 0))


def by_draws(known: Known, draws: int = 400_000) -> tuple[float, float]:
    """The evidence as the mean likelihood of draws of the prior, and its standard error."""
    torch.manual_seed(0)
    assert known.prior is not None
    x = torch.stack([prior.sample((draws,)) for prior in known.prior], -1)
    log_f = known.log_density(x)
    value = float(torch.logsumexp(log_f, 0)) - math.log(draws)
    return value, float((log_f - value).exp().std()) / math.sqrt(draws)


@pytest.mark.parametrize(
    ("known", "ends", "points"),
    [
        (lambda: evidence_targets.two_normals(2, 0.3), (-10, 10), 1001),
        (lambda: evidence_targets.heavy_spike(2, 0.3), (-10, 10), 1001),
        (lambda: evidence_targets.spike_on_slab(2), (-0.5, 0.5), 1001),
        (lambda: evidence_targets.six_normals(2), (-25, 25), 1501),
        (lambda: evidence_targets.two_normals_under_a_prior(2), (-15, 15), 1001),
        (lambda: evidence_targets.rosenbrock(2), (-5, 5), 2001),
        (lambda: evidence_targets.rosenbrock(3, 2.0, 10.0), (-2, 2), 161),
        (lambda: evidence_targets.funnel(2, 1.0, 8.0), (-8, 8), 1601),
        (evidence_targets.eggbox, (0, 10 * math.pi), 2001),
        (lambda: evidence_targets.rastrigin(2), (-5.12, 5.12), 1501),
        (lambda: evidence_targets.log_gammas(2), (-30, 30), 2001),
        (lambda: evidence_targets.round_shells(2), (-6, 6), 2001),
        (lambda: evidence_targets.student_shell(2), (-30, 30), 2401),
        (lambda: evidence_targets.correlated(2), (-12, 12), 1501),
        (lambda: evidence_targets.far_wells(2), (-8, 38), 1501),
        (lambda: evidence_targets.open_funnel(2, 0.7), (-16, 16), 2501),
        (lambda: evidence_targets.banana(2, 1.0), (-20, 20), 2501),
    ],
)
def test_integrals_are_those_of_a_grid(
    known: Callable[[], Known], ends: tuple[float, float], points: int
) -> None:
    target = known()
    assert target.log_z == pytest.approx(on_a_grid(target, *ends, points), abs=3e-4)


def test_gammas_are_those_of_a_grid() -> None:
    target = evidence_targets.gammas(2)  # powers 0.3 and 4: one has a pole at zero
    u = torch.linspace(-90, 5, 3001, dtype=torch.float64)
    x = torch.cartesian_prod(u, u)
    log_f = target.log_density(x.exp()) + x.sum(-1)
    assert target.log_z == pytest.approx(
        float(torch.logsumexp(log_f, 0)) + 2 * math.log(95 / 3000), abs=1e-6
    )


def test_student_is_the_integral_over_its_radius() -> None:
    target = evidence_targets.student(6)
    r = torch.exp(torch.linspace(-12, 16, 20_001, dtype=torch.float64))
    x = torch.full((len(r), 6), 40.0, dtype=torch.float64)
    x[:, 0] += r
    log_f = target.log_density(x) + 6 * r.log() + evidence_targets.log_sphere(6)
    step = math.log(28 / 20_000)
    assert target.log_z == pytest.approx(float(torch.logsumexp(log_f, 0)) + step, abs=1e-6)


@pytest.mark.parametrize(
    "known", [evidence_targets.eight_schools, lambda: evidence_targets.regression(1, 5)]
)
def test_posteriors_are_those_of_draws(known: Callable[[], Known]) -> None:
    # five standard errors: a false alarm of 1e-6
    target = known()
    value, error = by_draws(target)
    assert abs(target.log_z - value) < 5 * error < 0.1


def test_eight_schools_are_those_of_two_integrals() -> None:
    y, error = evidence_targets.SCHOOLS
    nodes, weights = torch.from_numpy(np.stack(np.polynomial.legendre.leggauss(400)))
    angle, mean = math.pi / 4 * (nodes + 1), 40 * nodes
    tau = 5 * angle.tan()
    deviation = (error.square() + tau[:, None, None].square()).sqrt()
    log_f = Normal(mean[:, None], deviation).log_prob(y).sum(-1)
    log_f = log_f + Normal(0 * mean, 5.0).log_prob(mean)
    log_f = log_f + (weights[:, None] / 2 * 40 * weights).log()
    assert evidence_targets.eight_schools().log_z == pytest.approx(
        float(torch.logsumexp(log_f.flatten(), 0)), abs=1e-8
    )


@pytest.mark.parametrize(
    "known",
    [
        lambda: evidence_targets.ising(3, 4),
        lambda: evidence_targets.glass(3, 4),
        lambda: evidence_targets.hopfield(12),
        lambda: evidence_targets.potts(3, 3, 3),
        lambda: evidence_targets.all_alike(7, 4),
        lambda: evidence_targets.planted(12, 5),
    ],
)
def test_sums_are_those_over_all_states(known: Callable[[], Known]) -> None:
    target = known()
    assert target.log_z == pytest.approx(over_all(target), abs=1e-9)


def test_every_target_says_where_it_lives() -> None:
    targets = [
        *evidence_targets.real_targets(),
        *evidence_targets.open_targets(),
        *evidence_targets.discrete_targets(),
    ]
    assert len({target.name for target in targets}) == len(targets)
    assert all((target.prior is None) != (target.support is None) for target in targets)
    assert {target.width for target in targets if target.prior} >= {2, 30}
