"""What the estimators compute, against exact answers."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import simpson
from scipy.special import logsumexp

import partita
from partita.errors import InputError, RunError
from partita.estimators import MaxEntDensity, RBMDensity, load
from partita.training import PartitaWarning

STATES = np.array(list(product([0, 1], repeat=4)))


@pytest.fixture
def binary() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.column_stack([rng.integers(0, 2, (200, 2)), rng.random((200, 2)) < 0.3]).astype(int)


@pytest.fixture
def real() -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    return np.column_stack([100 + 20 * x[:, 0], 0.01 * (x[:, 0] + x[:, 1])])


def quick(**parameters: Any) -> RBMDensity:
    return RBMDensity(**{"n_hidden": 3, "epochs": 5, "random_state": 0, **parameters})


@pytest.mark.parametrize(
    "estimator", [quick(), MaxEntDensity(l2=1e-4)], ids=lambda e: type(e).__name__
)
def test_masses_sum_to_one(estimator: Any, binary: np.ndarray) -> None:
    model = estimator.fit(binary)
    assert logsumexp(model.score_samples(STATES)) == pytest.approx(0, abs=1e-10)
    assert model.score_kind_ == "exact"


def test_density_integrates_to_one_in_the_units_of_the_data(real: np.ndarray) -> None:
    model = quick().fit(real)
    first, second = np.linspace(
        *(model.encoding_.shift + np.outer([-8, 8], model.encoding_.scale)), 201
    ).T
    density = np.exp(model.score_samples(np.array(list(product(first, second))))).reshape(201, 201)
    assert simpson(simpson(density, x=second), x=first) == pytest.approx(1, abs=2e-3)


def test_scores_shift_by_the_log_of_a_change_of_units(real: np.ndarray) -> None:
    meters, feet = quick().fit(real), quick().fit(real * [2.0, 0.25])
    assert feet.score(real * [2.0, 0.25]) == pytest.approx(
        meters.score(real) - np.log(2.0 * 0.25), abs=1e-4
    )


def test_spins_are_relabeled_without_changing_masses(binary: np.ndarray) -> None:
    np.testing.assert_allclose(
        quick().fit(2 * binary - 1).score_samples(2 * STATES - 1),
        quick().fit(binary).score_samples(STATES),
    )
    assert set(np.unique(quick().fit(2 * binary - 1).sample(50))) == {-1, 1}


def test_evaluate_score_and_anomaly_agree(binary: np.ndarray) -> None:
    model = quick().fit(binary)
    q = model.evaluate(binary)
    assert q.value == model.score(binary) == pytest.approx(model.score_samples(binary).mean())
    np.testing.assert_array_equal(model.anomaly_score(binary), -model.score_samples(binary))


def test_log_z_is_computed_once_and_is_the_same_for_the_same_seed(binary: np.ndarray) -> None:
    estimator = quick(evaluator=partita.evaluators.AIS(temperatures=20, chains=30))
    first, second = estimator.fit(binary).log_z_, estimator.log_z_
    again = quick(evaluator=partita.evaluators.AIS(temperatures=20, chains=30)).fit(binary).log_z_
    assert first is second
    assert again == first and first.kind == "lower"
    assert estimator.score_kind_ == "upper"


@pytest.mark.parametrize(
    "seed",
    [5, None, np.random.RandomState(0), torch.Generator().manual_seed(1)],
    ids=lambda s: type(s).__name__,
)
def test_every_sort_of_random_state_serves(seed: Any, binary: np.ndarray) -> None:
    assert quick(random_state=seed, epochs=1).fit(binary).sample(3, random_state=seed).shape == (
        3,
        4,
    )


def test_samples_follow_the_model(binary: np.ndarray) -> None:
    model = MaxEntDensity(l2=1e-4, random_state=0).fit(binary)
    p = np.exp(model.score_samples(STATES))
    for burn_in in (None, 30):
        draws = model.sample(4000, random_state=1, burn_in=burn_in).astype(int)
        counts = np.bincount(draws @ [8, 4, 2, 1], minlength=16)
        z = (counts - 4000 * p) / np.sqrt(4000 * p * (1 - p))
        assert np.abs(z).max() < 4.7  # false alarm below 1e-4 over 32 cells


@pytest.mark.parametrize(
    "estimator",
    [quick(epochs=60), MaxEntDensity(l2=1e-4, random_state=0)],
    ids=lambda e: type(e).__name__,
)
def test_imputation_is_the_conditional_mean(estimator: Any, binary: np.ndarray) -> None:
    binary[:, 1] = np.where(np.arange(200) % 10 < 8, binary[:, 0], binary[:, 1])
    model = estimator.fit(binary)
    p = np.exp(model.score_samples(STATES))
    row = [1, np.nan, 0, np.nan]
    fits = (STATES[:, 0] == 1) & (STATES[:, 2] == 0)
    exact = p[fits] @ STATES[fits] / p[fits].sum()
    filled = model.impute([row], how="mean", random_state=0)[0]
    # 800 states of 8 chains, averaged by their conditional means
    np.testing.assert_allclose(filled, exact, atol=0.06)
    np.testing.assert_array_equal(model.impute([row], random_state=0)[0], exact > 0.5)
    assert set(model.impute([row], how="draw")[0]) <= {0.0, 1.0}


def test_imputation_of_real_values_uses_the_correlation() -> None:
    x = np.random.default_rng(0).normal(size=400)
    X = np.column_stack([x, x + 0.1 * np.random.default_rng(1).normal(size=400)]) * [1, 50] + [
        3,
        -7,
    ]
    model = RBMDensity(n_hidden=8, epochs=40, random_state=0).fit(X)
    filled = model.impute([[4.5, np.nan], [1.5, np.nan], [3.0, 8.0]])
    assert filled[0, 1] > -7 + 15 and filled[1, 1] < -7 - 15
    np.testing.assert_array_equal(filled[2], [3.0, 8.0])


def test_maxent_cuts_real_columns_and_says_so(real: np.ndarray) -> None:
    with pytest.warns(
        PartitaWarning,
        match=r"fit: columns that are not binary are cut at their medians\. Cut them "
        r"yourself",
    ):
        model = MaxEntDensity(l2=1e-3).fit(real)
    assert model.binarized_
    assert -2 * np.log(2) - 0.01 < model.score(real) < 0  # a mass over four cells
    assert set(np.unique(model.sample(20, random_state=0))) <= {0, 1}
    with pytest.raises(InputError, match=r"MaxEntDensity.impute: X must be binary.*Cut X yourself"):
        model.impute(real)


def test_frames_keep_their_names(binary: np.ndarray) -> None:
    frame = pd.DataFrame(binary, columns=list("abcd"))
    model = quick().fit(frame)
    assert list(model.feature_names_in_) == list("abcd")
    assert model.score(frame) < 0


@pytest.mark.parametrize(
    ("estimator", "X", "sentence"),
    [
        (
            quick(support="binary"),
            [[0, 1], [0, 2]],
            r"RBMDensity.fit: X must hold only 0 and 1; got 2 at row 1, column 1",
        ),
        (quick(support="spin"), [[-1, 1], [0, 1]], r"must hold only -1 and \+1; got 0"),
        (
            quick(support="counts"),
            [[0, 1], [0, 1]],
            r"RBMDensity: support must be one of 'auto', 'binary', 'spin', 'real'; got 'counts'",
        ),
        (
            MaxEntDensity(support="binary"),
            [[0.5, 1], [0, 1]],
            r"MaxEntDensity.fit: X must hold only 0 and 1; got 0.5",
        ),
        (
            quick(),
            [[0.0, 1.0], [1.0, np.nan]],
            r"^RBMDensity: Input X contains NaN\. Impute them first, or use MixtureDensity",
        ),
        (
            quick(),
            [0.0, 1.0],
            r"^RBMDensity: Expected 2D array, got 1D array instead: array=\[0\. 1\.\]\. Reshape",
        ),
        (
            quick(),
            [[0.5, 1.0], [0.25, 1.0]],
            r"RBMDensity: X must vary in every column.*one value throughout column 1.*Leave "
            r"constant",
        ),
        (
            quick(n_hidden=0),
            [[0, 1], [0, 1]],
            r"RBMDensity: n_hidden must be a whole number of at least 1; got 0",
        ),
        (quick(n_chains=0), [[0, 1], [0, 1]], r"RBMDensity: n_chains must be"),
        (
            quick(objective="mle"),
            [[0, 1], [0, 1]],
            r"RBMDensity: objective must be one of .*; got 'mle'",
        ),
        (
            quick(validation_fraction=1.0),
            [[0, 1], [0, 1]],
            r"validation_fraction must lie in \[0, 0.9\]; got 1.0",
        ),
        (
            MaxEntDensity("triples"),
            [[0, 1], [0, 1]],
            r"MaxEntDensity: features must be .*; got 'triples'",
        ),
    ],
)
def test_bad_input_gets_one_sentence(estimator: Any, X: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        estimator.fit(X)


def test_an_unknown_evaluator_is_refused(binary: np.ndarray) -> None:
    with pytest.raises(
        InputError,
        match=r"RBMDensity: evaluator must be one of 'auto', 'enumeration'.*; got 'guess'",
    ):
        quick(evaluator="guess").fit(binary).score(binary)


def test_binary_models_refuse_other_values_when_scoring(binary: np.ndarray) -> None:
    with pytest.raises(
        InputError, match=r"RBMDensity.evaluate: X must hold only 0 and 1; got 3 at row 0, column 2"
    ):
        quick().fit(binary).score([[0, 1, 3, 0]])


@pytest.mark.parametrize("sort", ["binary", "real"])
def test_saved_estimators_come_back(
    sort: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    X = request.getfixturevalue(sort)
    model = quick(validation_fraction=0.2).fit(
        pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    )
    model.save(tmp_path / "run")
    loaded = load(tmp_path / "run")
    frame = pd.DataFrame(X, columns=loaded.feature_names_in_)
    np.testing.assert_array_equal(loaded.score_samples(frame), model.score_samples(frame))
    assert loaded.get_params() == model.get_params()
    assert partita.load(tmp_path / "run").model.title() == model.model_.title()
    with pytest.raises(RunError, match="already holds a run"):
        model.save(tmp_path / "run")


def test_a_run_without_an_estimator_is_refused(tmp_path: Path, generator: torch.Generator) -> None:
    from partita.models import RBM

    partita.fit(
        RBM(3, 2, generator=generator),
        torch.eye(3),
        epochs=1,
        out=tmp_path / "run",
        generator=generator,
    )
    with pytest.raises(RunError, match=r"must hold an estimator.*Use partita.load instead"):
        load(tmp_path / "run")
