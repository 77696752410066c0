"""The conjugate table against quadrature (1e-8), streams against batches (1e-12), gradients against
differences.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from tests.bayes.quadrature import CASES, Case
from torch import Tensor

from partita.bayes.conjugate import (
    BernoulliBeta,
    Conjugate,
    GaussianMean,
    GaussianMeanPrecision,
    GaussianMeanWishart,
    GaussianPrecision,
    GaussianWishart,
    MultinomialDirichlet,
    PoissonGamma,
    UniformPareto,
    empirical_bayes,
)
from partita.errors import Diverged, InputError

EVERY = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
JOINT = GaussianMeanWishart(
    m=[0.3, -0.2], S=torch.tensor([[1.5, 0.4], [0.4, 1.1]], dtype=torch.float64), nu=4.0, k=0.7
)
PAIRS = [*[(case.pair, case.data) for case in CASES], (JOINT, CASES[3].data)]
ALL = pytest.mark.parametrize(
    ("pair", "data"), PAIRS, ids=lambda p: type(p).__name__ if isinstance(p, Conjugate) else ""
)


@EVERY
def test_evidence_is_the_integral(case: Case) -> None:
    assert float(case.pair.update(case.data).log_evidence) == pytest.approx(
        case.log_evidence(case.data), abs=1e-8
    )


@EVERY
def test_posterior_is_joint_over_evidence(case: Case) -> None:
    theta, _ = case.grid(case.data)
    log_joint = case.log_joint(case.data, theta)
    likely = np.argsort(log_joint)[-2000::199]
    truth = log_joint[likely] - case.log_evidence(case.data)
    ours = case.pair.update(case.data).posterior.log_prob(torch.from_numpy(theta[likely]))
    np.testing.assert_allclose(ours.numpy(), truth, rtol=0, atol=1e-8)


@EVERY
def test_predictive_is_the_average_over_the_posterior(case: Case) -> None:
    base = case.log_evidence(case.data)
    for x in case.new:
        truth = case.log_evidence(np.concatenate([case.data, x[None]])) - base
        assert float(
            case.pair.update(case.data).predictive.log_prob(torch.tensor(x))
        ) == pytest.approx(truth, abs=1e-8)


@ALL
def test_evidence_is_the_product_of_one_step_predictives(pair: Conjugate, data: np.ndarray) -> None:
    """p(x_{n+1} | X) is not p(x_{n+1}): each factor conditions on everything before it."""
    total = torch.zeros(())
    stream = pair
    for x in torch.from_numpy(data):
        predictive: Any = stream.predictive
        if isinstance(stream, MultinomialDirichlet):
            predictive = replace(stream, trials=int(x.sum())).predictive
        total = total + predictive.log_prob(x)
        stream = stream.update(x[None])
    assert float(pair.update(data).log_evidence) == pytest.approx(float(total), abs=1e-10)


@ALL
def test_a_stream_in_pieces_equals_the_whole(pair: Conjugate, data: np.ndarray) -> None:
    pieces = pair.update(data[:1]).update(data[1:1]).update(data[1:])
    whole = pair.update(data)
    for name in (*pair.constraints, "log_evidence"):
        torch.testing.assert_close(
            getattr(pieces, name), getattr(whole, name), rtol=1e-12, atol=1e-12
        )


@ALL
def test_whole_weights_repeat_data_and_zero_leaves_them_out(
    pair: Conjugate, data: np.ndarray
) -> None:
    counts = np.arange(len(data)) % 3
    weighted, repeated = pair.update(data, counts), pair.update(data.repeat(counts, axis=0))
    for name in (*pair.constraints, "log_evidence"):
        torch.testing.assert_close(
            getattr(weighted, name), getattr(repeated, name), rtol=1e-12, atol=1e-12
        )


@ALL
def test_gradients_in_the_hyper_parameters(pair: Conjugate, data: np.ndarray) -> None:
    names = tuple(pair.constraints)
    values = [getattr(pair, name).detach().clone().requires_grad_() for name in names]
    new = torch.from_numpy(data[:2])

    def outputs(*hyper: Tensor) -> tuple[Tensor, ...]:
        symmetric = [(h + h.mT) / 2 if h.dim() == 2 else h for h in hyper]
        after = replace(pair, **dict(zip(names, symmetric, strict=True))).update(data)
        predictive: Any = after.predictive
        predictive._validate_args = False
        return after.log_evidence, after.map, predictive.log_prob(new)

    assert torch.autograd.gradcheck(outputs, values)


@ALL
def test_batches_of_priors_and_of_data(pair: Conjugate, data: np.ndarray) -> None:
    """Two priors on the same data, and one prior on two data sets."""
    stacked = replace(
        pair, **{name: torch.stack([getattr(pair, name)] * 2) for name in pair.constraints}
    )
    both = stacked.update(data)
    one = pair.update(data)
    assert (
        both.posterior.batch_shape == both.predictive.batch_shape == both.log_evidence.shape == (2,)
    )
    torch.testing.assert_close(
        both.log_evidence, one.log_evidence.expand(2), rtol=1e-12, atol=1e-12
    )
    torch.testing.assert_close(both.map[1], one.map, rtol=1e-12, atol=1e-12)
    two = pair.update(np.stack([data[:2], data[-2:]], 1))
    torch.testing.assert_close(
        two.log_evidence[1], pair.update(data[-2:]).log_evidence, rtol=1e-12, atol=1e-12
    )


@EVERY
def test_map_is_where_the_posterior_is_largest(case: Case) -> None:
    after = case.pair.update(case.data)
    theta, _ = case.grid(case.data)
    best = theta[np.argmax(case.log_joint(case.data, theta))]
    peak, on_grid = (float(after.posterior.log_prob(torch.as_tensor(t))) for t in (after.map, best))
    assert -1e-9 <= peak - on_grid < 0.05
    np.testing.assert_allclose(after.map.numpy(), best, atol=0.25)


def test_joint_mean_and_precision_in_one_dimension_and_by_analytic_means() -> None:
    """D = 1 is the Normal-gamma with a = nu/2, b = S/2; D = 2 integrates the mean by hand and the
    matrix by quadrature.
    """
    x = np.array([1.2, -0.4, 2.2])
    vector = GaussianMeanWishart(m=[0.2], S=[[2.6]], nu=6.0, k=0.6).update(x[:, None])
    scalar = GaussianMeanPrecision(m=0.2, k=0.6, a=3.0, b=1.3).update(x)
    assert float(vector.log_evidence) == pytest.approx(float(scalar.log_evidence), abs=1e-12)
    torch.testing.assert_close(vector.map.flatten(), scalar.map, rtol=1e-12, atol=1e-12)
    case, n = CASES[3], len(CASES[3].data)
    lam, log_weight = case.grid(case.data)
    mean, log_det = case.data.mean(0), np.linalg.slogdet(lam)[1]
    scatter = (case.data - mean).T @ (case.data - mean)
    away = mean - np.array([0.3, -0.2])
    shrunk = 0.7 * n / (0.7 + n)
    log_likelihood = 0.5 * n * (log_det - 2 * np.log(2 * np.pi)) + np.log(0.7 / (0.7 + n))
    log_likelihood -= 0.5 * (
        np.einsum("ij,qij->q", scatter, lam) + shrunk * np.einsum("i,qij,j->q", away, lam, away)
    )
    truth = np.log(np.exp(case.log_prior(lam) + log_likelihood + log_weight).sum())
    assert float(JOINT.update(case.data).log_evidence) == pytest.approx(truth, abs=1e-8)


def test_far_away_data_keep_their_evidence() -> None:
    """A shift of a million of the data and the prior changes nothing beyond the rounding of the
    shifted data themselves.
    """
    x = torch.tensor([1.25, -0.5, 2.25]).double()  # exact after the shift
    for near, far in [
        (GaussianMean(0.5, 0.8, 1.7), GaussianMean(1e6 + 0.5, 0.8, 1.7)),
        (
            GaussianMeanPrecision(0.5, 0.6, 3.0, 1.3),
            GaussianMeanPrecision(1e6 + 0.5, 0.6, 3.0, 1.3),
        ),
    ]:
        assert float(far.update(x + 1e6).log_evidence) == pytest.approx(
            float(near.update(x).log_evidence), abs=1e-8
        )


def test_empirical_bayes_finds_the_prior_in_one_line() -> None:
    """Against scipy's maximum of the negative-binomial likelihood, written with scipy."""
    counts = stats.nbinom(2.5, 0.3).rvs(400, random_state=np.random.default_rng(3)).astype(float)
    best = empirical_bayes(PoissonGamma(1.0, 1.0), counts[None])  # one count of each of 400 groups

    def loss(log_hyper: np.ndarray) -> float:
        a, b = np.exp(log_hyper)
        return -stats.nbinom(a, b / (1 + b)).logpmf(counts).sum()

    truth = np.exp(
        optimize.minimize(
            loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-10}
        ).x
    )
    np.testing.assert_allclose([float(best.a), float(best.b)], truth, rtol=1e-5)


