"""Anything that looks like a table as a NumPy array with column names: arrays, memory maps,
tensors, frames, lists.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from partita.core.arguments import check_tensor
from partita.errors import DataError, InputError, Words, invalid, unusable
from partita.tables.on_disk import OnDisk
from partita.tables.schema import Labels, Schema, listed

CHUNK = 1 << 21  # numbers that are looked at together when a table is streamed
NUMERIC = "biuf"  # NumPy's kinds of real numbers: bool, int, unsigned, float
ENCODE = (
    "Encode such columns as numbers first (one 0/1 column per category, say), or leave them out."
)

Columns = tuple[str, ...] | None

ALIGNMENT = 64  # bytes; torch's own tensors begin at a multiple of it


@runtime_checkable
class Frame(Protocol):
    """A frame of pandas or polars."""

    @property
    def columns(self) -> Iterable[object]: ...

    @property
    def dtypes(self) -> Any: ...

    def to_numpy(self) -> np.ndarray: ...


@runtime_checkable
class PolarsFrame(Frame, Protocol):
    """A frame of polars."""

    def get_columns(self) -> list[Any]: ...

    def to_arrow(self) -> Any: ...


@runtime_checkable
class SparseTable(Protocol):
    """A sparse matrix of SciPy."""

    def toarray(self) -> np.ndarray: ...


TableLike = ArrayLike | Tensor | Frame | OnDisk


@dataclass(frozen=True)
class Splits:
    """The rows of a file, all together or in parts, with what is known about them; the first axis
    is the row.
    """

    train: np.ndarray
    valid: np.ndarray | None = None
    test: np.ndarray | None = None
    columns: Columns = None
    weight: np.ndarray | None = None
    labels: Labels | None = None  # what numbers that stand for words mean
    schema: Schema | None = None  # what the columns of a table hold
    note: str = ""
    shape: tuple[int, ...] | None = None  # of a row that is an image
    entropy: float | None = None  # of the distribution behind them
    scale: float | None = None  # the gray level that means one


def bad_file(path: str | Path, allowed: str, got: object, remedy: Words = "") -> DataError:
    """The error for a file that is not as it must be."""
    return unusable("load", str(path), allowed, got, remedy)


def damaged(path: Path) -> DataError:
    """The error for a file that does not hold what its ending says."""
    got = "one that is cut short or damaged"
    return bad_file(path, f"be a whole {path.suffix} file", got, "Copy or download it again.")


def as_table(x: TableLike, owner: str) -> tuple[np.ndarray, Columns]:
    """A numeric array of rows and columns, without a copy where none is needed, and the names of
    its columns if it has any.

    >>> as_table([[0, 1], [1, 1]], "fit")[0].shape
    (2, 2)
    """
    if isinstance(x, OnDisk):
        table, columns = cast("np.ndarray", x), None  # indexed like one
    elif isinstance(x, Tensor):
        table, columns = _of_array(_of_tensor(x, owner), owner), None
    elif isinstance(x, Frame):
        table, columns = _of_frame(x, owner)
    else:
        table, columns = _of_array(x, owner), None
    _check_shape(table, owner)
    return table, columns


def _check_shape(table: np.ndarray, owner: str) -> None:
    """Rows and columns, at least one of each."""
    if table.ndim != 2:
        shape = f"({', '.join(map(str, table.shape))}{',' if table.ndim == 1 else ''})"
        allowed = "be a table of rows and columns"
        remedy = "Reshape it to (rows, columns)."
        raise invalid(owner, "x", allowed, f"shape {shape}", remedy)
    for axis, name in enumerate(("row", "column")):
        if table.shape[axis] == 0:
            remedy = "Check how the data were selected."
            raise invalid(owner, "x", f"have at least one {name}", f"shape {table.shape}", remedy)


def check_finite_table(
    table: np.ndarray, columns: Columns, owner: str, missing: bool = False
) -> None:
    """No infinity, and no NaN unless ``missing`` values may be, looked for in chunks so that a
    memory map stays on disk.
    """
    if table.dtype.kind != "f":
        return
    for part in row_ranges(*table.shape):
        bad = np.isinf(table[part]) if missing else ~np.isfinite(table[part])
        if bad.any():
            row, column = np.argwhere(bad)[0]
            value = table[part.start + row, column]
            where = f"{value} at row {part.start + row}, column {_label(columns, column)}"
            impute = "Remove or impute the missing values first."
            raise invalid(
                owner, "x", "be finite", where, impute if value != value else "Replace it."
            )


def row_ranges(rows: int, width: int) -> Iterator[slice]:
    """Ranges of rows that hold about ``CHUNK`` numbers each.

    >>> list(row_ranges(5, CHUNK // 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, CHUNK // width)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def pieces(table: np.ndarray) -> Iterator[np.ndarray]:
    """A table in chunks of rows."""
    return (table[part] for part in row_ranges(*table.shape))


def not_numeric(owner: str, columns: Sequence[str], parameter: str = "x") -> InputError:
    """The error for columns of text, dates or other things that are no real numbers."""
    return invalid(owner, parameter, "be numeric", text_in(columns), ENCODE)


def text_in(columns: Sequence[str]) -> str:
    """What is held by columns that are not numeric."""
    return f"text or other values in column{'s' * (len(columns) > 1)} {listed(columns)}"


def _stack(series: Sequence[np.ndarray], columns: Columns, owner: str) -> np.ndarray:
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
    if isinstance(frame, PolarsFrame):
        series = frame.get_columns()
    else:
        series = [column for _, column in frame.items()]
    return _stack(list(map(_of_series, series)), columns, owner), columns


def _of_series(series: Any) -> np.ndarray:
    nullable_numbers = getattr(series.dtype, "kind", "O") in NUMERIC  # pandas' Int64 and its kin
    values = series.to_numpy()
    return (
        series.to_numpy(dtype=float, na_value=np.nan)
        if nullable_numbers and values.dtype.kind == "O"
        else values
    )


def _of_array(x: ArrayLike, owner: str) -> np.ndarray:
    if isinstance(x, SparseTable):
        got = f"a sparse {type(x).__name__}"
        raise invalid(owner, "x", "be a dense table", got, "Call x.toarray() first.")
    if isinstance(x, np.ma.MaskedArray):
        x = np.ma.filled(x.astype(float), np.nan)
    try:
        table = np.asarray(x)
    except ValueError as error:
        got = "rows of different lengths"
        raise invalid(owner, "x", "have rows of equal length", got, "Pad or cut them.") from error
    if table.dtype.kind in NUMERIC:
        return table
    if table.dtype.kind == "c":
        remedy = "Give real and imaginary parts as columns of their own."
        raise invalid(owner, "x", "hold real numbers", "complex ones", remedy)
    if table.ndim == 2 and table.size:
        return _stack(list(np.asarray(x, dtype=object).T), None, owner)
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


def aligned(x: Tensor) -> Tensor:
    """A tensor on the memory of a file or of NumPy if it is aligned as torch's own are, else a
    copy.

    >>> import torch
    >>> aligned(torch.zeros(9)[1:]).data_ptr() % ALIGNMENT
    0
    """
    return x.clone() if x.data_ptr() % ALIGNMENT else x
