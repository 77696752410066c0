"""Coordinates without bounds against their inverses, small differences and scipy."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import (
    Beta,
    Cauchy,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    StudentT,
    Uniform,
)

from partita.core.support import Interval, Product, Real
from partita.errors import InputError
from partita.models.energy.coordinates import Coordinates, Prior, coordinates_of

MIXED = Product([Real(1), Interval(1, 0.0, math.inf), Interval(2, -3.0, 5.0)])
MARGINALS = [
    Normal(1.0, 2.0),
    Uniform(-1.0, 4.0),
    Gamma(2.0, 3.0),
    Beta(2.0, 0.5),
    StudentT(3.0, 1.0, 2.0),
    HalfNormal(2.0),
    HalfCauchy(1.5),
    Cauchy(0.5, 2.0),
    Exponential(0.3),
    Laplace(1.0, 0.5),
    LogNormal(0.2, 0.7),
    stats.weibull_min(1.7, scale=2.0),
]


def places(width: int) -> Tensor:
    g = torch.Generator().manual_seed(0)
    return 2 * torch.randn(50, width, generator=g, dtype=torch.float64)


def slope(coordinates: Coordinates, u: Tensor) -> Tensor:
    """dT/du of each coordinate, by autograd."""
    u = u.clone().requires_grad_()
    return torch.autograd.grad(coordinates.outer(u).sum(), u)[0]


@pytest.mark.parametrize(
    "coordinates",
    [
        coordinates_of(MIXED),
        coordinates_of(Interval(2, -math.inf, 2.0)),
        Prior("test", MARGINALS),
    ],
    ids=["mixed", "below", "prior"],
)
def test_maps_have_inverses_and_slopes(coordinates: Coordinates) -> None:
    u = places(coordinates.width)
    assert torch.allclose(coordinates.inner(coordinates.outer(u)), u, atol=1e-6)
    h = 1e-6
    rise = (coordinates.outer(u + h) - coordinates.outer(u - h)) / (2 * h)
    assert torch.allclose(slope(coordinates, u), rise, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("support", [MIXED, Interval(3, 0.0, 1.0), Real(3)])
def test_the_jacobian_is_that_of_the_map(support: Product | Interval | Real) -> None:
    coordinates = coordinates_of(support)
    u = places(support.width)
    expected = slope(coordinates, u).log().sum(-1)
    assert torch.allclose(coordinates.log_jacobian(u), expected, atol=1e-9)


def test_a_prior_makes_normal_numbers_of_its_own_draws() -> None:
    # thirteen tests at 1e-4 each: a false alarm once in 800 seeds
    torch.manual_seed(0)
    prior = Prior("test", MARGINALS)
    rng = np.random.default_rng(0)
    x = torch.stack(
        [
            torch.as_tensor(one.rvs(4000, random_state=rng))
            if hasattr(one, "rvs")
            else one.sample((4000,)).double()
            for one in MARGINALS
        ],
        -1,
    )
    for column in prior.inner(x).unbind(-1):
        assert stats.kstest(column.numpy(), "norm").pvalue > 1e-4


def test_tails_keep_their_digits() -> None:
    prior = Prior("test", [stats.expon(), stats.norm(0, 2), Exponential(1.0)])
    u = torch.full((1, 3), 30.0, dtype=torch.float64)
    x = prior.outer(u)
    assert x[0, 0] == pytest.approx(-stats.norm.logsf(30.0), rel=1e-9)
    assert x[0, 1] == pytest.approx(60.0)
    assert torch.allclose(prior.inner(x), u)


def test_a_batch_of_torch_is_several_coordinates() -> None:
    prior = Prior("test", [Normal(torch.zeros(3), torch.tensor([1.0, 2.0, 3.0])), Uniform(0.0, 1)])
    assert prior.width == 4
    assert torch.allclose(
        prior.outer(torch.ones(4, dtype=torch.float64))[:3],
        torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64),
    )


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        ([], r"prior must be a list of distributions"),
        ("normal", r"prior must be a list"),
        ([stats.poisson(3)], r"continuous distributions.*rv_discrete_frozen in place 0"),
        ([torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))], r"Multivariate"),
        ([lambda u: u], r"function in place 0"),
    ],
)
def test_what_is_no_prior_is_named(prior: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Prior("log_z", prior)  # type: ignore[arg-type]


def test_an_empty_interval_is_named() -> None:
    with pytest.raises(InputError, match="low and high must be numbers, low below high"):
        Interval(2, 1.0, 0.0)
