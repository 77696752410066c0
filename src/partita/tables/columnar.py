"""Columnar files, .parquet, .arrow and .feather, read and written some rows after the others.

An .arrow or .feather file is in Arrow's file or stream format. In memory at any time are a piece of
a Parquet file, or one record batch of an Arrow file, and neither grows with the number of rows.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from partita.errors import DataError
from partita.tables.arrays import NUMERIC, Columns, not_numeric
from partita.tables.arrow import arrow, dtype_name, series_of
from partita.tables.on_disk import gathered
from partita.tables.schema import Series

COLUMNAR = (".parquet", ".arrow", ".feather")
PIECE = 1 << 20  # numbers that are read together
AHEAD = 1 << 16  # bytes of each column that are read together
FILE_FORMAT, FIRST_FEATHER = b"ARROW1", b"FEA1"  # how files begin; streams begin otherwise


@dataclass(frozen=True)
class Columnar:
    """A columnar file: what its columns are, and its rows piece by piece.

    Arguments:
        path: Of the file.
        schema: Arrow's.
        rows: How many there are.
        nulls: Whether values may be missing.
    """

    path: Path
    schema: Any
    rows: int
    nulls: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(self.schema.names)

    @property
    def columns(self) -> Columns:
        """The names, which every such file has."""
        return self.names

    @property
    def types(self) -> list[str]:
        """What columns are written as (:func:`partita.tables.arrow.dtype_name`)."""
        return [dtype_name(kind) for kind in self.schema.types]

    def pieces(self) -> Iterator[Any]:
        """Its rows as Arrow tables that follow one another, of a bounded number of rows each."""
        size = max(1, PIECE // max(1, len(self.schema)))
        with _whole(self.path):
            for batch in _batches(self.path, size):
                for start in range(0, len(batch), size):
                    yield arrow().Table.from_batches([batch.slice(start, size)])

    def series(self, left_out: Collection[str]) -> Iterator[list[Series]]:
        """Its columns but for some, a stretch of rows at a time."""
        for piece in self.pieces():
            yield series_of(piece.select([name for name in self.names if name not in left_out]))

    def gaps(self, names: Collection[str]) -> dict[str, int]:
        """How many values of some columns are missing."""
        count = dict.fromkeys(names, 0)
        for piece in self.pieces() if names else ():
            for name in names:
                count[name] += piece.column(name).null_count
        return count

    def number_dtype(self) -> np.dtype:
        """The NumPy type that holds all columns; columns that are no numbers are named."""
        if not self.names:
            raise DataError(
                f"load: {self.path} must have at least one column; got none. Write it again."
            )
        types = [_numpy_type(field.type) for field in self.schema]
        text = [repr(name) for name, kind in zip(self.names, types, strict=True) if kind is None]
        if text:
            raise not_numeric("load", text, str(self.path))
        dtype = np.result_type(*[kind for kind in types if kind is not None])
        return dtype if dtype.kind == "f" or not self.nulls else np.dtype(float)

    def table(self) -> Any:
        """All of it, in memory."""
        return arrow().Table.from_batches(
            [batch for piece in self.pieces() for batch in piece.to_batches()], schema=self.schema
        )


def open_columnar(path: Path) -> Columnar:
    """Look at a columnar file: at the end of a Parquet file, once through an Arrow file."""
    with _whole(path):
        if path.suffix.lower() == ".parquet":
            with _parquet(path) as source:
                return Columnar(
                    path, source.schema_arrow, source.metadata.num_rows, _may_miss(source.metadata)
                )
        with _arrow_reader(path) as reader:
            rows, nulls = 0, False
            for batch in _record_batches(reader):
                rows = rows + len(batch)
                nulls = nulls or any(column.null_count for column in batch.columns)
            return Columnar(path, reader.schema, rows, nulls)


def read_numbers(source: Columnar) -> tuple[np.ndarray, Columns]:
    """The table and its column names; missing values become NaN. Above a size it stays on disk, in
    a temporary file of plain numbers.
    """
    dtype = source.number_dtype()
    pieces = (_numbers(piece, dtype) for piece in source.pieces())
    return gathered(pieces, (source.rows, len(source.names)), dtype), source.names


def open_writer(path: Path, ending: str, schema: Any) -> Any:
    """What writes a columnar file of some ending: a context with ``write_table``."""
    if ending == ".parquet":
        return import_module("pyarrow.parquet").ParquetWriter(path, schema)
    return import_module("pyarrow.ipc").new_file(str(path), schema)


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Inside it, a missing package and a damaged file are named."""
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(
            f"load: {path} needs the package pyarrow to be read. Install it with: pip install "
            "'partita[frames]'"
        ) from error
    try:
        yield
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        remedy = "Copy it again."
        raise DataError(
            f"load: {path} must be a whole {path.suffix} file; got one that is cut short or "
            f"damaged. {remedy}"
        ) from error


def _parquet(path: Path) -> Any:
    """A Parquet file whose columns are read as they are needed, not a whole group of rows ahead."""
    return import_module("pyarrow.parquet").ParquetFile(path, buffer_size=AHEAD, pre_buffer=False)


def _batches(path: Path, size: int) -> Iterator[Any]:
    if path.suffix.lower() == ".parquet":
        with _parquet(path) as source:
            # whose stacks would cost address space
            yield from source.iter_batches(size, use_threads=False)
        return
    with _arrow_reader(path) as reader:
        yield from _record_batches(reader)


@contextmanager
def _arrow_reader(path: Path) -> Iterator[Any]:
    """A reader of the file or the stream format, whichever the first bytes tell."""
    ipc = import_module("pyarrow.ipc")
    # no memory map, which would cost address space for all of it
    with arrow().OSFile(str(path)) as file:
        head = file.read(len(FILE_FORMAT))
        file.seek(0)
        if head.startswith(FIRST_FEATHER):
            raise DataError(
                f"load: {path} must be a Feather file of version 2; got one of version 1. Write it "
                "again."
            )
        options = ipc.IpcReadOptions(use_threads=False)
        yield (
            ipc.open_file(file, options=options)
            if head == FILE_FORMAT
            else ipc.open_stream(file, options=options)
        )


def _record_batches(reader: Any) -> Iterator[Any]:
    """The record batches of either format, checked: buffers that point outside would otherwise be
    read.
    """
    numbered = hasattr(reader, "num_record_batches")
    for batch in (
        (reader.get_batch(i) for i in range(reader.num_record_batches)) if numbered else reader
    ):
        batch.validate(full=True)
        yield batch


def _numbers(piece: Any, dtype: np.dtype) -> np.ndarray:
    return np.stack([column.to_numpy().astype(dtype, copy=False) for column in piece.columns], 1)


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
