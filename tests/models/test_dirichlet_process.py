"""The Dirichlet process and the kernels of its mixture against closed forms, scipy and
quadrature.
"""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import betabinom, dirichlet_multinomial, gamma, kstest, multivariate_t, norm

from partita.errors import InputError, Unsupported
from partita.models import DPMixture
from partita.models.directed.dirichlet_process import (
    draw_concentration,
    expected_clusters,
    log_partition_prior,
    polya_urn,
    stick_breaking,
)
from partita.models.directed.dirichlet_process.kernels import (
    KERNELS,
    TOTALS,
    Bernoulli,
    Clusters,
    Gaussian,
    Kernel,
    KnownScale,
    Multinomial,
)

FALSE_ALARM = 1e-3


def check_mean(values: np.ndarray, exact: float, comparisons: int) -> None:
    error = abs(values.mean() - exact) / (values.std(ddof=1) / math.sqrt(len(values)))
    assert error < norm.isf(FALSE_ALARM / comparisons / 2), (values.mean(), exact)


@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_sticks_have_the_moments_of_the_process(alpha: float, generator: torch.Generator) -> None:
    """E[pi_1] = 1 / (1 + alpha), E[sum pi^2] = 1 / (1 + alpha), and E_G[f] = E_H[f] for f = theta
    and theta^2; 1e-3 over 8 z tests.
    """
    found = []
    for _ in range(1500):
        weights = stick_breaking(alpha, generator=generator)
        # H = N(2, 1)
        theta = 2 + torch.randn(len(weights), generator=generator, dtype=torch.float64)
        found.append(
            [weights[0], weights.square().sum(), weights @ theta, weights @ theta.square()]
        )
        assert float(weights.sum()) == pytest.approx(1.0, abs=1e-12)
    for values, exact in zip(
        np.array(found).T, [1 / (1 + alpha), 1 / (1 + alpha), 2.0, 5.0], strict=True
    ):
        check_mean(values, exact, 8)


def test_many_sticks_are_like_the_base_measure(generator: torch.Generator) -> None:
    """Var[G(A)] = H(A) (1 - H(A)) / (1 + alpha) goes to zero: at alpha = 1e5 G's distribution
    function is H's within 0.02.

    sup |G - H| is about a Brownian bridge's over sqrt(1 + alpha); it passes 0.02 with probability 2
    exp(-2 0.02^2 1e5) < 1e-30.
    """
    weights = stick_breaking(1e5, tail=1e-4, generator=generator)
    theta, order = torch.randn(len(weights), generator=generator, dtype=torch.float64).sort()
    assert np.abs(weights[order].cumsum(0).numpy() - norm.cdf(theta.numpy())).max() < 0.02


@pytest.mark.parametrize("alpha", [0.7, 4.0])
def test_the_urn_has_the_moments_of_the_process(alpha: float, generator: torch.Generator) -> None:
    """E[K] by its sum, marginals H, equal pairs with probability 1 / (1 + alpha); 1e-3 over 6
    tests, and two of Kolmogorov's.
    """
    n, clusters, last, tied = 30, [], [], []
    for _ in range(2000):
        theta, ball = polya_urn(
            n, alpha, lambda k: torch.randn(k, generator=generator), generator=generator
        )
        clusters.append(int(ball.max()) + 1)
        last.append(float(theta[-1]))
        tied.append(float(theta[0] == theta[-1]))
        assert torch.equal(theta[0] == theta, ball == ball[0])
    check_mean(np.array(clusters), sum(alpha / (alpha + i) for i in range(n)), 6)
    check_mean(np.array(tied), 1 / (1 + alpha), 6)
    check_mean(np.array(last), 0.0, 6)
    assert kstest(last, "norm").pvalue > FALSE_ALARM / 2
    assert expected_clusters(n, alpha) == pytest.approx(
        sum(alpha / (alpha + i) for i in range(n)), rel=1e-12
    )


