"""What looks like a table becomes one; what does not is refused with a reason."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch

from partita.errors import InputError
from partita.tables import arrays, as_rows


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_keep_their_column_names(frame: type) -> None:
    rows = as_rows(frame({"age": [1, 2], "tall": [True, False], "size": [0.5, 1.5]}))
    assert rows.columns == ("age", "tall", "size")
    assert rows.tensor().tolist() == [[1, 1, 0.5], [2, 0, 1.5]]


def test_nullable_numbers_of_pandas_are_numbers() -> None:
    frame = pd.DataFrame(
        {"a": pd.array([1, 2], dtype="Int64"), "b": pd.array([True, False], dtype="boolean")}
    )
    assert as_rows(frame).tensor().tolist() == [[1, 1], [2, 0]]


def test_columns_of_one_name_are_both_kept() -> None:
    frame = pd.DataFrame(np.array([[1, 2.5]], dtype=object), columns=["a", "a"])
    assert as_rows(frame).tensor().tolist() == [[1, 2.5]]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_text_columns_of_frames_are_named(frame: type) -> None:
    with pytest.raises(
        InputError,
        match=r"fit: x must be numeric; got text or other values in columns 'city', 'code'\. "
        r"Encode",
    ):
        as_rows(frame({"age": [1, 2], "city": ["Rome", "Oslo"], "code": ["1", "2"]}))


def test_dates_are_not_numbers() -> None:
    with pytest.raises(InputError, match=r"text or other values in column 'day'"):
        as_rows(pd.DataFrame({"age": [1], "day": pd.to_datetime(["2020-01-01"])}))


def test_many_text_columns_are_counted() -> None:
    with pytest.raises(
        InputError, match=r"columns 'c0', 'c1', 'c2', 'c3', 'c4' and 3 more\. Encode"
    ):
        as_rows(pd.DataFrame({f"c{i}": ["a"] for i in range(8)}))


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [0.0, 1.0]}),
        pl.DataFrame({"a": [1, None], "b": [0.0, 1.0]}),
    ],
)
def test_missing_values_of_frames_are_found_by_name(frame: object) -> None:
    with pytest.raises(
        InputError,
        match=r"fit: x must be finite; got nan at row 1, column 'a'\. Remove or impute the missing",
    ):
        as_rows(frame)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64", "int32", "bool"])
def test_tensors_of_all_kinds_are_taken(kind: str) -> None:
    x = torch.eye(3).to(getattr(torch, kind))
    assert as_rows(x).tensor().tolist() == torch.eye(3).tolist()


def test_a_parameter_can_be_data() -> None:
    assert as_rows(torch.ones(2, 2, requires_grad=True)).tensor().requires_grad is False


def test_lists_and_booleans_are_taken() -> None:
    assert as_rows([[True, False], [1, 0]]).tensor().tolist() == [[1, 0], [1, 0]]
    assert as_rows([[1, 2.5], (3, 4)]).tensor().tolist() == [[1, 2.5], [3, 4]]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (
            [1, 2, 3],
            r"fit: x must be a table of rows and columns; got shape \(3,\)\. Reshape it to \(rows, "
            r"columns\)\.",
        ),
        (np.zeros((2, 3, 4)), r"got shape \(2, 3, 4\)"),
        (5, r"got shape \(\)"),
        (pd.Series([1.0]), r"got shape \(1,\)"),
        (np.zeros((0, 3)), r"fit: x must have at least one row; got shape \(0, 3\)\."),
        (np.zeros((3, 0)), r"fit: x must have at least one column; got shape \(3, 0\)\."),
        (pd.DataFrame({"a": []}), r"at least one row"),
        ([], r"got shape \(0,\)"),
        ([[1, 2], [3]], r"fit: x must have rows of equal length; got rows of different lengths\."),
        ([[1, "a"], [2, "b"]], r"fit: x must be numeric; got text or other values in column 1\."),
        (np.array([["1", "2"]]), r"text or other values in columns 0, 1"),
        (np.array([[1j]]), r"fit: x must hold real numbers; got complex ones"),
        ([[1, object()]], r"text or other values in column 1"),
        ([[1, None]], r"got nan at row 0, column 1"),
        (np.array([[1.0, np.inf]]), r"fit: x must be finite; got inf at row 0, column 1\."),
        (np.ma.masked_array([[1, 2]], [[0, 1]]), r"got nan at row 0, column 1"),
        (
            scipy.sparse.eye(3).tocsr(),
            r"fit: x must be a dense table; got a sparse \w+\. Call x\.toarray\(\) first\.",
        ),
    ],
)
def test_what_is_no_table_is_refused(x: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_rows(x)


def test_a_missing_value_is_found_beyond_the_first_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "CHUNK", 8)
    x = torch.zeros(50, 2)
    x[37, 1] = float("nan")
    with pytest.raises(
        InputError, match=r"evaluate: x must be finite; got nan at row 37, column 1\."
    ):
        as_rows(x, owner="evaluate")