def test_empirical_bayes_of_matrices_and_of_one_name() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(6, 40, 2, generator=g, dtype=torch.float64) * torch.tensor([1.0, 2.0])
    # groups that were all alike would want an infinite nu
    x *= 0.3 + 2 * torch.rand(40, 1, generator=g, dtype=torch.float64)
    start = GaussianWishart(m=[0.0, 0.0], S=torch.eye(2).double(), nu=3.0)
    best = empirical_bayes(start, x, only=["S", "nu"])
    for other in (
        replace(best, nu=best.nu * 1.1),
        replace(best, nu=best.nu * 0.9),
        replace(best, S=best.S * 1.1),
    ):
        assert other.update(x).log_evidence.sum() < best.update(x).log_evidence.sum()
    torch.testing.assert_close(best.m, start.m)
    with pytest.raises(InputError, match="only must name some of m, S, nu"):
        empirical_bayes(start, x, only=["scale"])


def test_empirical_bayes_says_where_there_is_no_maximum() -> None:
    with pytest.raises(Diverged, match="the evidence must have a maximum"):
        empirical_bayes(
            GaussianMeanPrecision(0.0, 1.0, 1.0, 1.0),
            torch.tensor([[1.0], [2.0]]).double(),
            steps=8,
        )
    # counts that vary less than a Poisson's want an infinite shape
    with pytest.raises(Diverged, match="one that goes on rising"):
        empirical_bayes(PoissonGamma(1.0, 1.0), torch.tensor([[3.0, 3.0, 3.0]]))