def test_a_large_alpha_makes_the_urn_independent(generator: torch.Generator) -> None:
    """At alpha = 1e9 a tie among 200 draws has probability below 2e-5, so they are independent
    draws of H.
    """
    theta, ball = polya_urn(
        200, 1e9, lambda k: torch.randn(k, generator=generator), generator=generator
    )
    assert torch.equal(ball, torch.arange(200))
    assert kstest(theta.numpy(), "norm").pvalue > FALSE_ALARM


def test_the_law_of_partitions_is_the_urns(generator: torch.Generator) -> None:
    """The urn's own sequence of choices multiplies to the Ewens law."""
    alpha, sizes = 1.7, []
    log_p = 0.0
    for i, block in enumerate([0, 1, 0, 2, 1, 0, 0]):
        new = block == len(sizes)
        sizes += [0] * new
        log_p += math.log((alpha if new else sizes[block]) / (alpha + i))
        sizes[block] += 1
    assert float(log_partition_prior(torch.tensor([*sizes, 0]), alpha)) == pytest.approx(
        log_p, abs=1e-12
    )


@pytest.mark.parametrize(("clusters", "n", "shape", "rate"), [(1, 20, 1.0, 1.0), (6, 50, 2.0, 0.5)])
def test_alpha_has_its_posterior(
    clusters: int, n: int, shape: float, rate: float, generator: torch.Generator
) -> None:
    """Mean and distribution function of 4,000 independent chains after 30 steps against quadrature;
    1e-3 over 2 x 4 z tests.
    """

    def density(a: float) -> float:
        return math.exp(clusters * math.log(a) + gammaln(a) - gammaln(a + n)) * gamma.pdf(
            a, shape, scale=1 / rate
        )

    total = quad(density, 0, np.inf, limit=200)[0]
    alpha = torch.ones(4000, dtype=torch.float64)
    for _ in range(30):
        alpha = draw_concentration(
            alpha, torch.full((4000,), clusters), n, shape, rate, generator=generator
        )
    check_mean(alpha.numpy(), quad(lambda a: a * density(a), 0, np.inf, limit=200)[0] / total, 8)
    for edge in (0.5, 1.0, 2.0):
        check_mean((alpha < edge).double().numpy(), quad(density, 0, edge)[0] / total, 8)


def made(law: type[Kernel], width: int, prior: list[float]) -> tuple[Kernel, Clusters]:
    """A kernel, and a cluster of five rows of its support."""
    rng = np.random.default_rng(3)
    x = {
        Bernoulli: rng.integers(0, 2, (5, width)),
        Multinomial: rng.integers(0, 4, (5, width)),
    }.get(law, rng.normal(size=(5, width)))
    x = torch.from_numpy(np.asarray(x, dtype=np.float64))
    off = x - x.mean(0)
    scatter = (off.T @ off)[None] if law.scatters else torch.zeros(1, 0, 0, dtype=torch.float64)
    return law(torch.tensor(prior, dtype=torch.float64), width), Clusters(
        torch.tensor([5.0]).double(), x.mean(0)[None], scatter
    )


PRIORS = {
    Gaussian: [0.4, 5.0, 0.2, -0.1, 0.3, 2.0, 0.3, 0.1, 0.3, 1.5, 0.2, 0.1, 0.2, 1.0],
    KnownScale: [0.5, 1.0, 2.0, 3.0, 2.0, 1.0, 0.1, 0.2, -0.3],
    Bernoulli: [0.5, 1.0, 2.0, 1.5, 0.7, 1.1],
    Multinomial: [0.5, 1.0, 2.0, *[5.0] * TOTALS],
}


