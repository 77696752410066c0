"""PrototypeEncoder as scikit-learn sees it, and what it says about clusters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from partita.core.errors import InputError
from partita.estimators import PrototypeEncoder

QUICK = PrototypeEncoder(n_components=4, n_prototypes=(3,), hidden=(8,), epochs=2, random_state=0)


@parametrize_with_checks([QUICK])
def test_scikit_learn_contract(estimator: Any, check: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


@pytest.fixture
def clouds() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    return 3 * rng.normal(size=(3, 5))[y] + rng.normal(size=(150, 5)) * 0.4, y


def test_clusters_probes_and_the_page(clouds: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    X, y = clouds
    model = PrototypeEncoder(8, (3, 6), hidden=(32,), epochs=30, batch_size=30, queue=100, random_state=0).fit(X, y)
    assert model.ami_[3] > 0.95 and set(model.ami_) == {3, 6}
    assert model.knn_score(X, y) > 0.97 and model.probe_score(X, y) > 0.97
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    np.testing.assert_allclose(np.linalg.norm(model.transform(X), axis=1), 1, rtol=1e-5)
    assert [len(phi) for phi in model.concentration_] == [3, 6] and np.mean(model.concentration_[0]) == pytest.approx(0.2)
    page = model.report(tmp_path / "map.html", X, y).read_text()
    assert "AMI" in page and "trace of the fit" in page


def test_labels_measure_and_never_teach(clouds: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = clouds
    np.testing.assert_array_equal(clone(QUICK).fit(X, y).transform(X), clone(QUICK).fit(X).transform(X))
    assert clone(QUICK).fit(X).ami_ == {}


@pytest.mark.parametrize("shape", [(6, 6), (36,), (3, 4)])
def test_images_and_sequences(shape: tuple[int, ...]) -> None:
    X = np.random.default_rng(0).random((30, 36))
    model = clone(QUICK).set_params(shape=shape, hidden=None, n_prototypes=None).fit(X)
    assert model.transform(X).shape == (30, 4) and len(model.prototypes_) == 1


def test_wrong_input_is_named() -> None:
    X = np.random.default_rng(0).random((20, 6))
    with pytest.raises(InputError, match="augmentation must be one of 'auto'"):
        clone(QUICK).set_params(augmentation="flip").fit(X)
    with pytest.raises(InputError, match="shape must divide"):
        clone(QUICK).set_params(shape=(4, 4)).fit(X)
