"""Data by name, path or value: sizes, splits that never change, the data folder, and helpful
refusals.
"""

from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
import torch

from partita.datasets import load, names, toys
from partita.datasets.named import hold_out
from partita.errors import DataError, InputError
from partita.tables import Rows


@pytest.fixture(autouse=True)
def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARTITA_DATA", raising=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(7)
    for name in ("mnist", "debd", "spikes"):
        (tmp_path / name).mkdir()
    pixels = rng.integers(0, 256, (30, 28, 28), dtype=np.uint8)
    bits = rng.integers(0, 2, (50, 16), dtype=np.uint8)
    np.savez_compressed(
        tmp_path / "mnist" / "mnist.npz", x_train=pixels, y_train=np.zeros(30), x_test=pixels[:10]
    )
    np.savez_compressed(
        tmp_path / "debd" / "nltcs.npz", train=bits, valid=bits[:20], test=bits[:10]
    )
    np.savez_compressed(
        tmp_path / "spikes" / "spikes.npz", few=bits[:, :5], many=bits, labels=np.array(["a"])
    )
    monkeypatch.setenv("PARTITA_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "train", "test", "width", "shape"),
    [
        ("digits", 1438, 359, 64, (8, 8)),
        ("digits-gray", 1438, 359, 64, (8, 8)),
        ("bars-and-stripes", 32, 32, 16, (4, 4)),
        ("moons", 10_000, 10_000, 2, None),
        ("8gaussians", 10_000, 10_000, 2, None),
        ("checkerboard", 10_000, 10_000, 2, None),
    ],
)
def test_built_in_sets_have_their_size(
    name: str, train: int, test: int, width: int, shape: tuple | None
) -> None:
    data = load(name)
    assert data.test is not None
    assert (len(data.train), len(data.test), data.train.width, data.shape) == (
        train,
        test,
        width,
        shape,
    )
    assert data.name == name
    assert data.note
    assert name in [entry.name for entry in names()]


def test_digits_are_the_gray_ones_cut_at_half() -> None:
    gray, binary = load("digits-gray").train.tensor(), load("digits").train.tensor()
    assert (gray.min(), gray.max()) == (0, 16)
    assert torch.equal(binary, (gray > 7.5).float())


def test_known_entropies_come_along() -> None:
    assert load("bars-and-stripes").entropy == toys.bars_and_stripes_entropy(4)
    assert load("checkerboard").entropy == toys.CHECKERBOARD_ENTROPY
    assert load("moons").entropy is None


def test_train_and_test_of_toys_differ_and_do_not_depend_on_global_seeds() -> None:
    torch.manual_seed(1)
    first = load("moons")
    torch.manual_seed(2)
    again = load("moons")
    assert first.test is not None
    assert torch.equal(first.train.tensor(), again.train.tensor())
    assert not torch.equal(first.train.tensor(), first.test.tensor())


def test_the_held_out_rows_are_a_fixed_fifth() -> None:
    rows = Rows(np.arange(100)[:, None])
    train, test = hold_out(rows)
    _, again = hold_out(Rows(np.arange(100)[:, None]))
    assert test is not None
    assert again is not None
    assert len(test) == 20
    assert torch.equal(test.tensor(), again.tensor())
    assert sorted(torch.cat([train.tensor(), test.tensor()]).flatten().tolist()) == list(range(100))
    assert test.tensor().flatten().tolist() != list(range(80, 100))


def test_too_few_rows_are_not_split() -> None:
    data = load([[1.0, 2.0]])
    assert len(data.train) == 1
    assert data.test is None


def test_values_and_frames_are_split() -> None:
    frame = pd.DataFrame({"a": np.arange(10.0), "b": np.ones(10)})
    data = load(frame)
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (8, 2)
    assert data.columns == data.test.columns == ("a", "b")


def test_images_are_flattened_and_keep_their_shape() -> None:
    data = load(torch.arange(40.0).reshape(10, 2, 2))
    assert (data.train.width, data.shape) == (4, (2, 2))


def test_a_data_set_passes_through_and_can_become_binary() -> None:
    data = load("digits-gray")
    assert load(data) is data
    binary = load(data, binarize=0.4).train.tensor()
    assert torch.equal(binary, (data.train.tensor() / 16 > 0.4).float())
    assert load("digits-gray", binarize="dynamic").train.mean().max() <= 1


