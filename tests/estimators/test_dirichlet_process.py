"""The Dirichlet process mixture as a scikit-learn estimator and a command."""

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from partita.diagnostics.partitions import enumerate_posterior
from partita.errors import InputError
from partita.estimators import DirichletProcessMixture, load
from partita.families import FAMILIES
from partita.models.directed.dirichlet_process import log_partition_prior


@parametrize_with_checks([DirichletProcessMixture(sweeps=12)])
def test_scikit_learn_contract(
    estimator: Any, check: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # else scikit-learn skips its check of NumPy arrays under array API dispatch
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


@pytest.fixture
def clouds() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    centers = np.array([[100.0, 0.0], [108.0, 0.02], [104.0, 0.08]])
    truth = rng.permutation(np.repeat([0, 1, 2], [40, 30, 20]))
    return centers[truth] + rng.normal(size=(90, 2)) * [1.0, 0.01], truth


def test_it_finds_clusters_in_the_units_of_the_data(clouds: tuple[np.ndarray, np.ndarray]) -> None:
    X, truth = clouds
    model = DirichletProcessMixture(random_state=0, sweeps=80).fit(X)
    assert adjusted_rand_score(truth, model.labels_) > 0.95
    assert np.bincount(model.labels_)[:3].tolist() == sorted(
        np.bincount(model.labels_)[:3], reverse=True
    )
    assert (model.predict(X) == model.labels_).mean() > 0.97
    p = model.predict_proba(X)
    assert p.shape == (90, model.labels_.max() + 1)
    np.testing.assert_allclose(p.sum(1), 1.0)
    assert model.cluster_count_probs_.sum() == pytest.approx(1.0)
    assert model.expected_clusters_ == pytest.approx(
        model.cluster_count_probs_ @ np.arange(len(model.cluster_count_probs_))
    )
    assert model.coclustering_.shape == (90, 90)
    assert (
        model.coclustering_[truth == 0][:, truth == 0].mean()
        > 0.9
        > 0.1
        > model.coclustering_[truth == 0][:, truth == 1].mean()
    )
    assert 0 < model.credible_ball_.radius < 1
    assert model.score_kind_ == model.evaluate(X).kind == "estimate"
    drawn = model.sample(4000, random_state=1)
    assert (np.abs(drawn.mean(0) - X.mean(0)) < 0.5 * X.std(0)).all()
    assert model.anomaly_score([[104.0, 3.0]])[0] > model.anomaly_score(X).max()


def test_a_density_in_the_units_of_the_data(clouds: tuple[np.ndarray, np.ndarray]) -> None:
    """Scores integrate to one over a grid wide enough for the predictive's tails."""
    X, _ = clouds
    model = DirichletProcessMixture(random_state=0, sweeps=40).fit(X)
    a, b = np.meshgrid(np.linspace(60, 150, 400), np.linspace(-0.8, 0.9, 400))
    total = (
        np.exp(model.score_samples(np.column_stack([a.ravel(), b.ravel()]))).sum()
        * (90 / 399)
        * (1.7 / 399)
    )
    assert total == pytest.approx(1.0, abs=0.01)


def test_known_scale_agrees_with_enumeration() -> None:
    """P(K) of seven rows in their own units; 120 chains, z tests at 1e-3 over the values of K."""
    X = np.array([[1000.0], [1000.4], [1003.5], [1004.0], [1008.0], [1001.0], [1004.4]])
    model = DirichletProcessMixture(
        weight_concentration_prior=1.5,
        known_scale=1.0,
        prior_mean=1003.0,
        prior_scale=3.0,
        n_chains=120,
        sweeps=60,
        random_state=0,
    )
    partitions = model.fit(X).model_.partitions.numpy()

    def evidence(rows: np.ndarray) -> float:
        off, covariance = X[rows, 0] - 1003.0, np.eye(len(rows)) + 9.0
        return float(
            -0.5
            * (
                len(rows) * np.log(2 * np.pi)
                + np.linalg.slogdet(covariance)[1]
                + off @ np.linalg.solve(covariance, off)
            )
        )

    exact = enumerate_posterior(7, partial(log_partition_prior, alpha=1.5), evidence)
    # labels of a draw run from 0 to K - 1
    each = (partitions.max(-1) + 1)[..., None] == np.arange(8)
    se = each.mean(0).std(0, ddof=1) / np.sqrt(120)
    common = exact.cluster_count_probs > 0.01
    error = np.abs(
        model.cluster_count_probs_[:8]
        - exact.cluster_count_probs[: len(model.cluster_count_probs_)]
    )
    assert (error[common] < norm.isf(1e-3 / common.sum() / 2) * se[common]).all()
    np.testing.assert_allclose(model.coclustering_, exact.coclustering, atol=0.08)


@pytest.mark.parametrize("kernel", ["bernoulli", "multinomial"])
def test_discrete_kernels_cluster_and_sample_their_support(kernel: str) -> None:
    rng, truth = np.random.default_rng(1), np.repeat([0, 1], [40, 30])
    p = np.array([[0.9] * 6 + [0.1] * 6, [0.1] * 6 + [0.9] * 6])
    X = (
        (rng.random((70, 12)) < p[truth]).astype(int)
        if kernel == "bernoulli"
        else rng.poisson(6 * p[truth])
    )
    model = DirichletProcessMixture(kernel, random_state=0, sweeps=60).fit(X)
    assert adjusted_rand_score(truth, model.labels_) > 0.9
    drawn = model.sample(200)
    assert (drawn == drawn.round()).all() and drawn.min() >= 0
    assert (model.score_samples(X) < 0).all()
    if kernel == "bernoulli":
        np.testing.assert_allclose(
            DirichletProcessMixture(kernel, random_state=0, sweeps=60)
            .fit(2 * X - 1)
            .score_samples(2 * X - 1),
            model.score_samples(X),
        )


def test_clone_pickle_and_save_keep_everything(
    clouds: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, _ = clouds
    first = DirichletProcessMixture(random_state=3, sweeps=20).fit(X)
    others = [
        clone(first).fit(X),
        pickle.loads(pickle.dumps(first)),
        load(first.save(tmp_path / "run")),
    ]
    for other in others:
        np.testing.assert_array_equal(first.score_samples(X), other.score_samples(X))
        np.testing.assert_array_equal(first.labels_, other.labels_)
        np.testing.assert_array_equal(first.predict_proba(X), other.predict_proba(X))


def test_missing_values_of_new_rows_are_filled(clouds: tuple[np.ndarray, np.ndarray]) -> None:
    """The second column of a cloud follows from the first; weights are refused with the reason."""
    X, _ = clouds
    model = DirichletProcessMixture(random_state=0, sweeps=60).fit(X)
    holes = np.array([[100.0, np.nan], [108.0, np.nan], [104.0, np.nan], [101.0, 0.01]])
    filled = model.impute(holes)
    # deviations within clouds are 0.01
    np.testing.assert_allclose(filled[:, 1], [0.0, 0.02, 0.08, 0.01], atol=0.01)
    assert (filled[3] == holes[3]).all() and np.isfinite(
        model.impute(holes, how="draw", random_state=1)
    ).all()
    with pytest.raises(
        InputError,
        match=r"rows must have no weights, for a partition is of whole rows; got sample_weight\. "
        r"Repeat",
    ):
        model.fit(X, sample_weight=np.ones(90))


def test_minutes_limit_the_fit(clouds: tuple[np.ndarray, np.ndarray]) -> None:
    model = DirichletProcessMixture(random_state=0, max_minutes=0.01).fit(clouds[0])
    assert model.run_.steps >= 10
    assert model.run_.config["steps"] == model.run_.steps


@pytest.mark.parametrize(
    ("settings", "X", "message"),
    [
        (
            {"kernel": "gauss"},
            [[0.0], [1.0]],
            "kernel must be one of 'gaussian', 'bernoulli', 'multinomial'; got 'gauss'",
        ),
        (
            {"kernel": "bernoulli"},
            [[0.0, 1.0], [0.5, 1.0]],
            "X must hold only 0 and 1; got 0.5 at row 1, column 0",
        ),
        (
            {"kernel": "multinomial"},
            [[0.0, 1.0], [-1.0, 1.0]],
            r"X must hold counts 0, 1, 2, \.\.\.; got -1 at row 1, column 0",
        ),
        (
            {"weight_concentration_prior": -1.0},
            [[0.0], [1.0]],
            "weight_concentration_prior must be a finite number above 0; got -1.0",
        ),
        (
            {"sampler": "slice"},
            [[0.0], [1.0]],
            "sampler must be one of 'auto', 'collapsed', 'instantiated'; got 'slice'",
        ),
        ({"sweeps": 0}, [[0.0], [1.0]], "sweeps must be a whole number of at least 1; got 0"),
        (
            {},
            [[0.0, 1.0], [0.0, 2.0]],
            "X must vary in every column to have a density; got one value throughout column 0",
        ),
    ],
)
def test_wrong_input_is_named(settings: dict[str, Any], X: list[list[float]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DirichletProcessMixture(**settings).fit(X)


@pytest.mark.parametrize(
    ("rows", "settings", "title", "objective"),
    [
        (50, {}, "DPMixture(gaussian, 2)", "CollapsedGibbs"),
        (20_001, {}, "DPMixture(gaussian, 2)", "InstantiatedGibbs"),
        (
            50,
            {"kernel": "multinomial", "sampler": "instantiated"},
            "DPMixture(multinomial, 2)",
            "InstantiatedGibbs",
        ),
    ],
)
def test_the_family_builds(rows: int, settings: dict[str, Any], title: str, objective: str) -> None:
    import torch

    from partita.tables import Rows

    g = torch.Generator().manual_seed(0)
    model, built = FAMILIES["dpmm"].build(
        Rows(torch.randn(rows, 2, generator=g)), settings, generator=g
    )
    assert (model.title(), type(built).__name__) == (title, objective)