def test_predictives_are_scipys() -> None:
    x = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    kernel, cluster = made(Gaussian, 3, PRIORS[Gaussian])
    kappa, nu, m, L = kernel.posterior(cluster)  # type: ignore[attr-defined]
    shape = (L @ L.mT)[0] * (kappa + 1) / (kappa * (nu - 2))
    law = multivariate_t(m[0].numpy(), shape.numpy(), df=float(nu - 2))
    np.testing.assert_allclose(
        kernel.log_predictive(x, cluster)[:, 0], law.logpdf(x.numpy()), rtol=1e-12
    )
    kernel, cluster = made(Bernoulli, 3, PRIORS[Bernoulli])
    a, b = (side[0].numpy() for side in kernel.posterior(cluster))  # type: ignore[attr-defined]
    np.testing.assert_allclose(
        kernel.log_predictive(x, cluster)[:, 0],
        betabinom.logpmf(x.numpy(), 1, a, b).sum(1),
        rtol=1e-10,
    )
    kernel, cluster = made(Multinomial, 3, PRIORS[Multinomial])
    counts, b = torch.tensor([[3.0, 0.0, 2.0]]).double(), kernel.posterior(cluster)[0].numpy()  # type: ignore[attr-defined]
    assert float(kernel.log_predictive(counts, cluster)) == pytest.approx(
        float(dirichlet_multinomial.logpmf([3, 0, 2], b, 5)), rel=1e-10
    )
    kernel, cluster = made(KnownScale, 3, PRIORS[KnownScale])
    mean, variance = kernel.posterior(cluster)  # type: ignore[attr-defined]
    sd = (variance[0] + torch.tensor([0.5, 1.0, 2.0])).sqrt().numpy()
    np.testing.assert_allclose(
        kernel.log_predictive(x, cluster)[:, 0],
        norm.logpdf(x.numpy(), mean[0].numpy(), sd).sum(1),
        rtol=1e-12,
    )


@pytest.mark.parametrize("law", KERNELS.values())
def test_parameters_average_to_the_predictive(
    law: type[Kernel], generator: torch.Generator
) -> None:
    """E over drawn parameters of K(x | theta) is the predictive; z tests, 1e-3 over 4 kernels x 2
    rows.
    """
    kernel, cluster = made(law, 3, PRIORS[law])
    x = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    many = Clusters(*(part.expand(20_000, *part.shape[1:]) for part in cluster))
    constant, center, matrix = kernel.parameters(many, generator=generator)
    for row in x:
        off = (
            (matrix @ (row - center)[:, :, None]).squeeze(-1) if matrix.numel() else torch.zeros(1)
        )
        log_k = constant - off.square().sum(-1) / 2 if matrix.numel() else constant + center @ row
        density = (log_k + kernel.log_base(row[None])).exp()
        check_mean(density.numpy(), float(kernel.log_predictive(row[None], cluster).exp()), 8)


@pytest.mark.parametrize("law", KERNELS.values())
def test_drawn_rows_have_the_predictive(law: type[Kernel], generator: torch.Generator) -> None:
    """Over rows drawn from the prior's predictive p, a normalized h has E[h(x) / p(x)] = 1; h is a
    cluster's. z tests, 1e-3 over 4.
    """
    kernel, cluster = made(law, 3, PRIORS[law])
    none = kernel.nothing()
    x = kernel.draw(
        Clusters(*(part.expand(20_000, *part.shape[1:]) for part in none)), generator=generator
    )
    weight = (kernel.log_predictive(x, cluster) - kernel.log_predictive(x, none)).exp()[:, 0]
    check_mean(weight.numpy(), 1.0, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"kernel": "poisson"},
            "kernel must be one of 'gaussian', 'bernoulli', 'multinomial'; got 'poisson'",
        ),
        ({"alpha": 0.0}, "alpha must be a finite number above 0; got 0.0"),
        (
            {"known_scale": -1.0},
            "known_scale must be a finite number above 0, or 2 of them, one per column; got -1.0",
        ),
        (
            {"known_scale": [1.0, 2.0, 3.0]},
            "known_scale must be a finite number above 0, or 2 of them",
        ),
        ({"prior_scale": 2.0}, "prior_scale must go with known_scale; got 2.0"),
        (
            {"kernel": "bernoulli", "prior_mean": 0.0},
            "prior_mean must be None unless kernel='gaussian'; got 0.0",
        ),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(
        InputError, match=f"DPMixture: {message}".replace("(", r"\(").replace(")", r"\)")
    ):
        DPMixture(2, **settings, generator=torch.Generator())  # type: ignore[arg-type]


def test_without_draws_it_says_so(generator: torch.Generator) -> None:
    with pytest.raises(
        Unsupported, match=r"no posterior draw is kept yet\. Fit it by CollapsedGibbs first"
    ):
        DPMixture(2, generator=generator).draw(3, generator=generator)
