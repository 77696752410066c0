"""VAEDensity and VRNNDensity: scikit-learn's contract, scores from below in the table's own units,
imputation, saving.
"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from partita.errors import InputError
from partita.estimators import VAEDensity, VRNNDensity, load

QUICK = [
    VAEDensity(2, n_hidden=8, epochs=2, n_draws=4),
    VRNNDensity(1, n_hidden=4, epochs=1, n_draws=4, batch_size=64),
]


@pytest.mark.filterwarnings("ignore:fit. the posterior has collapsed")
@parametrize_with_checks(QUICK)
def test_scikit_learn_contract(
    estimator: Any, check: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # else scikit-learn skips its check of NumPy arrays under array API dispatch
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    # what the contract asks for holds wherever the search of places ends
    monkeypatch.setattr("partita.evaluators.latent_proposals.CLIMB", 4)
    check(estimator)


@pytest.fixture(scope="module")
def ring() -> np.ndarray:
    """Three columns that one hidden angle moves, and noise of a tenth."""
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 2 * np.pi, 400)
    return 50 + 10 * np.c_[np.cos(t), np.sin(t), np.cos(2 * t)] + rng.normal(size=(400, 3))


@pytest.fixture(scope="module")
def fitted(ring: np.ndarray) -> VAEDensity:
    return VAEDensity(
        2, n_hidden=32, epochs=50, learning_rate=0.01, validation_fraction=0, random_state=0
    ).fit(ring)


def test_strange_rows_and_missing_values(fitted: VAEDensity, ring: np.ndarray) -> None:
    strange = np.array([[50.0, 50.0, 50.0]])  # the middle of the ring
    assert fitted.anomaly_score(strange)[0] > np.quantile(fitted.anomaly_score(ring[:100]), 0.95)
    holes = ring[:40].copy()
    holes[:, 2] = np.nan  # cos 2t is a function of the other two
    error = np.abs(fitted.impute(holes, random_state=0)[:, 2] - ring[:40, 2]).mean()
    assert error < 0.6 * np.abs(ring[:, 2].mean() - ring[:40, 2]).mean()
    assert fitted.score_kind_ == "lower" and fitted.evaluate(ring[:50]).kind == "lower"


def test_scores_do_not_depend_on_their_neighbors_and_are_in_the_tables_units(
    fitted: VAEDensity, ring: np.ndarray
) -> None:
    whole = fitted.score_samples(ring[:30])
    np.testing.assert_array_equal(fitted.score_samples(ring[10:12]), whole[10:12])
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(fitted)).score_samples(ring[:30]), whole
    )
    quick = VAEDensity(2, n_hidden=8, epochs=1, n_draws=400, validation_fraction=0, random_state=0)
    one, eight = quick.fit(ring).score(ring[:50]), quick.fit(ring * 8).score(ring[:50] * 8)
    # the same fit; rows of other bits have other draws
    np.testing.assert_allclose(eight, one - 3 * np.log(8), atol=0.05)


@pytest.mark.filterwarnings("ignore:fit. the posterior has collapsed")
@pytest.mark.parametrize(
    "estimator",
    [
        VAEDensity(1, epochs=1, beta_warm_up=50),
        VRNNDensity(1, n_hidden=4, epochs=1, beta_warm_up=50),
    ],
)
def test_what_a_caution_advises_can_be_set(estimator: Any) -> None:
    fitted = estimator.fit(np.random.default_rng(0).integers(0, 2, (40, 3)))
    assert fitted.run_.config["objective"]["beta_warm_up"] == 50


def test_more_draws_are_tighter(fitted: VAEDensity, ring: np.ndarray) -> None:
    few, many = (fitted.set_params(n_draws=n).score(ring[:60]) for n in (2, 200))
    fitted.set_params(n_draws=100)
    assert few < many


@pytest.mark.parametrize(
    "estimator",
    [VAEDensity(2, epochs=3, random_state=0), VRNNDensity(2, n_hidden=8, epochs=2, random_state=0)],
)
def test_saved_estimators_score_the_same(estimator: Any, tmp_path: Path) -> None:
    X = np.random.default_rng(0).integers(0, 2, (60, 4)) * 2 - 1
    model = estimator.fit(X)
    model.save(tmp_path / "run")
    again = load(tmp_path / "run")
    np.testing.assert_array_equal(again.score_samples(X[:10]), model.score_samples(X[:10]))
    assert set(np.unique(again.sample(20))) <= {-1, 1}


def test_nats_per_step_are_in_the_tables_units_too() -> None:
    X = 100 * np.cumsum(np.random.default_rng(0).normal(size=(60, 4)), 1)
    q = VRNNDensity(1, n_hidden=4, epochs=1, n_draws=4, random_state=0).fit(X).evaluate(X)
    assert (
        q.details["steps"] == 240
        and q.details["per_step"] == pytest.approx(q.value / 4)
        and q.value < -4 * np.log(100)
    )


def test_categories_are_numbers_of_their_own() -> None:
    X = np.random.default_rng(0).choice([3, 5, 9], (80, 4))
    model = VAEDensity(2, epochs=2, support="category", random_state=0).fit(X)
    assert set(np.unique(model.sample(30))) <= {3, 5, 9}
    holes = X[:5].astype(float)
    holes[:, 1] = np.nan
    assert set(np.unique(model.impute(holes)[:, 1])) <= {3, 5, 9}


def test_steps_of_several_columns_and_holes_in_time() -> None:
    rng = np.random.default_rng(0)
    # bits that change seldom, each shown twice
    X = np.repeat(np.cumsum(rng.random((300, 6)) < 0.1, 1) % 2, 2, axis=1)
    model = VRNNDensity(
        2,
        step_columns=2,
        n_hidden=16,
        epochs=20,
        learning_rate=0.02,
        validation_fraction=0,
        random_state=0,
    ).fit(X)
    # 12 columns; their entropy is 2.0
    assert model.model_.support.L == 6 and model.score(X[:100]) > -5
    holes = X[:30].astype(float)
    holes[:, 4:6] = np.nan  # the third step, between two that mostly agree
    agree = X[:30, 2] == X[:30, 6]
    assert (model.impute(holes, random_state=0)[agree, 4] == X[:30][agree, 4]).mean() > 0.9
    with pytest.raises(
        InputError, match="VRNNDensity: step_columns must divide the 12 columns; got 5"
    ):
        VRNNDensity(step_columns=5).fit(X)