@pytest.mark.parametrize(
    ("pair", "data", "message"),
    [
        (PoissonGamma(1.0, 1.0), [1.5], "data must be counts 0, 1, 2, ...; got 1.5"),
        (PoissonGamma(1.0, 1.0), [-1.0], "data must be counts 0, 1, 2, ...; got -1"),
        (BernoulliBeta(1.0, 1.0), [0.0, 2.0], "data must be zeros and ones; got 2"),
        (UniformPareto(1.0, 1.0), [-0.1], "data must be at least 0; got -0.1"),
        (MultinomialDirichlet(torch.ones(3)), [[1.0, 0.5, 0.0]], "data must be counts"),
        (MultinomialDirichlet(torch.ones(3)), [[1.0, 0.0]], r"data must have shape \(\*, 3\)"),
        (GaussianMean(0.0, 1.0, 1.0), [math.nan], "data must be finite; got nan"),
        (GaussianMean(0.0, 1.0, 1.0), ["one"], "data must be numbers; got"),
        (
            GaussianMean(torch.zeros(3), 1.0, 1.0),
            torch.zeros(5, 4),
            r"data must have shape \(n, 3\) to match the priors; got \(5, 4\)",
        ),
        (GaussianMean(0.0, 1.0, 1.0), 3.0, r"data must have shape \(n, \*batch\)"),
        (JOINT, [[1.0, 2.0, 3.0]], r"data must have shape \(\*, 2\)"),
    ],
)
def test_data_outside_the_support_are_named(pair: Conjugate, data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        pair.update(data)


def test_bad_weights_are_named() -> None:
    with pytest.raises(InputError, match="weight must not be negative; got -1"):
        PoissonGamma(1.0, 1.0).update([1.0, 2.0], [1.0, -1.0])
    with pytest.raises(InputError, match="weight must have one value per row, 2"):
        PoissonGamma(1.0, 1.0).update([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PoissonGamma(0.0, 1.0), "PoissonGamma: a must be above 0; got 0.0"),
        (lambda: GaussianPrecision(1.0, math.inf), "GaussianPrecision: b must be finite; got inf"),
        (
            lambda: GaussianWishart([0.0, 0.0], torch.ones(2, 2), 3.0),
            "S must be symmetric and positive definite",
        ),
        (
            lambda: GaussianWishart([0.0, 0.0], torch.tensor([[1.0, 0.9], [0.0, 1.0]]), 3.0),
            "S must be symmetric and positive definite",
        ),
        (
            lambda: GaussianWishart([0.0, 0.0], torch.eye(3), 3.0),
            r"m and S must have shapes \(\*, D\) and \(\*, D, D\)",
        ),
        (lambda: GaussianWishart([0.0, 0.0], torch.eye(2), 1.0), "nu must be above 1; got 1.0"),
    ],
)
def test_bad_hyper_parameters_are_named(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    "pair",
    [
        BernoulliBeta(1.0, 1.0),
        MultinomialDirichlet(torch.full((3,), 0.5)),
        GaussianWishart([0.0, 0.0], torch.eye(2), 2.5),
    ],
    ids=lambda p: type(p).__name__,
)
def test_a_posterior_without_a_mode_says_so(pair: Conjugate) -> None:
    with pytest.raises(InputError, match="map must belong to a posterior with one mode"):
        _ = pair.map
