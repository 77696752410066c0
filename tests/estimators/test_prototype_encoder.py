"""PrototypeEncoder as scikit-learn sees it, and what it says about clusters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import partita
from partita.errors import InputError, PartitaWarning
from partita.estimators import PrototypeEncoder, load

QUICK = PrototypeEncoder(n_components=4, n_prototypes=(3,), hidden=(8,), epochs=2, random_state=0)


# on a line there are two points
@pytest.mark.filterwarnings("ignore:PrototypeEncoder.*have rows:partita.errors.PartitaWarning")
@parametrize_with_checks([QUICK])
def test_scikit_learn_contract(
    estimator: Any, check: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


@pytest.fixture
def clouds() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    return 3 * rng.normal(size=(3, 5))[y] + rng.normal(size=(150, 5)) * 0.4, y


def test_clusters_probes_and_the_page(
    clouds: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, y = clouds
    model = PrototypeEncoder(
        8, (3, 6), hidden=(32,), epochs=30, batch_size=30, queue=100, random_state=0
    ).fit(X, y)
    assert model.ami_[3] > 0.95 and set(model.ami_) == {3, 6}
    assert model.knn_score(X, y) > 0.97 and model.probe_score(X, y) > 0.97
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    np.testing.assert_allclose(np.linalg.norm(model.transform(X), axis=1), 1, rtol=1e-5)
    assert [len(phi) for phi in model.concentration_] == [3, 6] and np.mean(
        model.concentration_[0]
    ) == pytest.approx(0.2)
    page = model.report(tmp_path / "map.html", X, y).read_text()
    assert "AMI" in page and "trace of the fit" in page


def test_labels_measure_and_never_teach(clouds: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = clouds
    np.testing.assert_array_equal(
        clone(QUICK).fit(X, y).transform(X), clone(QUICK).fit(X).transform(X)
    )
    assert clone(QUICK).fit(X).ami_ == {}


@pytest.mark.parametrize("shape", [(6, 6), (36,), (3, 4)])
def test_images_and_sequences(shape: tuple[int, ...]) -> None:
    X = np.random.default_rng(0).random((30, 36))
    model = clone(QUICK).set_params(shape=shape, hidden=None, n_prototypes=None).fit(X)
    assert model.transform(X).shape == (30, 4) and len(model.prototypes_) == 1


def test_a_saved_encoder_is_the_same(clouds: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    X, y = clouds
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = clone(QUICK).set_params(n_prototypes=(3, 5)).fit(frame, y)
    folder = model.save(tmp_path / "encoder")
    again = load(folder)
    np.testing.assert_array_equal(again.transform(frame), model.transform(frame))
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(again.labels_, model.labels_)
    for one, other in zip(
        (*again.prototypes_, *again.concentration_),
        (*model.prototypes_, *model.concentration_),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    assert (
        again.ami_ == model.ami_
        and again.uniformity_ == model.uniformity_
        and list(again.feature_names_in_) == list("abcde")
    )
    assert (
        list(again.get_feature_names_out()) == [f"prototypeencoder{i}" for i in range(4)]
        and again.n_features_in_ == 5
    )
    assert again.run_.series("info_nce") == model.run_.series("info_nce")
    assert again.report(tmp_path / "again.html", frame, y).stat().st_size > 1000
    run = partita.load(folder)  # the network alone, on standardized rows
    rows = torch.from_numpy(((X - X.mean(0)) / X.std(0)).astype(np.float32))
    np.testing.assert_allclose(run.model(rows).detach().numpy(), model.transform(frame), atol=1e-6)
    assert (
        not list(folder.rglob("*.pkl")) and (folder / "checkpoints" / "model.safetensors").exists()
    )
    fresh = clone(again).fit(frame)
    np.testing.assert_array_equal(fresh.transform(frame), model.transform(frame))


def test_in_a_pipeline_with_frames_and_numbers_of_numpy(
    clouds: tuple[np.ndarray, np.ndarray],
) -> None:
    X, y = clouds
    encoder = clone(QUICK).set_params(n_prototypes=np.int64(3)).set_output(transform="pandas")
    pipe = make_pipeline(encoder, LogisticRegression()).fit(X, y)
    assert pipe.score(X, y) > 0.5
    assert list(pipe[:-1].transform(X).columns) == [f"prototypeencoder{i}" for i in range(4)]
    assert len(encoder.prototypes_) == 1 and encoder.prototypes_[0].shape == (3, 4)


def test_views_by_the_user(clouds: tuple[np.ndarray, np.ndarray]) -> None:
    X, _ = clouds
    seen = []

    def noisy(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        seen.append(x.shape)
        return x + 0.1 * torch.randn(x.shape, generator=generator)

    model = clone(QUICK).set_params(augmentation=noisy, batch_size=50).fit(X)
    # two views, two epochs of three batches
    assert len(seen) == 2 * 2 * 3 and set(seen) == {(50, 5)}
    np.testing.assert_array_equal(model.transform(X), clone(model).fit(X).transform(X))


def test_the_trace_tells_e_steps_from_m_steps(
    clouds: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, _ = clouds
    model = clone(QUICK).set_params(epochs=5, warm_up=2, e_step_every=2, batch_size=50).fit(X)
    e_steps, grouped = model.run_.series("e_steps"), dict(model.run_.series("proto_nce"))
    # at the ends of epochs two and four
    assert [count for _, count in e_steps] == [0] * 6 + [1] * 6 + [2] * 3
    assert all((grouped[step] > 0) == (count > 0) for step, count in e_steps)
    # numbers share a scale of colors
    assert "E-steps" in model.report(tmp_path / "page.html", X, X[:, 0]).read_text()


def test_clusters_that_cannot_be_are_named(clouds: tuple[np.ndarray, np.ndarray]) -> None:
    X, _ = clouds
    with pytest.warns(
        PartitaWarning, match="clusters must be at most the number of rows, 8; got 12"
    ):
        many = clone(QUICK).set_params(n_prototypes=(12,)).fit(X[:8])
    assert len(many.prototypes_[0]) <= 8
    with pytest.warns(
        PartitaWarning, match="10 prototypes were requested and 4 have rows.*smaller n_prototypes"
    ):
        few = clone(QUICK).set_params(n_prototypes=(10,)).fit(np.repeat(X[:4], 5, axis=0))
    assert len(few.prototypes_[0]) == len(few.concentration_[0]) == 4


def test_a_limit_of_time_leaves_room_for_clusters() -> None:
    encoder = PrototypeEncoder(max_minutes=0.01)
    assert (
        encoder._objective().warm_up == 1 and PrototypeEncoder(epochs=40)._objective().warm_up == 10
    )


def test_wrong_input_is_named() -> None:
    X = np.random.default_rng(0).random((20, 6))
    with pytest.raises(InputError, match="augmentation must be one of 'auto'"):
        clone(QUICK).set_params(augmentation="flip").fit(X)
    with pytest.raises(InputError, match="shape must divide"):
        clone(QUICK).set_params(shape=(4, 4)).fit(X)
    with pytest.raises(InputError, match="epochs must be a whole number"):
        clone(QUICK).set_params(epochs=None).fit(X)
    with pytest.raises(InputError, match="batch_size must be a whole number of at least 2"):
        clone(QUICK).set_params(batch_size=1).fit(X)
    with pytest.raises(InputError, match="y must hold one value for each of the 20 rows"):
        clone(QUICK).fit(X).report("page.html", X, np.zeros(3))
