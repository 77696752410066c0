"""Regressions against quadrature over the weights, and against the Gaussian and Student-t they must
be.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from scipy.special import expit, logsumexp, softmax
from sklearn.linear_model import LogisticRegression
from tests.bayes.quadrature import line, product, squares
from torch import Tensor

from partita.bayes.regression import (
    LinearRegression,
    PosteriorDraws,
    best_ridge,
    logistic_regression,
)
from partita.bayes.regression.logistic import height_and_slope, log_joint
from partita.errors import InputError

RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(7), RNG.normal(size=7)])
Y = X @ [0.5, -1.0] + 0.7 * RNG.normal(size=7)
NEW = np.array([[1.0, 2.0], [1.0, -0.3]])
M, K, A, B = np.array([0.2, -0.1]), np.array([[1.0, 0.2], [0.2, 0.6]]), 2.5, 1.4
PRIOR = LinearRegression(torch.from_numpy(M), torch.from_numpy(K), A, B)


def evidence_by_quadrature(X: np.ndarray, y: np.ndarray) -> float:
    """The weights by the Gaussian they make of y, the noise precision on a grid."""
    lam, log_weight = squares(7.0)
    V = np.eye(len(y)) + X @ np.linalg.solve(K, X.T)
    away = y - X @ M
    log_normal = 0.5 * (
        len(y) * np.log(lam / (2 * np.pi))
        - np.linalg.slogdet(V)[1]
        - lam * (away @ np.linalg.solve(V, away))
    )
    return float(logsumexp(log_normal + stats.gamma(A, scale=1 / B).logpdf(lam) + log_weight))


def test_linear_evidence_and_predictive_are_the_integrals() -> None:
    after = PRIOR.update(X, Y)
    truth = evidence_by_quadrature(X, Y)
    assert float(after.log_evidence) == pytest.approx(truth, abs=1e-8)
    for row, y in zip(NEW, (0.4, -3.0), strict=True):
        both = evidence_by_quadrature(np.vstack([X, row]), np.append(Y, y))
        assert float(
            after.predictive(row[None]).log_prob(torch.tensor([y]).double())
        ) == pytest.approx(both - truth, abs=1e-8)


def test_linear_posterior_is_joint_over_evidence() -> None:
    """p(w, lambda | y) = t marginal of w times the gamma of lambda given w; here the marginal of w
    by quadrature over lambda.
    """
    after, truth = PRIOR.update(X, Y), evidence_by_quadrature(X, Y)
    lam, log_weight = squares(7.0)
    for w in np.array([[0.3, -0.8], [0.0, 0.0], [1.0, -1.5]]):
        away, residual = w - M, Y - X @ w
        log_prior = 0.5 * (
            2 * np.log(lam / (2 * np.pi)) + np.linalg.slogdet(K)[1] - lam * (away @ K @ away)
        )
        log_likelihood = 0.5 * (7 * np.log(lam / (2 * np.pi)) - lam * (residual @ residual))
        joint = logsumexp(
            log_prior + log_likelihood + stats.gamma(A, scale=1 / B).logpdf(lam) + log_weight
        )
        assert float(after.posterior.log_prob(torch.from_numpy(w))) == pytest.approx(
            joint - truth, abs=1e-8
        )


def test_linear_streams_weights_and_gradients() -> None:
    whole, pieces = PRIOR.update(X, Y), PRIOR.update(X[:3], Y[:3]).update(X[3:], Y[3:])
    weight = np.array([0, 1, 2, 1, 0, 3, 1])
    weighted = PRIOR.update(X, Y, weight)
    repeated = PRIOR.update(X.repeat(weight, 0), Y.repeat(weight))
    for name in ("m", "K", "a", "b", "log_evidence"):
        torch.testing.assert_close(
            getattr(pieces, name), getattr(whole, name), rtol=1e-12, atol=1e-12
        )
        torch.testing.assert_close(
            getattr(weighted, name), getattr(repeated, name), rtol=1e-12, atol=1e-12
        )

    def evidence(m: Tensor, K: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return LinearRegression(m, 0.5 * (K + K.mT), a, b).update(X, Y).log_evidence

    hyper = [torch.as_tensor(v, dtype=torch.float64).clone().requires_grad_() for v in (M, K, A, B)]
    assert torch.autograd.gradcheck(evidence, hyper)


def test_best_ridge_is_the_maximum_of_the_evidence_of_updates() -> None:
    rows = RNG.normal(size=(12, 3))
    Z, y = (
        torch.from_numpy(v - v.mean(0))
        for v in (rows, rows @ [1.0, -2.0, 0.5] + RNG.normal(size=12))
    )
    weight = torch.ones(12).double()

    def loss(log_k: float) -> float:
        prior = LinearRegression(
            torch.zeros(3).double(), math.exp(log_k) * torch.eye(3).double(), 1.0, 1.0
        )
        return -float(prior.update(Z, y, weight, centered=True).log_evidence)

    truth = optimize.minimize_scalar(
        loss, bounds=(-8, 8), method="bounded", options={"xatol": 1e-9}
    ).x
    assert math.log(best_ridge(Z, y, weight, 1.0, 1.0)) == pytest.approx(truth, abs=1e-4)


LABELS = (expit(2.5 * X[:, 1]) > np.array([0.2, 0.7, 0.4, 0.5, 0.1, 0.9, 0.6])).astype(float)
PRECISION = np.array([0.3, 0.5])


def posterior_grid() -> tuple[np.ndarray, np.ndarray, float]:
    """Weights, their posterior masses, and the log evidence, in two dimensions."""
    w, log_weight = product(line(-25, 25, 400), line(-20, 30, 400))
    logits = w @ X.T
    log_p = (LABELS * -np.logaddexp(0, -logits) + (1 - LABELS) * -np.logaddexp(0, logits)).sum(1)
    log_p += stats.norm(0, PRECISION**-0.5).logpdf(w).sum(1) + log_weight
    total = float(logsumexp(log_p))
    return w, np.exp(log_p - total), total


def assert_draws_are_the_posteriors(draws: PosteriorDraws, p: np.ndarray, mass: np.ndarray) -> None:
    """Averages of p (grid, rows, classes) and medians to five standard errors at the effective
    number of draws: a false alarm in 1e6.
    """
    truth = np.einsum("g,gnk->nk", mass, p)
    found = draws.average(torch.from_numpy(NEW)).numpy()
    medians = draws.quantiles(torch.from_numpy(NEW), torch.tensor([0.5]))[..., 0]
    assert (
        np.abs(found - truth)
        < 5 * np.sqrt(np.einsum("g,gnk->nk", mass, (p - truth) ** 2) / draws.ess)
    ).all()
    below = np.einsum("g,gnk->nk", mass, p <= medians.numpy())
    assert (np.abs(below - 0.5) < 5 * 0.5 / np.sqrt(draws.ess)).all()


def test_logistic_mode_evidence_and_average_by_quadrature() -> None:
    w, mass, log_evidence = posterior_grid()
    posterior = logistic_regression(X, LABELS, PRECISION)

    def joint(v: np.ndarray) -> float:
        at = torch.from_numpy(v)
        return -float(log_joint(at, posterior.X, posterior.y, posterior.weight, posterior.A))

    best = optimize.minimize(joint, np.zeros(2), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(posterior.map.numpy(), best.x, atol=1e-6)
    # Laplace's, on seven rows
    assert float(posterior.log_evidence) == pytest.approx(log_evidence, abs=0.5)
    p = expit(w @ NEW.T)
    g = torch.Generator().manual_seed(0)
    for draws in (
        posterior.importance(20_000, generator=g),
        posterior.hamiltonian(8_000, generator=g),
    ):
        assert draws.verdict == "tight"
        assert_draws_are_the_posteriors(draws, np.stack([1 - p, p], -1), mass)
    truth, at_mode = mass @ p, posterior.at_mode(torch.from_numpy(NEW))[:, 1].numpy()
    assert (np.abs(truth - 0.5) < np.abs(at_mode - 0.5)).all()  # the average is less sure


THREE = np.array([0, 2, 1, 1, 2, 0, 2])


def test_three_classes_by_quadrature_over_weights_of_their_own() -> None:
    """One column without intercept; each class has a weight N(0, 1 / (2 a)), so that differences
    have N(0, 1 / a), and softmax.
    """
    column, a = X[:, 1:], 0.4
    w, log_weight = product(*[line(-7, 7, 60)] * 3)
    logits = w[:, None, :] * column  # (grid, n, K)
    log_p = (
        (logits[:, np.arange(7), THREE] - logsumexp(logits, -1)).sum(1)
        + stats.norm(0, (2 * a) ** -0.5).logpdf(w).sum(1)
        + log_weight
    )
    log_evidence = float(logsumexp(log_p))
    p, mass = softmax(w[:, None, :] * NEW[:, 1:], -1), np.exp(log_p - log_evidence)
    posterior, g = logistic_regression(column, THREE, [a]), torch.Generator().manual_seed(0)
    weighed = posterior.importance(20_000, generator=g)
    for draws in (weighed, posterior.hamiltonian(8_000, generator=g)):
        assert draws.verdict == "tight"
        found = draws.average(torch.from_numpy(NEW[:, 1:])).numpy()
        truth = np.einsum("g,gnk->nk", mass, p)
        assert (
            np.abs(found - truth)
            < 5 * np.sqrt(np.einsum("g,gnk->nk", mass, (p - truth) ** 2) / draws.ess)
        ).all()
    # Laplace's, on seven rows
    assert float(posterior.log_evidence) == pytest.approx(log_evidence, abs=0.3)


def test_several_classes_cover_at_their_level() -> None:
    """Weights of three classes drawn from the prior, 100 times: the 80 % interval of class 2 at a
    new row; a false alarm in 1e4.
    """
    rng, g, hits = np.random.default_rng(8), torch.Generator().manual_seed(0), 0
    rows = rng.normal(size=(20, 2))
    for _ in range(100):
        # differences of classes have deviation one
        w, new = rng.normal(size=(2, 3)) / np.sqrt(2), rng.normal(size=(1, 2))
        # the last row counts nothing: it only says that there are three
        y = np.append((rows @ w + rng.gumbel(size=(20, 3))).argmax(1), 2)
        posterior = logistic_regression(
            np.vstack([rows, new]), y, [1.0, 1.0], np.append(np.ones(20), 0.0)
        )
        low, high = (
            posterior.importance(500, generator=g)
            .quantiles(torch.from_numpy(new), torch.tensor([0.1, 0.9]))[0, 2]
            .tolist()
        )
        hits += low <= softmax(new @ w, 1)[0, 2] <= high
    least, most = stats.binom(100, 0.8).ppf([5e-5, 1 - 5e-5])
    assert least <= hits <= most, hits


def test_several_classes_have_the_mode_and_curvature_of_their_density() -> None:
    posterior = logistic_regression(X, THREE, PRECISION)
    joint = lambda w: log_joint(w, posterior.X, posterior.y, posterior.weight, posterior.A)  # noqa: E731
    slope = torch.autograd.functional.jacobian(joint, posterior.map)
    hessian = torch.autograd.functional.hessian(joint, posterior.map)
    assert slope.abs().max() < 1e-8
    torch.testing.assert_close(posterior.hessian, -hessian, rtol=1e-9, atol=1e-9)
    w = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    slopes = torch.stack([torch.autograd.functional.jacobian(joint, one) for one in w])
    torch.testing.assert_close(
        height_and_slope(w, posterior.X, posterior.y, posterior.weight, posterior.A)[1], slopes
    )
    # |w|^2 / 2 on each class's weights: a = 1/2 of ours
    peer = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10).fit(X, THREE)
    mode = logistic_regression(X, THREE, np.full(2, 0.5)).class_weights.numpy()
    np.testing.assert_allclose(mode, peer.coef_, atol=1e-5)
    swapped = logistic_regression(X, (THREE + 1) % 3, np.full(2, 0.5)).class_weights.numpy()
    np.testing.assert_allclose(swapped[[1, 2, 0]], mode, atol=1e-10)  # no class is special


def test_chains_take_over_where_weights_collapse() -> None:
    """Thirty columns: importance sampling keeps a few draws and says so, the chains keep hundreds
    and agree.
    """
    g, rows = torch.Generator().manual_seed(0), np.random.default_rng(1).normal(size=(40, 30))
    posterior = logistic_regression(rows, rows[:, 0] > 0, np.full(30, 0.02))
    assert posterior.importance(4000, generator=g).verdict == "do not publish"
    draws = posterior.draw(4000, generator=g)
    assert draws.method == "Hamiltonian Monte Carlo"
    assert draws.verdict == "tight" and draws.ess > 400


def test_logistic_laplace_has_the_curvature_of_the_mode() -> None:
    posterior = logistic_regression(X, LABELS, PRECISION)
    hessian = torch.autograd.functional.hessian(
        lambda w: -log_joint(w, posterior.X, posterior.y, posterior.weight, posterior.A),
        posterior.map,
    )
    torch.testing.assert_close(posterior.laplace.precision_matrix, hessian, rtol=1e-9, atol=1e-9)


def test_separated_data_and_huge_columns_still_have_a_mode() -> None:
    x = np.array([[1.0, -1e4], [1.0, -2e4], [1.0, 3e4], [1.0, 1e4]])
    posterior = logistic_regression(x, [0.0, 0, 1, 1], [1e-6, 1e-6])
    slope = (
        x.T @ (np.array([0, 0, 1, 1]) - expit(x @ posterior.map.numpy()))
        - 1e-6 * posterior.map.numpy()
    )
    assert np.abs(slope).max() < 1e-6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: PRIOR.update(X, Y[:3]),
            r"X and y must have shapes \(n, P\) and \(n,\); got \(7, 2\) and \(3,\)",
        ),
        (lambda: PRIOR.update(X, Y, -np.ones(7)), "weight must not be negative; got -1"),
        (lambda: PRIOR.update(X * math.nan, Y), "X must be finite"),
        (
            lambda: logistic_regression(X, LABELS - 1, PRECISION),
            "y must hold 7 classes as whole numbers from 0",
        ),
        (
            lambda: PRIOR.predictive([[1.0]]),
            r"X must have shape \(\*, 2\) to match m; got \(1, 1\)",
        ),
        (
            lambda: LinearRegression(torch.zeros(2), torch.ones(2, 2), 1.0, 1.0),
            "K must be symmetric and positive definite",
        ),
        (
            lambda: LinearRegression(torch.zeros(2), torch.eye(3), 1.0, 1.0),
            r"m and K must have shapes \(P,\) and \(P, P\)",
        ),
        (
            lambda: logistic_regression(X, Y, PRECISION),
            "y must hold 7 classes as whole numbers from 0",
        ),
        (
            lambda: logistic_regression(X, LABELS, np.ones((2, 2))),
            "A must be symmetric and positive definite",
        ),
        (
            lambda: logistic_regression(X, LABELS, PRECISION, np.full(7, math.inf)),
            "weight must be finite",
        ),
    ],
)
def test_bad_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
