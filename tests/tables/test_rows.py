"""Rows: batches, weights, means, gray levels made binary, and memory maps that stay on disk."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm

from partita.datasets import Sequences
from partita.errors import InputError
from partita.tables import Rows, arrays, as_rows

FALSE_ALARM = 1e-4  # of each family of tests below, shared out over its members, at its fixed seed


@pytest.fixture
def gray() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (40, 6), dtype=np.uint8)


def index(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers)


def test_batch_holds_the_rows_asked_for(generator: torch.Generator) -> None:
    x = np.arange(12, dtype=np.uint8).reshape(4, 3)
    batch = Rows(x).batch(index(3, 0, 3), generator=generator)
    assert batch.x.tolist() == [[9, 10, 11], [0, 1, 2], [9, 10, 11]]
    assert batch.weight is None
    assert batch.row is not None
    assert batch.row.tolist() == [3, 0, 3]


@pytest.mark.parametrize(
    ("given", "batch"),
    [
        ("uint8", "float32"),
        ("bool", "float32"),
        ("int64", "float32"),
        ("float16", "float32"),
        ("float64", "float64"),
    ],
)
def test_batches_are_float32_unless_the_table_is_float64(
    given: str, batch: str, generator: torch.Generator
) -> None:
    rows = Rows(np.eye(3, dtype=given))
    assert rows.dtype == getattr(torch, batch)
    assert rows.batch(index(0, 1), generator=generator).x.dtype == rows.dtype
    assert torch.equal(rows.tensor(), torch.eye(3, dtype=rows.dtype))


def test_big_endian_numbers_are_read(generator: torch.Generator) -> None:
    assert Rows(np.array([[1, 258]], dtype=">i2")).batch(
        index(0), generator=generator
    ).x.tolist() == [[1, 258]]


def test_a_batch_is_a_copy(generator: torch.Generator) -> None:
    x = torch.ones(2, 2)
    Rows(x).batch(index(0), generator=generator).x.zero_()
    assert x.sum() == 4


@pytest.mark.parametrize("width", [3, 700])
def test_mean_and_variance_are_numpys(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "CHUNK", 2048)
    rng = np.random.default_rng(2)
    x, weight = 1e4 + rng.normal(size=(50, width)), rng.random(50)
    rows = Rows(x, weight)
    mean = np.average(x, axis=0, weights=weight)
    np.testing.assert_allclose(rows.mean(), mean, rtol=1e-13)
    np.testing.assert_allclose(
        rows.variance(), np.average((x - mean) ** 2, axis=0, weights=weight), rtol=1e-10
    )
    np.testing.assert_allclose(Rows(x).variance(), x.var(0), rtol=1e-10)
    assert rows.mean().dtype == torch.float64


def test_weights_have_mean_one_and_follow_their_rows(generator: torch.Generator) -> None:
    rows = Rows(np.zeros((4, 1)), [1, 2, 3, 2])
    batch = rows.batch(index(2, 0), generator=generator)
    assert batch.weight is not None
    assert batch.weight.tolist() == [1.5, 0.5]
    assert batch.weight.dtype == batch.x.dtype
    part = rows.take([1, 2])
    assert part.weight is not None
    torch.testing.assert_close(part.weight, torch.tensor([0.8, 1.2], dtype=torch.float64))


def test_dynamic_binarization_draws_anew_with_the_gray_levels_as_probabilities(
    gray: np.ndarray, generator: torch.Generator
) -> None:
    rows, draws = Rows(gray, binarize="dynamic"), 4000
    chosen = torch.arange(40).repeat(draws)
    x = rows.batch(chosen, generator=generator).x.reshape(draws, 40, 6)
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert not torch.equal(x[0], x[1])
    p = gray / 255
    z = (x.double().mean(0).numpy() - p) * np.sqrt(draws / np.maximum(p * (1 - p), 1e-12))
    assert np.abs(z).max() < norm.isf(FALSE_ALARM / (2 * p.size))


def test_dynamic_mean_and_variance_are_those_of_batches(gray: np.ndarray) -> None:
    rows, p = Rows(gray, binarize="dynamic"), gray.mean(0) / 255
    np.testing.assert_allclose(rows.mean(), p, rtol=1e-6)
    np.testing.assert_allclose(rows.variance(), p * (1 - p), rtol=1e-6)


def test_threshold_cuts_at_its_gray_level(gray: np.ndarray) -> None:
    rows = Rows(gray, binarize=0.25)
    np.testing.assert_array_equal(rows.tensor(), gray / 255 > 0.25)
    np.testing.assert_allclose(rows.mean(), (gray / 255 > 0.25).mean(0))
    np.testing.assert_allclose(rows.variance(), (gray / 255 > 0.25).var(0))


def test_the_same_seed_draws_the_same_rows(gray: np.ndarray) -> None:
    rows = Rows(gray, binarize="dynamic")
    first, again, other = (rows.tensor(torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_bytes_of_zeros_and_ones_are_not_divided() -> None:
    assert Rows(np.eye(2, dtype=np.uint8), binarize=0.5).tensor().tolist() == [[1, 0], [0, 1]]


def test_a_scale_is_remembered_when_rows_become_binary_later() -> None:
    rows = Rows([[4.0, 12.0]], scale=16)
    assert rows.tensor().tolist() == [[4, 12]]
    assert rows.binarized(0.5).tensor().tolist() == [[0, 1]]
    assert rows.binarized(0.5).binarized(None).tensor().tolist() == [[4, 12]]


def test_take_is_a_view_that_nests(generator: torch.Generator) -> None:
    x = np.arange(10, dtype=np.float32)[:, None]
    part = (
        Rows(x, columns=["a"])
        .take(torch.tensor([9, 7, 5, 3]))
        .take(np.array([False, True, True, False]))
    )
    assert np.shares_memory(part.array, x)
    assert part.columns == ("a",)
    assert len(part) == 2
    assert part.tensor().flatten().tolist() == [7, 5]
    assert part.batch(index(1), generator=generator).x.item() == 5
    assert part.mean().item() == 6


def test_a_memory_map_stays_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    monkeypatch.setattr(arrays, "CHUNK", 64)
    x = np.random.default_rng(3).random((100, 4), dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    read: list[int] = []
    original = Rows._read
    monkeypatch.setattr(
        Rows, "_read", lambda self, asked: (read.append(len(asked)), original(self, asked))[1]
    )
    rows = Rows(mapped)
    assert np.shares_memory(rows.array, mapped)
    np.testing.assert_allclose(rows.mean(), x.astype(float).mean(0), rtol=1e-12)
    assert max(read) == 16  # 64 numbers at a time, never the whole
    np.testing.assert_array_equal(
        rows.take([5, 50]).batch(index(1), generator=generator).x[0], x[50]
    )
    np.testing.assert_array_equal(rows.tensor(), x)


def test_as_rows_passes_rows_through(generator: torch.Generator) -> None:
    rows = Rows(np.eye(2))
    assert as_rows(rows) is rows
    weighted = as_rows(rows, [1, 3])
    assert weighted.weight is not None
    assert weighted.weight.tolist() == [0.5, 1.5]
    assert rows.weight is None


def test_repr_says_what_it_is() -> None:
    assert repr(Rows(np.eye(2), [1, 1], "dynamic")) == "Rows(2 x 2, weighted, binarize='dynamic')"


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1, 2, 3], r"fit: weight must have shape \(2,\), one number per row; got shape \(3,\)\."),
        ([[1, 2]], r"got shape \(1, 2\)"),
        ([1, -1], r"fit: weight must be finite and at least 0; got -1\.0 at row 1\."),
        ([math.nan, 1], r"got nan at row 0"),
        ([1, math.inf], r"got inf at row 1"),
        ([0, 0], r"fit: weight must have a sum above 0; got only zeros\. Leave weight out"),
        (["a", "b"], r"fit: weight must be numbers that float64 holds; got \['a', 'b'\]\."),
    ],
)
def test_bad_weights_are_refused(weight: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_rows(np.eye(2), weight)


@pytest.mark.parametrize("binarize", ["static", 0, 1, 1.5, True, math.nan])
def test_bad_binarize_is_refused(binarize: object) -> None:
    with pytest.raises(
        InputError,
        match=r"Rows: binarize must be None, 'dynamic' or a threshold between 0 and 1; got",
    ):
        Rows(np.eye(2), binarize=binarize)  # type: ignore[arg-type]


def test_gray_levels_outside_the_scale_are_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"hold gray levels from 0 to 1 to be made binary; got values from -2 to 0\.5\. Give "
        r"the largest",
    ):
        Rows([[-2.0, 0.5]], binarize="dynamic")
    with pytest.raises(
        InputError, match=r"from 0 to 16 to be made binary; got values from 1 to 17\."
    ):
        Rows([[1, 17]], binarize=0.5, scale=16)


def test_all_dynamic_rows_need_a_generator() -> None:
    with pytest.raises(
        InputError,
        match=r"Rows\.tensor: generator must be given when binarize='dynamic' draws the rows anew; "
        r"got None\.",
    ):
        Rows(np.eye(2), binarize="dynamic").tensor()


def test_numbers_of_a_row_are_those_that_are_there() -> None:
    x = np.arange(12.0).reshape(4, 3)
    assert Rows(x).numbers_per_row() == 3
    x[0, 0] = x[1] = math.nan
    assert Rows(x, missing=True).numbers_per_row() == 2
    assert Sequences.of([np.zeros((4, 2)), np.zeros((1, 2))]).numbers_per_row() == 5


def test_column_names_must_fit() -> None:
    with pytest.raises(InputError, match=r"Rows: columns must name 2 columns; got 1 names\."):
        Rows(np.eye(2), columns=["a"])


def test_batches_lie_in_memory_as_new_tensors_do(generator: torch.Generator) -> None:
    """Otherwise the bits of a fit would depend on where NumPy found room for its rows, which is by
    chance.
    """
    rows = Rows(np.random.default_rng(0).normal(size=(50, 3)))
    # all at once, so that each is somewhere else
    held = [rows.batch(torch.arange(n), generator=generator).x for n in range(1, 50)]
    assert {x.data_ptr() % 64 for x in held} == {torch.empty(1).data_ptr() % 64}
