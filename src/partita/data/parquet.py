"""Parquet files, read piece by piece; a table too large for memory goes to a temporary file of plain numbers."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from partita.core.errors import DataError
from partita.data.on_disk import OnDisk
from partita.data.tables import NUMERIC, Columns, not_numeric

IN_MEMORY = 1 << 30  # bytes up to which a table is held in memory
PIECE = 1 << 16  # rows read together


def read_parquet(path: Path) -> tuple[np.ndarray, Columns]:
    """The table and its column names; missing values become NaN."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise DataError(f"load: {path} needs the package pyarrow to be read. Install it with: pip install 'partita[frames]'") from error
    try:
        with ParquetFile(path) as source:
            return _fill(source, _dtype(source, path)), tuple(source.schema_arrow.names)
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"load: {path} must be a whole .parquet file; got one that is cut short or damaged. Copy it again.") from error


def arrow_types(path: Path) -> list[Any]:
    """The Arrow types of the columns, from the footer alone."""
    from pyarrow.parquet import read_schema

    return list(read_schema(path).types)


def _fill(source: Any, dtype: np.dtype) -> np.ndarray:
    shape = (source.metadata.num_rows, source.metadata.num_columns)
    pieces = (_numbers(piece, dtype) for piece in source.iter_batches(PIECE))
    if shape[0] * shape[1] * dtype.itemsize <= IN_MEMORY:
        return np.concatenate([np.empty((0, shape[1]), dtype), *pieces])
    with tempfile.TemporaryFile() as file:  # its space is freed with the last that reads it
        for piece in pieces:
            file.write(piece.tobytes())
        file.flush()
        return OnDisk(file.fileno(), shape, dtype)  # type: ignore[return-value]


def _numbers(piece: Any, dtype: np.dtype) -> np.ndarray:
    return np.stack([column.to_numpy(zero_copy_only=False).astype(dtype, copy=False) for column in piece.columns], 1)


def _dtype(source: Any, path: Path) -> np.dtype:
    types = [_numpy_type(field.type) for field in source.schema_arrow]
    text = [repr(field.name) for field, kind in zip(source.schema_arrow, types, strict=True) if kind is None]
    if text:
        raise not_numeric("load", text, str(path))
    dtype = np.result_type(*[kind for kind in types if kind is not None])
    return dtype if dtype.kind == "f" or not _may_miss(source.metadata) else np.dtype(float)


def _numpy_type(arrow_type: Any) -> np.dtype | None:
    try:
        kind = np.dtype(arrow_type.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        return None
    return kind if kind.kind in NUMERIC else None


def _may_miss(metadata: Any) -> bool:
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            statistics = metadata.row_group(group).column(column).statistics
            if statistics is None or statistics.null_count is None or statistics.null_count > 0:
                return True
    return False