def test_a_path_is_read_and_split(tmp_path: Path) -> None:
    pd.DataFrame({"a": np.arange(10), "b": np.arange(10) % 2}).to_csv(
        tmp_path / "x.csv", index=False
    )
    data = load(tmp_path / "x.csv")
    assert data.test is not None
    assert (len(data.train), len(data.test), data.columns) == (8, 2, ("a", "b"))
    assert load(str(tmp_path / "x.csv")).name == str(tmp_path / "x.csv")


def test_a_memory_mapped_file_stays_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(10))
    assert isinstance(load(tmp_path / "x.npy").train.array.base, np.memmap)


def test_splits_of_different_width_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", train=np.eye(4), test=np.eye(3))
    with pytest.raises(
        DataError, match=r"every split must have 4 columns, as train has; got 3\. Save the parts"
    ):
        load(tmp_path / "x.npz")


def test_mnist_of_the_folder_is_dynamic(folder: Path) -> None:
    data = load("mnist")
    assert data.test is not None
    assert (data.train.binarize, data.test.binarize, data.shape) == ("dynamic", "dynamic", (28, 28))
    assert (len(data.train), len(data.test), data.train.width) == (30, 10, 784)
    assert load("mnist", binarize="none").train.tensor().max() > 200
    assert load("mnist", binarize=None).train.binarize is None
    assert load("mnist", binarize=0.5).train.tensor().unique().tolist() == [0, 1]


def test_names_of_the_folder_load(folder: Path) -> None:
    data = load("debd/nltcs")
    assert data.valid is not None
    assert data.test is not None
    assert (len(data.train), len(data.valid), len(data.test)) == (50, 20, 10)
    assert load("spikes:few").train.width == 5
    assert load("spikes/spikes:many").train.width == 16


def test_names_lists_the_folder_from_headers(folder: Path) -> None:
    (folder / "broken.npz").write_bytes(b"no zip")
    listed = {entry.name: entry for entry in names()}
    assert listed["mnist"][1:3] == ("30/10 x 784", "$PARTITA_DATA")
    assert listed["debd/nltcs"].size == "50/20/10 x 16"
    assert (listed["spikes:few"].size, listed["spikes:many"].size) == ("50 x 5", "50 x 16")
    assert listed["broken"].size == "cannot be read"
    assert "spikes:labels" not in listed
    assert listed["digits"].where == "built in"


def test_mnist_is_offered_from_openml_without_a_folder() -> None:
    assert {entry.name: entry.where for entry in names()}["mnist"] == "OpenML"


def test_mnist_without_a_network_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **settings: object) -> None:
        raise URLError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fail)
    with pytest.raises(
        DataError,
        match=r"must come from \$PARTITA_DATA or OpenML; got neither .*no network.* set "
        r"PARTITA_DATA to",
    ):
        load("mnist")


def test_mnist_from_openml_is_split_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.zeros((60_002, 784), dtype=np.uint8)
    pixels[60_000:] = 255
    monkeypatch.setattr(
        "sklearn.datasets.fetch_openml", lambda *args, **settings: (pixels, SimpleNamespace())
    )
    data = load("mnist", binarize="none")
    assert data.test is not None
    assert (len(data.train), len(data.test), data.shape) == (60_000, 2, (28, 28))
    assert data.test.tensor().min() == 255


def test_unknown_names_are_answered_with_the_nearest(folder: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"'digit' must be a path or one of digits, .*debd/\.\.\., .*\. Did you mean "
        r"'digits'\?",
    ):
        load("digit")
    with pytest.raises(DataError, match=r"Did you mean 'debd/nltcs'\?"):
        load("debd/nltc")
    with pytest.raises(
        DataError,
        match=r"got neither\. Set PARTITA_DATA to a folder that holds more, or give the path of a "
        r"file\.",
    ):
        load("zzzzzz")


def test_what_is_wrong_with_a_path_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is a folder, not a file"):
        load(tmp_path)
    with pytest.raises(DataError, match=r"^file not found: "):
        load("none.csv")
    with pytest.raises(DataError, match=r"^file not found: "):
        load("photo.jpeg")
    np.save(tmp_path / "x.npy", np.float64(3))
    with pytest.raises(DataError, match=r"x must be a table of rows and columns; got shape \(\)"):
        load(tmp_path / "x.npy")
    with pytest.raises(
        InputError, match=r"load: x must be a table of rows and columns; got shape \(3,\)\."
    ):
        load(np.zeros(3))
