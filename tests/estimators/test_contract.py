"""scikit-learn's own contract, and the tools that rely on it: pipelines, grids, clones, pickles."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from partita.estimators import ESTIMATORS, MaxEntDensity, RBMDensity

QUICK = [RBMDensity(epochs=4, n_chains=32), MaxEntDensity(epochs=4, n_chains=16, l2=1e-3)]


@pytest.mark.filterwarnings("ignore:fit. columns that are not binary")
@parametrize_with_checks(QUICK)
def test_scikit_learn_contract(
    estimator: Any, check: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # else scikit-learn skips its check of NumPy arrays under array API dispatch
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


@pytest.fixture
def binary() -> np.ndarray:
    rng = np.random.default_rng(0)
    hidden = rng.integers(0, 2, (120, 2))
    return ((hidden[:, [0, 0, 0, 1, 1, 1]] + (rng.random((120, 6)) < 0.1)) % 2).astype(int)


@pytest.mark.filterwarnings("ignore::partita.errors.PartitaWarning")
@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_tensors_are_their_values_whether_or_not_they_require_grad(
    name: str, binary: np.ndarray
) -> None:
    kind, short = ESTIMATORS[name], {"epochs": 1, "sweeps": 4, "n_draws": 128, "n_prototypes": (4,)}
    short = {key: value for key, value in short.items() if key in kind().get_params()}
    X, y = binary[:40, 1:].astype(float), binary[:40, 0].astype(float)
    tensors = [torch.tensor(values, requires_grad=True) for values in (X, y)]
    answers = []
    for rows, targets in ((X, y), tensors):
        fitted = kind(random_state=0, **short).fit(rows, targets)
        method = next(m for m in ("transform", "predict", "sample") if hasattr(fitted, m))
        answers.append(getattr(fitted, method)(*([] if method == "sample" else [rows])))
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize("estimator", QUICK, ids=lambda e: type(e).__name__)
def test_clone_and_pickle_keep_scores(estimator: Any, binary: np.ndarray) -> None:
    first = clone(estimator).set_params(random_state=3).fit(binary)
    again = clone(first).fit(binary)
    copied = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(first.score_samples(binary), again.score_samples(binary))
    np.testing.assert_array_equal(first.score_samples(binary), copied.score_samples(binary))


def test_grid_search_finds_the_penalty(binary: np.ndarray) -> None:
    grid = GridSearchCV(MaxEntDensity(random_state=0), {"l2": [1e-2, 1e2]}, cv=3).fit(binary)
    assert grid.best_params_ == {"l2": 1e-2}


def test_cross_validation_gives_log_likelihoods(binary: np.ndarray) -> None:
    scores = cross_val_score(RBMDensity(n_hidden=4, epochs=5, random_state=0), binary, cv=3)
    assert scores.shape == (3,) and (scores < 0).all()


def test_pipeline_scores_and_names_its_features() -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    pipeline = make_pipeline(
        StandardScaler(), RBMDensity(n_hidden=4, epochs=3, random_state=0)
    ).fit(X)
    assert pipeline.transform(X).shape == (60, 4)
    assert np.isfinite(pipeline.score(X))
    assert list(pipeline.get_feature_names_out()) == [f"rbmdensity{i}" for i in range(4)]


def test_row_order_does_not_matter(binary: np.ndarray) -> None:
    estimator = RBMDensity(n_hidden=3, epochs=3, random_state=0)
    forward, backward = clone(estimator).fit(binary), clone(estimator).fit(binary[::-1])
    np.testing.assert_array_equal(forward.transform(binary), backward.transform(binary))


def test_whole_number_weights_count_rows_and_others_weigh_them(binary: np.ndarray) -> None:
    weight = np.random.default_rng(1).integers(0, 3, len(binary))
    estimator = RBMDensity(n_hidden=3, epochs=3, random_state=0)
    counted = clone(estimator).fit(binary, sample_weight=weight)
    repeated = clone(estimator).fit(binary.repeat(weight, axis=0))
    np.testing.assert_array_equal(counted.transform(binary), repeated.transform(binary))
    weighted = MaxEntDensity("independent", l2=1e-6).fit(binary, sample_weight=weight / 7)
    p = weighted.sample(4000, random_state=0).mean(0)
    # five standard errors
    np.testing.assert_allclose(p, np.average(binary, axis=0, weights=weight), atol=0.04)
