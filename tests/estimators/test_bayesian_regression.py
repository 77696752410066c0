"""The regressions as estimators: scikit-learn's contract, and intervals that cover because prior
and data agree.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit
from sklearn.datasets import load_iris
from sklearn.linear_model import BayesianRidge, LogisticRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from partita.errors import InputError, RunError
from partita.estimators import BayesianLinearRegression, BayesianLogisticRegression, load

FALSE_ALARM = 1e-4  # of each coverage test


@parametrize_with_checks(
    [BayesianLinearRegression(), BayesianLogisticRegression(1.0, n_draws=1000)]
)
def test_scikit_learn_contract(
    estimator: Any, check: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


def covers(hits: int, n: int, level: float) -> bool:
    low, high = stats.binom(n, level).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    return low <= hits <= high


@pytest.mark.parametrize("ridge", ["auto", 0.5])
def test_linear_intervals_cover_at_their_level(ridge: Any) -> None:
    """One new point in each of 200 data sets of 14 rows, weights drawn from the prior with ridge
    0.5, known or not.
    """
    rng, hits = np.random.default_rng(0), {0.5: 0, 0.95: 0}
    for _ in range(200):
        X = rng.normal(size=(15, 4)) * [1, 10, 0.1, 3] + 5
        Z = (X - X[:-1].mean(0)) / X[:-1].std(0)
        y = 2 + 1.5 * (Z @ rng.normal(size=4) / np.sqrt(0.5) + rng.normal(size=15))
        model = BayesianLinearRegression(ridge).fit(X[:-1], y[:-1])
        for level in hits:
            low, high = model.predict_interval(X[-1:], level)[0]
            hits[level] += low <= y[-1] <= high
    assert all(covers(count, 200, level) for level, count in hits.items()), hits


def test_logistic_intervals_cover_at_their_level() -> None:
    """Weights drawn from the prior: a credible interval then covers given any data, so data of one
    class may be passed over.
    """
    rng, hits, kept = np.random.default_rng(1), {0.5: 0, 0.95: 0}, 0
    # mean zero, deviation one: standardizing changes nothing
    X = np.tile([[1.0, 1], [1, -1], [-1, 1], [-1, -1]], (6, 1))
    while kept < 100:
        w, b = rng.normal(size=2), 10 * rng.normal()
        y, new = rng.random(len(X)) < expit(X @ w + b), rng.normal(size=(1, 2))
        if y.all() or not y.any():
            continue
        model = BayesianLogisticRegression(1.0, n_draws=2000, random_state=kept).fit(X, y)
        kept += 1
        for level in hits:
            low, high = model.predict_interval(new, level)[0]
            hits[level] += low <= expit(new @ w + b)[0] <= high
    assert all(covers(count, kept, level) for level, count in hits.items()), hits


def test_linear_agrees_with_scikit_learn() -> None:
    """Ridge at the same penalty, to rounding; BayesianRidge, which learns the noise another way,
    closely.
    """
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 5)) * [1, 2, 3, 4, 5]
    y = X @ [1.0, 0.5, 0, -1, 2] + rng.normal(size=80)
    fixed = BayesianLinearRegression(3.0).fit(X, y)
    ridge = Ridge(3.0).fit((X - X.mean(0)) / X.std(0), y)
    np.testing.assert_allclose(fixed.coef_, ridge.coef_ / X.std(0), rtol=1e-10)
    auto, peer = BayesianLinearRegression().fit(X, y), BayesianRidge().fit(X, y)
    np.testing.assert_allclose(auto.coef_, peer.coef_, atol=0.02)
    assert auto.noise_std_ == pytest.approx(peer.alpha_**-0.5, rel=0.05)
    best = auto.log_evidence_
    assert all(
        BayesianLinearRegression(auto.ridge_ * f).fit(X, y).log_evidence_ < best
        for f in (0.5, 0.9, 1.1, 2.0)
    )


def test_linear_evidence_is_the_density_of_the_differences() -> None:
    """With the noise integrated by quadrature: differences of y are Gaussian with covariance C (I +
    Z Z' / k) C' / lambda.
    """
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(9, 2)), rng.normal(size=9) * 3 + 7
    model = BayesianLinearRegression(2.0).fit(X, y)
    Z = (X - X.mean(0)) / X.std(0)
    C = np.linalg.svd(np.eye(9) - 1 / 9)[2][:8]  # orthonormal differences
    d, V, s = C @ y, C @ (np.eye(9) + Z @ Z.T / 2.0) @ C.T, y.std()
    u = np.linspace(-12, 12, 4001)  # log lambda in the units of the standardized target
    log_prior = stats.gamma(1e-6, scale=1e6).logpdf(np.exp(u)) + u
    quadratic, log_det = d @ np.linalg.solve(V, d) / s**2, np.linalg.slogdet(V)[1]
    log_likelihood = (
        4 * u - 0.5 * np.exp(u) * quadratic - 0.5 * log_det - 4 * np.log(2 * np.pi) - 8 * np.log(s)
    )
    truth = np.log(np.exp(log_prior + log_likelihood).sum() * (u[1] - u[0]))
    assert model.log_evidence_ == pytest.approx(truth, abs=1e-5)


def test_weights_of_zero_leave_rows_out_and_negative_ones_are_named() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    weight = rng.integers(0, 3, 30)
    for model, target in (
        (BayesianLinearRegression(), y),
        (BayesianLogisticRegression(random_state=0), y > 0),
    ):
        weighted = model.fit(X, target, sample_weight=weight).coef_
        np.testing.assert_allclose(
            weighted, model.fit(X.repeat(weight, 0), target.repeat(weight)).coef_, rtol=1e-6
        )
        with pytest.raises(ValueError, match="Negative values"):
            model.fit(X, target, sample_weight=-np.ones(30))


def test_three_species_of_iris() -> None:
    """Labels are words; probabilities add up, intervals hold them, rows of coefficients sum to
    zero, and the fit is scikit-learn's mode.
    """
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = BayesianLogisticRegression(0.5, random_state=0).fit(X, names)
    assert model.draws_.verdict == "tight" and model.classes_.tolist() == sorted(set(names))
    p, ends = model.predict_proba(X), model.predict_interval(X, 0.9)
    assert ends.shape == (150, 3, 2) and model.decision_function(X).shape == (150, 3)
    np.testing.assert_allclose(p.sum(1), 1.0)
    assert (ends[..., 0] <= ends[..., 1]).all() and model.score(X, names) > 0.95
    np.testing.assert_allclose(model.coef_.sum(0), 0.0, atol=1e-12)
    # its intercept has a flat prior
    peer = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit((X - X.mean(0)) / X.std(0), y)
    np.testing.assert_allclose(model.coef_ * X.std(0), peer.coef_, atol=0.05)
    assert model.set_params(prediction="map").score(X, names) > 0.95


def test_saved_regressions_come_back(tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    words = np.array(["a", "b", "b"])[y]
    for name, model in (
        ("line", BayesianLinearRegression().fit(X[:, :3], X[:, 3])),
        (
            "classes",
            BayesianLogisticRegression(1.0, n_draws=500, random_state=0).fit(X[:, :3], words),
        ),
    ):
        again = load(model.save(tmp_path / name))
        assert str(again) == str(model) and again.log_evidence_ == model.log_evidence_
        np.testing.assert_array_equal(again.predict(X[:, :3]), model.predict(X[:, :3]))
        np.testing.assert_allclose(
            again.predict_interval(X[:, :3]), model.predict_interval(X[:, :3]), rtol=1e-12
        )
        with pytest.raises(RunError, match="out must be a new folder"):
            model.save(tmp_path / name)


def test_tiny_and_huge_units_change_nothing() -> None:
    rng = np.random.default_rng(9)
    X = rng.normal(size=(20, 2))
    y = X @ [1.0, -2.0] + rng.normal(size=20)
    base = BayesianLinearRegression(1.0).fit(X, y).predict(X)
    for unit in (1e-200, 1e200):
        np.testing.assert_allclose(
            BayesianLinearRegression(1.0).fit(X * unit, y).predict(X * unit), base, rtol=1e-10
        )
        model = BayesianLogisticRegression(1.0, n_draws=500, random_state=0)
        np.testing.assert_allclose(
            model.fit(X * unit, y > 0).predict_proba(X * unit),
            model.fit(X, y > 0).predict_proba(X),
            rtol=1e-8,
        )


def test_settings_are_named() -> None:
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    with pytest.raises(InputError, match="y must hold numbers; got <U1 such as"):
        BayesianLinearRegression().fit(X, np.array(list("abcd")))
    with pytest.raises(InputError, match="ridge must be 'auto' or a number above 0; got 'best'"):
        BayesianLinearRegression("best").fit(X, y)
    with pytest.raises(InputError, match="prior_precision must be a finite number above 0; got -1"):
        BayesianLogisticRegression(-1).fit(X, y)
    with pytest.raises(InputError, match="prediction must be one of 'average', 'map'; got 'mean'"):
        BayesianLogisticRegression(prediction="mean").fit(X, y)
    with pytest.raises(InputError, match="y must hold two classes; got one class"):
        BayesianLogisticRegression().fit(X, np.ones(4))
    with pytest.raises(InputError, match="level must lie between 0 and 1"):
        BayesianLinearRegression().fit(X, y).predict_interval(X, 1.0)


def test_the_average_is_less_sure_than_the_map_and_scores_better() -> None:
    """100 tasks of 12 rows in 4 columns, 400 test rows each: mean log loss, paired; five standard
    errors apart.
    """
    rng, gains = np.random.default_rng(5), []
    for seed in range(100):
        w = 1.5 * rng.normal(size=4)
        X = rng.normal(size=(412, 4))
        y = rng.random(412) < expit(X @ w)
        if y[:12].all() or not y[:12].any():
            continue
        model = BayesianLogisticRegression(0.4, n_draws=2000, random_state=seed)
        average = model.fit(X[:12], y[:12])
        p = average.predict_proba(X[12:])[:, 1]
        p_map = average.set_params(prediction="map").predict_proba(X[12:])[:, 1]
        loss, loss_map = (-np.log(np.where(y[12:], q, 1 - q)).mean() for q in (p, p_map))
        gains.append(loss_map - loss)
        assert np.abs(p - 0.5).mean() < np.abs(p_map - 0.5).mean()
    assert np.mean(gains) > 5 * np.std(gains) / np.sqrt(len(gains))
