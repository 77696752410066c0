"""AutoregressiveDensity: scikit-learn's contract, exact scores in the table's own units, saving."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate
from sklearn.utils.estimator_checks import parametrize_with_checks

from partita.estimators import AutoregressiveDensity, load


@parametrize_with_checks([AutoregressiveDensity(epochs=2, n_hidden=8, n_components=2)])
def test_scikit_learn_contract(
    estimator: Any, check: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # else scikit-learn skips its check of NumPy arrays under array API dispatch
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


@pytest.mark.parametrize("backbone", ["masked", "hyena"])
def test_binary_scores_are_masses_that_sum_to_one(backbone: str) -> None:
    X = np.random.default_rng(0).integers(0, 2, (100, 4))
    model = AutoregressiveDensity(backbone, width=8, epochs=2, random_state=0).fit(2 * X - 1)
    states = np.array(np.meshgrid(*[[-1, 1]] * 4)).reshape(4, -1).T
    assert np.exp(model.score_samples(states)).sum() == pytest.approx(1, abs=1e-10)
    assert set(np.unique(model.sample(50))) <= {-1, 1} and model.score_kind_ == "exact"


@pytest.mark.parametrize("backbone", ["masked", "conv"])
def test_real_scores_are_densities_in_the_tables_units(backbone: str) -> None:
    X = 100 + 20 * np.random.default_rng(0).normal(size=(200, 1))
    model = AutoregressiveDensity(backbone, width=8, epochs=5, random_state=0).fit(X)
    grid = np.linspace(-400, 600, 20_001)
    assert integrate.simpson(np.exp(model.score_samples(grid[:, None])), x=grid) == pytest.approx(
        1, abs=1e-6
    )


def test_a_dependence_is_learned() -> None:
    """The second column copies the first nine times in ten: the entropy is log 2 + H(0.1) = 1.018
    nats.
    """
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, 3000)
    X = np.c_[x, x ^ (rng.random(3000) < 0.1)]
    assert AutoregressiveDensity(random_state=0, epochs=20).fit(X).score(X) == pytest.approx(
        -1.018, abs=0.03
    )


def test_saved_estimators_score_the_same(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = AutoregressiveDensity(epochs=2, random_state=0).fit(X)
    model.save(tmp_path / "run")
    np.testing.assert_array_equal(load(tmp_path / "run").score_samples(X), model.score_samples(X))
