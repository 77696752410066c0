"""Mean field: the ELBO never falls, is the evidence where the family is exact, and is below it
where it is not.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score
from tests.bayes.quadrature import line, product
from torch import Tensor

from partita.bayes.conjugate import GaussianMeanWishart
from partita.bayes.mean_field import (
    CategoricalFactor,
    DirichletFactor,
    Factor,
    GammaFactor,
    GaussianFactor,
    NormalWishartFactor,
    check_conjugacy,
    coordinate_ascent,
    elbo,
    gaussian,
    gaussian_mixture,
    linear_regression,
    update,
)
from partita.bayes.mean_field.gaussian import gaussian_log_joint
from partita.bayes.mean_field.mixture import data_prior, mixture_log_joint, seed_logits
from partita.core import rng
from partita.errors import InputError, Unsupported

IRIS = torch.from_numpy(load_iris().data)
X5 = torch.tensor([1.2, -0.4, 2.2, 0.9, 3.1]).double()


def tensor(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


FACTORS: list[Factor] = [
    GammaFactor(tensor([2.5, 4.0]), tensor([1.5, 0.7])),
    GaussianFactor(tensor([0.3, -1.0]), tensor([[0.5, 0.1], [0.1, 0.8]])),
    DirichletFactor(tensor([1.5, 0.7, 3.0])),
    CategoricalFactor(tensor([[0.2, 1.0, -0.5], [0.0, 0.0, 3.0]])),
    NormalWishartFactor(
        tensor([0.3, -0.2]), tensor(1.3), tensor(5.0), tensor([[1.5, 0.4], [0.4, 1.1]])
    ),
]


def sufficient(factor: Factor, draws: Tensor) -> dict[str, Tensor]:
    """t(theta) of draws, written out."""
    if isinstance(factor, GammaFactor):
        return {"log": draws.log(), "value": draws}
    if isinstance(factor, GaussianFactor):
        return {"value": draws, "outer": draws[..., :, None] * draws[..., None, :]}
    if isinstance(factor, DirichletFactor):
        return {"log": draws.log()}
    if isinstance(factor, CategoricalFactor):
        return {"one_hot": torch.nn.functional.one_hot(draws.long(), 3).double()}
    mu, lam = draws[..., 0], draws[..., 1:]
    shift = (lam @ mu[..., None])[..., 0]
    return {
        "log_det": torch.linalg.slogdet(lam)[1],
        "precision": lam,
        "shift": shift,
        "square": (shift * mu).sum(-1),
    }


@pytest.mark.parametrize("factor", FACTORS, ids=lambda f: type(f).__name__)
def test_statistics_and_entropy_are_those_of_draws(factor: Factor) -> None:
    """20,000 draws, five standard errors on each of at most 12 numbers: false alarm below 1e-5 a
    factor.
    """
    draws = rng.draw(factor.distribution, torch.Generator().manual_seed(0), (20_000,))
    for name, truth in sufficient(factor, draws).items():
        error = (truth.mean(0) - factor.statistics()[name]).abs() / (
            truth.std(0) / math.sqrt(20_000) + 1e-12
        )
        assert float(error.max()) < 5, name
    surprise = -factor.distribution.log_prob(draws).reshape(20_000, -1).sum(-1)
    assert abs(float(surprise.mean() - factor.entropy())) < 5 * float(surprise.std()) / math.sqrt(
        20_000
    )


@pytest.mark.parametrize("factor", FACTORS, ids=lambda f: type(f).__name__)
def test_natural_parameters_come_back(factor: Factor) -> None:
    """eta is the gradient of log q in t, so maximizing eta . s + H over the family gives the factor
    back.
    """
    generic: Any = factor
    eta = {name: torch.zeros_like(s) for name, s in factor.statistics().items()}
    if isinstance(generic, GammaFactor):
        eta = {"log": generic.a - 1, "value": -generic.b}
    elif isinstance(generic, GaussianFactor):
        P = torch.linalg.inv(generic.V)
        eta = {"value": P @ generic.m, "outer": -P / 2}
    elif isinstance(generic, DirichletFactor):
        eta = {"log": generic.alpha - 1}
    elif isinstance(generic, CategoricalFactor):
        eta = {"one_hot": generic.logits}
    else:
        k, m = generic.k, generic.m
        eta = {
            "log_det": (generic.nu - 2) / 2,
            "precision": -(generic.S + k * torch.outer(m, m)) / 2,
            "shift": k * m,
            "square": -k / 2,
        }
    back = factor.with_natural(eta)
    for name, s in factor.statistics().items():
        torch.testing.assert_close(back.statistics()[name], s, rtol=1e-12, atol=1e-12)


def test_gaussian_bound_is_below_the_evidence_and_at_its_maximum() -> None:
    """The evidence by quadrature; the bound against scipy's maximum over the same family, its terms
    integrated one by one.
    """
    m, t, a, b = 0.5, 0.4, 2.0, 1.5
    result = gaussian(X5, m=m, t=t, a=a, b=b)
    x = X5.numpy()

    (mu, lam), log_weight = (
        g.T if g.ndim == 2 else g for g in product(line(-8, 10, 200), line(0, 20, 200))
    )
    log_prior = stats.norm(m, t**-0.5).logpdf(mu) + stats.gamma(a, scale=1 / b).logpdf(lam)
    log_joint = stats.norm(mu, lam**-0.5).logpdf(x[:, None]).sum(0) + log_prior
    log_evidence = special.logsumexp(log_joint + log_weight)
    assert result.converged and result.elbo[-1] < log_evidence < result.elbo[-1] + 0.1

    def minus_bound(p: np.ndarray) -> float:
        mean, v, shape, rate = p[0], *np.exp(p[1:])
        e_lam, e_log = shape / rate, special.digamma(shape) - math.log(rate)
        squares = ((x - mean) ** 2 + v).sum()
        value = 0.5 * len(x) * (e_log - math.log(2 * math.pi)) - 0.5 * e_lam * squares
        value += 0.5 * math.log(t / (2 * math.pi)) - 0.5 * t * ((mean - m) ** 2 + v)
        value += a * math.log(b) - math.lgamma(a) + (a - 1) * e_log - b * e_lam
        return -(
            value
            + stats.norm(0, math.sqrt(v)).entropy()
            + stats.gamma(shape, scale=1 / rate).entropy()
        )

    best = optimize.minimize(minus_bound, np.zeros(4), method="BFGS", options={"gtol": 1e-9})
    assert result.elbo[-1] == pytest.approx(-best.fun, abs=1e-7)
    factors: Any = result.factors
    np.testing.assert_allclose(
        [float(factors["mu"].m), float(factors["lam"].a / factors["lam"].b)],
        [best.x[0], np.exp(best.x[2] - best.x[3])],
        atol=1e-4,
    )


def test_iris_with_one_component_gives_the_exact_evidence() -> None:
    prior = data_prior(IRIS)
    truth = float(prior.update(IRIS).log_evidence)
    result = gaussian_mixture(IRIS, 1, generator=torch.Generator().manual_seed(0))
    assert result.elbo[-1] == pytest.approx(truth, abs=1e-6)
    torch.testing.assert_close(
        result.predictive.log_prob(IRIS),
        prior.update(IRIS).predictive.log_prob(IRIS),
        rtol=1e-9,
        atol=1e-9,
    )


def test_far_away_iris_gives_the_same_bound() -> None:
    g = torch.Generator().manual_seed(0)
    near, far = (gaussian_mixture(x, 1, generator=g).elbo[-1] for x in (IRIS, IRIS + 2.0**20))
    assert far == pytest.approx(near, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_mixture_bound_never_falls_at_any_single_update(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    x, K = IRIS - IRIS.mean(0), 4
    prior = data_prior(x)
    log_joint = mixture_log_joint(x, 0.3, prior, K)
    q: Any = {
        "components": NormalWishartFactor(
            prior.m.expand(K, 4), prior.k.expand(K), prior.nu.expand(K), prior.S.expand(K, 4, 4)
        ),
        "pi": DirichletFactor(torch.full((K,), 0.3).double()),
        "z": CategoricalFactor(seed_logits(x, K, g)),
    }
    bound = float(elbo(log_joint, q))
    for name in [*q] * 30:
        q = update(log_joint, q, name)
        now = float(elbo(log_joint, q))
        assert now >= bound - 1e-9
        bound = now


def test_mixture_bound_is_below_the_evidence_summed_over_all_labels() -> None:
    """Seven points, two components: 2^7 labelings, each with its Dirichlet-multinomial and
    Normal-Wishart evidence.
    """
    x = tensor([[-2.0], [-1.6], [-2.4], [1.9], [2.2], [1.4], [2.5]])
    prior = GaussianMeanWishart(m=[0.0], S=[[1.0]], nu=3.0, k=0.2)
    alpha, terms = 0.7, []
    for label in range(2**7):
        z = torch.tensor([(label >> i) & 1 for i in range(7)]).bool()
        counts = [int((~z).sum()), int(z.sum())]
        log_z = (
            sum(math.lgamma(alpha + c) - math.lgamma(alpha) for c in counts)
            + math.lgamma(2 * alpha)
            - math.lgamma(2 * alpha + 7)
        )
        terms.append(
            log_z + float(prior.update(x[~z]).log_evidence) + float(prior.update(x[z]).log_evidence)
        )
    truth = special.logsumexp(terms)
    result = gaussian_mixture(
        x, 2, alpha=alpha, prior=prior, generator=torch.Generator().manual_seed(0)
    )
    assert result.elbo[-1] < truth
    # q keeps one of two equal labelings
    assert truth - result.elbo[-1] == pytest.approx(math.log(2), abs=0.15)


def test_mixture_finds_the_species_and_drops_what_is_not_needed() -> None:
    result = gaussian_mixture(IRIS, 3, generator=torch.Generator().manual_seed(1))
    assert adjusted_rand_score(load_iris().target, result.responsibilities.argmax(-1).numpy()) > 0.5
    many = gaussian_mixture(IRIS, 10, alpha=1e-3, generator=torch.Generator().manual_seed(1))
    spread = gaussian_mixture(IRIS, 10, alpha=10.0, generator=torch.Generator().manual_seed(1))
    assert int((many.weights > 1e-3).sum()) < int((spread.weights > 1e-3).sum()) == 10
    assert float(many.predictive.log_prob(IRIS).mean()) > float(
        data_prior(IRIS).update(IRIS).predictive.log_prob(IRIS).mean()
    )


def test_regression_with_known_precisions_is_exact() -> None:
    """The evidence is that of y ~ N(0, I / lambda + X X' / alpha)."""
    g = np.random.default_rng(0)
    X, y = g.normal(size=(12, 3)), g.normal(size=12)
    result = linear_regression(X, y, noise=2.5, prior=0.7)
    truth = stats.multivariate_normal(np.zeros(12), np.eye(12) / 2.5 + X @ X.T / 0.7).logpdf(y)
    assert result.elbo[-1] == pytest.approx(truth, abs=1e-9)


def test_regression_with_unknown_precisions_is_a_tight_bound() -> None:
    """The evidence by quadrature over both log precisions."""
    g = np.random.default_rng(1)
    X = g.normal(size=(25, 2))
    y = X @ [1.0, -0.5] + 0.6 * g.normal(size=25)
    result = linear_regression(X, y, noise=(2.0, 1.0), prior=(2.0, 1.0))
    nodes, weight = special.roots_legendre(80)
    u = 5 * nodes  # log precision
    covariance = np.eye(25) / np.exp(u)[:, None, None, None] + X @ X.T / np.exp(u)[:, None, None]
    quadratic = (y * np.linalg.solve(covariance, y[:, None])[..., 0]).sum(-1)
    values = -0.5 * (np.linalg.slogdet(covariance)[1] + quadratic + 25 * np.log(2 * np.pi))
    prior = stats.gamma(2.0, scale=1.0).logpdf(np.exp(u)) + u + np.log(5 * weight)
    truth = special.logsumexp(values + prior[:, None] + prior)
    assert truth - 0.5 < result.elbo[-1] < truth
    assert all(
        after >= before - 1e-9 for before, after in zip(result.elbo, result.elbo[1:], strict=False)
    )


def test_conjugacy_is_checked_and_the_factor_named() -> None:
    lam, w = GammaFactor(tensor(2.0), tensor(1.0)), GaussianFactor(tensor([0.1]), tensor([[1.0]]))
    with pytest.raises(
        Unsupported,
        match="factor 'lam' breaks conjugacy: the log joint is not affine in its statistic 'value'",
    ):
        check_conjugacy(lambda s: s["lam"]["log"] - s["lam"]["value"] ** 2, {"lam": lam})
    # logistic
    with pytest.raises(
        Unsupported,
        match="factor 'w' breaks conjugacy: the log joint is not affine in its statistic 'value'",
    ):
        coordinate_ascent(
            lambda s: -torch.nn.functional.softplus(-s["w"]["value"]).sum() - s["w"]["outer"].sum(),
            {"w": w},
        )
    with pytest.raises(
        Unsupported, match="factor 'lam' breaks conjugacy: its update is no GammaFactor"
    ):
        coordinate_ascent(lambda s: s["lam"]["log"] + s["lam"]["value"], {"lam": lam})
    with pytest.raises(Unsupported, match="factor 'w' does not appear in the log joint"):
        check_conjugacy(lambda s: s["lam"]["log"] - s["lam"]["value"], {"lam": lam, "w": w})
    check_conjugacy(gaussian_log_joint(X5, 0.0, 1.0, 1.0, 1.0), {"mu": w, "lam": lam})


def test_bad_input_is_named() -> None:
    g = torch.Generator().manual_seed(0)
    with pytest.raises(InputError, match="x must have at least 5 rows; got 3"):
        gaussian_mixture(IRIS[:3], 5, generator=g)
    with pytest.raises(InputError, match="x must have a covariance of full rank"):
        gaussian_mixture(torch.cat([IRIS, IRIS[:, :1]], 1), 2, generator=g)
    with pytest.raises(InputError, match="x must be finite"):
        gaussian([1.0, math.nan])
    with pytest.raises(InputError, match="noise must be a finite number above 0; got -1"):
        linear_regression([[1.0], [2.0]], [1.0, 2.0], noise=-1.0)
    with pytest.raises(InputError, match=r"y must have shape \(2,\) to match X; got \(3,\)"):
        linear_regression([[1.0], [2.0]], [1.0, 2.0, 3.0])
