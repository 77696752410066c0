"""Mixtures and linear-Gaussian models as estimators: scikit-learn's contract, missing values,
online fits, bad input.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

import partita.estimators
from partita.errors import InputError, PartitaWarning
from partita.estimators import MixtureDensity, MixturePPCADensity, PPCADensity

IRIS = load_iris().data
QUICK = [
    MixtureDensity(2, n_init=1, max_iter=10),
    PPCADensity(max_iter=10),
    MixturePPCADensity(2, 1, n_init=1, max_iter=5),
]
EVERY = pytest.mark.parametrize("estimator", QUICK, ids=lambda e: type(e).__name__)


@parametrize_with_checks(QUICK)
# the checks' tables are tiny, and some covariances singular
@pytest.mark.filterwarnings("ignore::partita.training.PartitaWarning")
def test_scikit_learn_contract(
    estimator: Any, check: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


def with_gaps(x: np.ndarray, share: float = 0.15, seed: int = 0) -> np.ndarray:
    gaps = np.random.default_rng(seed).random(x.shape) < share
    gaps[gaps.all(1), 0] = False
    return np.where(gaps, np.nan, x)


@EVERY
def test_missing_values_are_scored_filled_and_fitted(estimator: Any) -> None:
    X = with_gaps(IRIS)
    model = clone(estimator).set_params(random_state=0).fit(X)
    filled = model.impute(X)
    assert not np.isnan(filled).any()
    np.testing.assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])
    error, of_means = (
        np.mean((guess - IRIS)[np.isnan(X)] ** 2) for guess in (filled, np.nanmean(X, 0))
    )
    assert error < 0.5 * of_means
    assert (
        np.isfinite(model.score_samples(X)).all()
        and model.evaluate(X).kind == model.score_kind_ == "exact"
    )
    assert not np.array_equal(
        model.impute(X, how="draw", random_state=0), model.impute(X, how="draw", random_state=1)
    )


@pytest.mark.parametrize("covariance", ["full", "spherical"])
def test_scores_are_densities_in_the_units_of_the_table(covariance: str) -> None:
    model = MixtureDensity(3, covariance_type=covariance, n_init=8, tol=1e-8, random_state=0).fit(
        IRIS
    )
    theirs = GaussianMixture(
        3, covariance_type=covariance, n_init=8, tol=1e-8, max_iter=500, reg_covar=0, random_state=0
    ).fit(IRIS)
    assert model.score(IRIS) == pytest.approx(theirs.score(IRIS), abs=2e-3)
    assert model.bic(IRIS) == pytest.approx(theirs.bic(IRIS), abs=1.0)
    scaled = MixtureDensity(3, covariance_type=covariance, n_init=8, tol=1e-8, random_state=0).fit(
        100 * IRIS
    )
    assert scaled.score(100 * IRIS) == pytest.approx(model.score(IRIS) - 4 * np.log(100), abs=1e-3)


def test_auto_finds_clusters_and_predicts_them() -> None:
    g = np.random.default_rng(0)
    X = np.concatenate([g.normal(c, 1, (80, 2)) for c in (0, 7, 14)])
    model = MixtureDensity(random_state=0).fit(X)
    assert model.n_components_ == 3
    assert sorted(np.bincount(model.predict(X))) == [80, 80, 80]
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
    assert model.anomaly_score([[100.0, -100.0]])[0] > model.anomaly_score(X).max()


@pytest.mark.parametrize(
    ("component", "make"),
    [
        ("bernoulli", lambda g, high: (g.random((200, 5)) < 0.1 + 0.8 * high).astype(float)),
        ("categorical", lambda g, high: np.floor(g.random((200, 5)) * 2 + 2 * high) + 5),
        ("poisson", lambda g, high: g.poisson(1 + 9 * high, (200, 5)).astype(float)),
    ],
)
def test_discrete_tables(component: str, make: Any) -> None:
    g = np.random.default_rng(0)
    high = np.arange(200)[:, None] % 2
    X = make(g, high)
    model = MixtureDensity(2, component, random_state=0).fit(with_gaps(X, 0.05))
    assert abs((model.predict(X) == high[:, 0]).mean() - 0.5) > 0.45
    filled = model.impute(with_gaps(X, 0.2, seed=1))
    assert set(np.unique(filled)) <= set(np.unique(X)) | set(range(int(X.max())))
    assert set(np.unique(model.sample(50, random_state=0))) <= set(range(100))


def test_partial_fit_comes_close_to_fit() -> None:
    g = np.random.default_rng(0)
    X = np.concatenate([g.normal(0, 1, (1500, 2)), g.normal(6, 1, (1500, 2))])
    g.shuffle(X)
    whole, online = MixtureDensity(2, random_state=0).fit(X), MixtureDensity(2, random_state=0)
    for part in np.split(X, 15):
        online.partial_fit(part)
    assert online.score(X) == pytest.approx(whole.score(X), abs=0.01)
    later = clone(whole).fit(X[:1500])
    before = later.score(X[1500:])
    later.partial_fit(X[1500:])
    assert later.score(X[1500:]) > before - 0.01 and later.n_iter_ > 1


def test_ppca_transforms_to_the_dimensions_that_count() -> None:
    g = np.random.default_rng(0)
    z = g.normal(size=(300, 2))
    X = z @ g.normal(size=(2, 8)) + 0.1 * g.normal(size=(300, 8))
    model = PPCADensity(random_state=0).fit(X)
    assert model.n_components_ == 2 and model.transform(X).shape == (300, 2)
    assert list(model.get_feature_names_out()) == ["ppcadensity0", "ppcadensity1"]
    residual = z - model.transform(X) @ np.linalg.lstsq(model.transform(X), z, rcond=None)[0]
    assert residual.std() < 0.1  # z up to a rotation
    assert PPCADensity(3, random_state=0).fit(X).run_.config["objective"] == {"part": "ClosedForm"}
    assert (
        PPCADensity(3, "diagonal", random_state=0).fit(X).run_.config["objective"]["part"] == "EM"
    )


@EVERY
def test_saved_estimators_come_back(estimator: Any, tmp_path: Path) -> None:
    model = clone(estimator).set_params(random_state=0).fit(with_gaps(IRIS))
    model.save(tmp_path / "run")
    again = partita.estimators.load(tmp_path / "run")
    np.testing.assert_array_equal(model.score_samples(IRIS), again.score_samples(IRIS))
    np.testing.assert_array_equal(model.impute(with_gaps(IRIS)), again.impute(with_gaps(IRIS)))
    again.partial_fit(IRIS[:50])


@pytest.mark.parametrize("kind", [MixtureDensity, MixturePPCADensity, PPCADensity])
def test_numbers_that_cannot_be_squared_are_named(kind: Any) -> None:
    X = np.random.default_rng(0).random((12, 3)).round() * 1e300
    with pytest.raises(
        InputError,
        match=f"^{kind.__name__}: X must hold numbers that can be squared, .*; got larger ones in "
        "column 0",
    ):
        kind().fit(X)


def test_small_units_are_units_like_others() -> None:
    X = np.random.default_rng(0).normal(size=(200, 4)) @ np.diag([3.0, 1.0, 1.0, 1.0])
    usual, small = (
        PPCADensity(2, scale="common", random_state=0).fit(units * X).score(units * X)
        for units in (1.0, 1e-14)
    )
    assert small == pytest.approx(usual + 4 * 14 * np.log(10))


def test_bad_input_is_named() -> None:
    X = np.random.default_rng(0).normal(size=(20, 3))
    empty = X.copy()
    empty[:, 1] = np.nan
    with pytest.raises(InputError, match="an observed value in every column; got none in column 1"):
        MixtureDensity(2).fit(empty)
    nothing = np.full((4, 3), np.nan)
    with pytest.raises(InputError, match=r"PPCADensity.fit: X must have a row with an observed"):
        PPCADensity(2).fit(nothing)
    with pytest.raises(
        InputError, match="components must be at most the number of rows, 20; got 21"
    ):
        MixtureDensity(21).fit(X)
    with pytest.raises(InputError, match=r"weight must be finite and at least 0; got -1"):
        MixtureDensity(2).fit(X, sample_weight=-np.ones(20))
    with pytest.raises(InputError, match="X must hold counts 0, 1, 2"):
        MixtureDensity(2, "poisson").fit(np.abs(X))
    with pytest.raises(
        InputError, match="how must be 'mean' or 'draw' for real columns; got 'mode'"
    ):
        MixtureDensity(1).fit(X).impute(X, how="mode")
    with pytest.raises(
        InputError,
        match="vary in every column to have a density; got one value throughout column 2",
    ):
        MixtureDensity(2).fit(np.column_stack([X[:, :2], np.ones(20)]))


@pytest.mark.parametrize("kind", [MixtureDensity, PPCADensity, MixturePPCADensity])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_in_which_nothing_was_observed_are_left_out(kind: Any, weighted: bool) -> None:
    """The fit is that of the other rows, to rounding; such a row itself has probability one."""
    g = np.random.default_rng(0)
    whole, weight = g.normal(size=(40, 3)), g.random(40) + 0.5
    lost = [3, 11, 12]
    with_empty, its_weight = np.insert(whole, lost, np.nan, 0), np.insert(weight, lost, 1.0)
    chosen = {"sample_weight": weight} if weighted else {}
    settings = {"n_components": 2, "random_state": 0}
    expected = kind(**settings).fit(whole, **chosen)
    if weighted:
        chosen = {"sample_weight": its_weight}
    with pytest.warns(
        PartitaWarning, match=r"^\w+.fit: 3 of 43 rows hold no value and are left out"
    ):
        found = kind(**settings).fit(with_empty, **chosen)
    np.testing.assert_allclose(found.score_samples(whole), expected.score_samples(whole), rtol=1e-9)
    assert found.score_samples(with_empty)[3] == pytest.approx(0.0, abs=1e-12)


def test_messages_name_the_rows_and_parameters_of_the_caller() -> None:
    """Rows are sorted for the fit, and settings have other names inside: neither shows."""
    counts = np.random.default_rng(0).poisson(4.0, (30, 2)).astype(float)
    counts[11, 1] = -2
    with pytest.raises(
        InputError, match=r"X must hold counts 0, 1, 2, \.\.\.; got -2 at row 11, column 1"
    ):
        MixtureDensity(2, "poisson").fit(counts)
    for name, value in (("n_components", 0), ("max_components", 0), ("n_init", 0), ("max_iter", 0)):
        with pytest.raises(
            InputError, match=f"MixtureDensity: {name} must be a whole number of at least 1; got 0"
        ):
            MixtureDensity(**{name: value}).fit(counts)
    with pytest.raises(
        InputError, match="PPCADensity: tol must be a finite number of at least 0; got -1"
    ):
        PPCADensity(1, tol=-1).fit(counts)


def test_online_fits_go_on_after_a_save(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[0.0], [5.0], [0.0]], 30, 0)
    model = MixtureDensity(2, random_state=0).fit(X[:30]).partial_fit(X[30:60])
    again = partita.estimators.load(model.save(tmp_path / "run"))
    np.testing.assert_array_equal(
        again.partial_fit(X[60:]).score_samples(X), model.partial_fit(X[60:]).score_samples(X)
    )


def test_small_units_are_no_constant_columns_and_repeated_rows_no_harm() -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    assert MixtureDensity(1).fit(X * 1e-15).score(X * 1e-15) == pytest.approx(
        MixtureDensity(1).fit(X).score(X) + 30 * np.log(10), rel=1e-9
    )
    assert np.isfinite(
        MixtureDensity(2, "poisson", random_state=0).fit(np.ones((10, 2))).score(np.ones((10, 2)))
    )
