"""The estimators of real energy models: scikit-learn's contract, exact scores in the plane,
features, imputation, saving.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from partita.errors import InputError
from partita.estimators import LatentEnergyDensity, NeuralEnergyDensity, load
from partita.evaluators import AIS

SHORT = AIS(temperatures=20, chains=30, adaptive=False)
QUICK = [
    LatentEnergyDensity(
        n_hidden=3,
        n_features=4,
        width=8,
        n_layers=1,
        epochs=2,
        n_chains=16,
        validation_fraction=0.0,
        evaluator=SHORT,
    ),
    NeuralEnergyDensity(
        width=8, n_layers=1, epochs=2, n_chains=16, validation_fraction=0.0, evaluator=SHORT
    ),
]


@pytest.fixture
def plane() -> np.ndarray:
    """Two clusters in units far from standard ones; the second column follows the first."""
    rng = np.random.default_rng(0)
    sign = rng.choice([-1.0, 1.0], 400)
    return np.stack([50 + 10 * sign, 3 + 0.2 * sign], 1) + rng.normal(size=(400, 2)) * [2.0, 0.05]


@parametrize_with_checks(QUICK)
def test_scikit_learn_contract(
    estimator: Any, check: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # else scikit-learn skips its check of NumPy arrays under array API dispatch
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


GOOD = [
    LatentEnergyDensity(n_hidden=8, n_features=8, width=24, epochs=150, random_state=0),
    NeuralEnergyDensity(width=24, epochs=150, random_state=0),
]


@pytest.mark.parametrize("estimator", GOOD, ids=lambda e: type(e).__name__)
def test_the_plane_is_learned_exactly_and_in_its_own_units(
    estimator: Any, plane: np.ndarray, tmp_path: Any
) -> None:
    """Within 0.25 nats of the true density's mean log-likelihood of these 400 rows, and 1.0 above
    one normal distribution's.
    """
    model: Any = clone(estimator)
    model.fit(plane)
    scale = np.array([2.0, 0.05])
    centers = np.array([[60.0, 3.2], [40.0, 2.8]])
    squares = (((plane[:, None] - centers) / scale) ** 2).sum(-1)
    truth = np.log(np.exp(-0.5 * squares).mean(-1) / (2 * np.pi * scale.prod())).mean()
    normal = -0.5 * np.linalg.slogdet(2 * np.pi * np.e * np.cov(plane.T))[1]
    q = model.evaluate(plane)
    assert q.kind == "estimate" and model.score_kind_ == "estimate" and q.trusted and q.width < 1e-3
    assert truth - 0.25 < q.value < truth + 0.2 and q.value > normal + 0.1
    draws = model.sample(500)
    assert abs(np.corrcoef(draws.T)[0, 1] - np.corrcoef(plane.T)[0, 1]) < 0.1
    holes = np.array([[60.0, np.nan], [np.nan, 2.8], [np.nan, np.nan]])
    filled = model.impute(holes)
    assert abs(filled[0, 1] - 3.2) < 0.1 and abs(filled[1, 0] - 40) < 4 and filled[0, 0] == 60.0
    assert abs(model.impute(holes, how="draw")[0, 1] - 3.2) < 0.4
    again = load(model.save(tmp_path / "run"))
    np.testing.assert_allclose(
        again.score_samples(plane), model.score_samples(plane), rtol=0, atol=1e-9
    )
    with pytest.raises(
        InputError, match=r"impute: how must be 'mean' or 'draw' for real columns; got 'mode'"
    ):
        model.impute(holes, how="mode")


def test_hidden_probabilities_are_features(plane: np.ndarray) -> None:
    model = LatentEnergyDensity(n_hidden=5, n_features=4, width=8, epochs=3, random_state=0).fit(
        plane
    )
    features = model.transform(plane)
    assert features.shape == (400, 5) and ((features > 0) & (features < 1)).all()
    assert list(model.get_feature_names_out()) == [f"latentenergydensity{i}" for i in range(5)]


def test_binary_columns_are_a_finite_support() -> None:
    X = np.random.default_rng(0).integers(0, 2, (80, 4))
    model = NeuralEnergyDensity(width=8, epochs=3, random_state=0).fit(X)
    assert model.evaluate(X).kind == "exact"
    assert set(np.unique(model.sample(20))) <= {0.0, 1.0}
    with pytest.raises(
        InputError,
        match=r"LatentEnergyDensity: support must be one of 'auto', 'real'; got 'binary'",
    ):
        LatentEnergyDensity(support="binary").fit(X)
