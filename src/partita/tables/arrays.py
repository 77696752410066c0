"""Anything that looks like a table as a NumPy array with column names: arrays, memory maps,
tensors, frames, lists.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from partita.core.checks import check_tensor
from partita.errors import InputError, invalid
from partita.tables.on_disk import OnDisk

CHUNK = 1 << 21  # numbers that are looked at together when a table is streamed
NUMERIC = "biuf"  # NumPy's kinds of real numbers: bool, int, unsigned, float
ENCODE = (
    "Encode such columns as numbers first (one 0/1 column per category, say), or leave them out."
)

Columns = tuple[str, ...] | None


def as_table(x: Any, owner: str) -> tuple[np.ndarray, Columns]:
    """A numeric array of rows and columns, without a copy where none is needed, and the names of
    its columns if it has any.

    >>> as_table([[0, 1], [1, 1]], "fit")[0].shape
    (2, 2)
    """
    if isinstance(x, OnDisk):
        table, columns = cast("np.ndarray", x), None  # indexed like one
    elif isinstance(x, Tensor):
        table, columns = _of_array(_of_tensor(x, owner), owner), None
    elif hasattr(x, "columns") and hasattr(x, "to_numpy"):
        table, columns = _of_frame(x, owner)
    else:
        table, columns = _of_array(x, owner), None
    check_shape(table, owner)
    return table, columns


def check_shape(table: np.ndarray, owner: str) -> None:
    """Rows and columns, at least one of each."""
    if table.ndim != 2:
        shape = f"({', '.join(map(str, table.shape))}{',' if table.ndim == 1 else ''})"
        raise invalid(
            owner,
            "x",
            "be a table of rows and columns",
            f"shape {shape}",
            "Reshape it to (rows, columns).",
        )
    for axis, name in enumerate(("row", "column")):
        if table.shape[axis] == 0:
            raise invalid(
                owner,
                "x",
                f"have at least one {name}",
                f"shape {table.shape}",
                "Check how the data were selected.",
            )


def check_finite_table(
    table: np.ndarray, columns: Columns, owner: str, missing: bool = False
) -> None:
    """No infinity, and no NaN unless ``missing`` values may be, looked for in chunks so that a
    memory map stays on disk.
    """
    if table.dtype.kind != "f":
        return
    for part in chunks(*table.shape):
        bad = np.isinf(table[part]) if missing else ~np.isfinite(table[part])
        if bad.any():
            row, column = np.argwhere(bad)[0]
            value = table[part.start + row, column]
            where = f"{value} at row {part.start + row}, column {_label(columns, column)}"
            raise invalid(
                owner,
                "x",
                "be finite",
                where,
                "Remove or impute the missing values first." if value != value else "Replace it.",
            )


def chunks(rows: int, width: int) -> Iterator[slice]:
    """Ranges of rows that hold about ``CHUNK`` numbers each.

    >>> list(chunks(5, CHUNK // 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, CHUNK // width)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def not_numeric(owner: str, columns: Sequence[str], parameter: str = "x") -> InputError:
    """The error for columns of text, dates or other things that are no real numbers."""
    shown = ", ".join(columns[:5]) + (f" and {len(columns) - 5} more" if len(columns) > 5 else "")
    return invalid(
        owner,
        parameter,
        "be numeric",
        f"text or other values in column{'s' * (len(columns) > 1)} {shown}",
        ENCODE,
    )


def stack(series: Sequence[np.ndarray], columns: Columns, owner: str) -> np.ndarray:
    """Columns side by side; those that are not numeric are named in the error."""
    numbers = [_as_numbers(values) for values in series]
    text = [_label(columns, i) for i, values in enumerate(numbers) if values is None]
    if text:
        raise not_numeric(owner, text)
    return np.stack([values for values in numbers if values is not None], axis=1)


def _of_tensor(x: Tensor, owner: str) -> np.ndarray:
    check_tensor(owner, "x", x)
    x = x.detach().cpu()
    return (x.float() if x.dtype in (torch.bfloat16, torch.float16) else x).numpy()


def _of_frame(frame: Any, owner: str) -> tuple[np.ndarray, Columns]:
    columns = tuple(map(str, frame.columns))
    table = frame.to_numpy()
    if table.dtype.kind in NUMERIC:
        return table, columns
    # polars, else pandas
    series = (
        frame.get_columns()
        if hasattr(frame, "get_columns")
        else [column for _, column in frame.items()]
    )
    return stack([_of_series(column) for column in series], columns, owner), columns


def _of_series(series: Any) -> np.ndarray:
    nullable_numbers = getattr(series.dtype, "kind", "O") in NUMERIC  # pandas' Int64 and its kin
    values = series.to_numpy()
    return (
        series.to_numpy(dtype=float, na_value=np.nan)
        if nullable_numbers and values.dtype.kind == "O"
        else values
    )


def _of_array(x: Any, owner: str) -> np.ndarray:
    if hasattr(x, "toarray"):
        raise invalid(
            owner,
            "x",
            "be a dense table",
            f"a sparse {type(x).__name__}",
            "Call x.toarray() first.",
        )
    if isinstance(x, np.ma.MaskedArray):
        x = np.ma.filled(x.astype(float), np.nan)
    try:
        table = np.asarray(x)
    except ValueError as error:
        raise invalid(
            owner, "x", "have rows of equal length", "rows of different lengths", "Pad or cut them."
        ) from error
    if table.dtype.kind in NUMERIC:
        return table
    if table.dtype.kind == "c":
        raise invalid(
            owner,
            "x",
            "hold real numbers",
            "complex ones",
            "Give real and imaginary parts as columns of their own.",
        )
    if table.ndim == 2 and table.size:
        return stack(list(np.asarray(x, dtype=object).T), None, owner)
    return table if table.ndim != 2 else table.astype(float)


def _as_numbers(values: np.ndarray) -> np.ndarray | None:
    if values.dtype.kind in NUMERIC:
        return values
    if values.dtype.kind != "O" or any(isinstance(value, (str, bytes)) for value in values):
        return None
    try:
        found = np.array([np.nan if value is None else value for value in values], dtype=float)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found.ndim == 1 else None  # cells that hold lists are no numbers


def _label(columns: Columns, column: int) -> str:
    return str(column) if columns is None else repr(columns[column])
