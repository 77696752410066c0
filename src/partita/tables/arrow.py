"""Columns of Arrow tables, which columnar files and frames of pandas and polars become: numbers,
words, and what they are written as.
"""

from typing import Any

import numpy as np

from partita.errors import DataError, invalid
from partita.tables.labels import numbered
from partita.tables.schema import Series, check_names

WIDE = {
    "large_string": "string",
    "string_view": "string",
    "double": "float64",
    "float": "float32",
    "halffloat": "float16",
}


def arrow() -> Any:
    """The package, or one sentence about how to get it."""
    try:
        import pyarrow
    except ImportError as error:
        remedy = "Install it with: pip install 'partita[frames]'"
        raise DataError(
            f"load: Parquet files and frames need the package pyarrow. {remedy}"
        ) from error
    return pyarrow


def of_frame(frame: Any, owner: str) -> Any:
    """A pandas or polars frame as an Arrow table; its index, if it has one, is left out."""
    pa = arrow()
    if hasattr(frame, "to_arrow"):
        return frame.to_arrow()
    check_names(list(map(str, frame.columns)), owner)
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason, remedy = str(error).splitlines()[0], "Convert such columns to numbers or to words."
        raise invalid(
            owner, "X", "have columns of one sort of value each", reason, remedy
        ) from None


def series_of(table: Any) -> list[Series]:
    """The columns of an Arrow table."""
    return [
        _series(str(name), column)
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]


def dtype_name(kind: Any) -> str:
    """What a column of an Arrow type is written as: a NumPy name, ``string``, ``category``;
    ``date`` and ``other`` cannot be read.
    """
    types = arrow().types
    if types.is_dictionary(kind):
        return "category"
    if types.is_temporal(kind):
        return "date"
    if is_text(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return WIDE.get(str(kind), str(kind))
    return "float64" if types.is_decimal(kind) or types.is_null(kind) else "other"


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is of words."""
    types = arrow().types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _series(name: str, column: Any) -> Series:
    pa, dtype = arrow(), dtype_name(column.type)
    if dtype in ("date", "other"):
        return Series(name, np.full(len(column), 0.0), dtype)
    if pa.types.is_dictionary(column.type):
        column = _decoded(column)
    if is_text(column.type):
        return _words(name, column, dtype)
    if dtype_name(column.type) in ("date", "other"):
        return Series(name, np.full(len(column), 0.0), "other")
    plain = (
        column.cast(pa.float64(), safe=False)
        if not pa.types.is_boolean(column.type)
        else column.cast(pa.uint8())
    )
    return Series(name, np.asarray(plain.to_numpy(), dtype=np.float64), dtype)


def _decoded(column: Any) -> Any:
    """A column of categories as its values."""
    pa, kind = arrow(), column.type.value_type
    kind = pa.large_string() if is_text(kind) else kind
    return pa.chunked_array(
        [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks], type=kind
    )


def _words(name: str, column: Any, dtype: str) -> Series:
    """A column of words, each looked up but once."""
    pa = arrow()
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
    numbers, labels = numbered(encoded.dictionary.to_pylist())
    place = encoded.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
    return Series(name, np.append(numbers, np.nan)[place], dtype, labels)
