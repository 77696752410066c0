"""Distributions that torch lacks: against scipy, against their own draws, and against integrals to
one.
"""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch.distributions import Distribution

from partita.bayes.distributions import (
    DirichletMultinomial,
    MultivariateStudentT,
    ParetoUniform,
    Wishart,
    cholesky,
)
from partita.bayes.joint import NormalGamma, NormalWishart
from partita.core import rng
from partita.errors import InputError

S = torch.tensor([[1.5, 0.4], [0.4, 1.1]], dtype=torch.float64)
LOC = torch.tensor([0.3, -0.2], dtype=torch.float64)
DRAWS = 20_000


def double(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


T = MultivariateStudentT(double(5.0), LOC, scale_matrix=S)
COUNTS = DirichletMultinomial(4, torch.tensor([0.5, 1.5, 3.0], dtype=torch.float64))
ENDS = ParetoUniform(double(1.5), double(3.5))
ALL: list[Distribution] = [
    T,
    COUNTS,
    ENDS,
    Wishart(double(6.0), covariance_matrix=S),
    NormalGamma(double(0.2), double(0.6), double(3.0), double(1.3)),
    NormalWishart(LOC, double(0.7), double(6.0), torch.linalg.cholesky(S)),
]


def test_multivariate_t_is_scipys() -> None:
    x = np.random.default_rng(0).normal(size=(9, 2)) * 3
    truth = stats.multivariate_t(LOC.numpy(), S.numpy(), df=5).logpdf(x)
    np.testing.assert_allclose(T.log_prob(torch.from_numpy(x)).numpy(), truth, rtol=1e-12)
    torch.testing.assert_close(T.covariance_matrix, S * 5 / 3)
    assert MultivariateStudentT(double(0.5), LOC, scale_matrix=S).mean.isnan().all()


def test_dirichlet_multinomial_is_scipys_and_sums_to_one() -> None:
    rows = torch.tensor([[i, j, 4 - i - j] for i in range(5) for j in range(5 - i)]).double()
    truth = stats.dirichlet_multinomial([0.5, 1.5, 3.0], 4).logpmf(rows.numpy().astype(int))
    np.testing.assert_allclose(COUNTS.log_prob(rows).numpy(), truth, rtol=1e-12)
    assert float(COUNTS.log_prob(rows).exp().sum()) == pytest.approx(1, abs=1e-12)
    two = DirichletMultinomial(4, torch.tensor([0.5, 1.5], dtype=torch.float64))
    pairs = torch.stack([torch.arange(5.0), 4 - torch.arange(5.0)], -1).double()
    np.testing.assert_allclose(
        two.log_prob(pairs).numpy(), stats.betabinom(4, 0.5, 1.5).logpmf(range(5)), rtol=1e-12
    )


def test_pareto_uniform_integrates_to_one_and_inverts() -> None:
    density = lambda x: math.exp(float(ENDS.log_prob(double(x))))  # noqa: E731
    total = integrate.quad(density, 0, 1.5)[0] + integrate.quad(density, 1.5, math.inf)[0]
    assert total == pytest.approx(1, abs=1e-9)
    u = torch.linspace(0.01, 0.999, 50).double()
    torch.testing.assert_close(ENDS.cdf(ENDS.icdf(u)), u, rtol=1e-12, atol=1e-12)
    assert float(ENDS.cdf(double(2.5))) == pytest.approx(
        integrate.quad(density, 0, 2.5, points=[1.5])[0], abs=1e-8
    )


@pytest.mark.parametrize("d", ALL, ids=lambda d: type(d).__name__)
def test_draws_have_the_mean_and_repeat(d: Distribution) -> None:
    """Every coordinate within five standard errors of its mean over 20,000 draws: false alarm below
    1e-5 a distribution.
    """
    x = rng.draw(d, torch.Generator().manual_seed(0), (DRAWS,))
    error = (x.mean(0) - d.mean).abs() / (x.std(0) / math.sqrt(DRAWS))
    assert x.shape == (DRAWS, *d.batch_shape, *d.event_shape) and float(error.max()) < 5
    torch.testing.assert_close(
        x, rng.draw(d, torch.Generator().manual_seed(0), (DRAWS,)), rtol=0, atol=0
    )


@pytest.mark.parametrize("d", ALL, ids=lambda d: type(d).__name__)
def test_expand_repeats_the_density(d: Distribution) -> None:
    x = rng.draw(d, torch.Generator().manual_seed(1), (3,))
    wide = d.expand(torch.Size([4, 3]))
    torch.testing.assert_close(wide.log_prob(x), d.log_prob(x).expand(4, 3), rtol=1e-12, atol=1e-12)


def test_multivariate_t_draws_are_differentiable() -> None:
    loc = LOC.clone().requires_grad_()
    with rng.seeded(torch.Generator().manual_seed(0)):
        MultivariateStudentT(double(5.0), loc, scale_matrix=S).rsample((10,)).sum().backward()
    torch.testing.assert_close(loc.grad, torch.full_like(LOC, 10.0))


def test_joint_densities_integrate_their_conditionals() -> None:
    """NormalGamma is the one-dimensional NormalWishart, up to the stated change of letters."""
    gamma = NormalGamma(double(0.2), double(0.6), double(3.0), double(1.3))
    value = torch.tensor([0.7, 1.9], dtype=torch.float64)
    wishart = NormalWishart(
        double(0.2)[None], double(0.6), double(6.0), double(math.sqrt(2.6))[None, None]
    )
    truth = stats.gamma(3.0, scale=1 / 1.3).logpdf(1.9) + stats.norm(
        0.2, (0.6 * 1.9) ** -0.5
    ).logpdf(0.7)
    assert float(gamma.log_prob(value)) == pytest.approx(truth, abs=1e-12)
    assert float(wishart.log_prob(value[None])) == pytest.approx(truth, abs=1e-12)


def test_wrong_matrices_are_named() -> None:
    for matrix in (torch.ones(2, 2), torch.tensor([[1.0, 0.5], [0.0, 1.0]])):
        with pytest.raises(
            InputError, match="scale_matrix must be symmetric and positive definite"
        ):
            MultivariateStudentT(3.0, torch.zeros(2), scale_matrix=matrix)
    with pytest.raises(InputError, match="one of scale_tril and scale_matrix must be given"):
        MultivariateStudentT(3.0, torch.zeros(2))
    with pytest.raises(InputError, match=r"M must be a square matrix; got shape \(2, 3\)"):
        cholesky("owner", "M", torch.ones(2, 3))
