"""Arrow tables: columnar files, .parquet, .arrow and .feather, chunk by chunk, and frames of pandas
and polars.

An .arrow or .feather file is in Arrow's file or stream format. In memory at any time are a chunk of
a Parquet file, or one record batch of an Arrow file, and neither grows with the number of rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc, types

from partita.errors import invalid
from partita.tables.arrays import (
    NUMERIC,
    Columns,
    Frame,
    PolarsFrame,
    bad_file,
    damaged,
    not_numeric,
)
from partita.tables.dates import read_typed
from partita.tables.schema import Series, check_names, column_names, is_date, numbered

compute: Any = import_module("pyarrow.compute")  # whose functions are made when it is imported
COLUMNAR = (".parquet", ".arrow", ".feather")
CHUNK = 1 << 20  # numbers that are read together
BUFFER = 1 << 16  # bytes of each column that are read together
FILE_FORMAT = b"ARROW1"  # with which files begin; streams begin otherwise
FIRST_FEATHER = b"FEA1"
NAMES = {
    "large_string": "string",
    "string_view": "string",
    "double": "float64",
    "float": "float32",
    "halffloat": "float16",
}


@dataclass(frozen=True)
class TableFile(ABC):
    """A file of a table: what its columns are, and its rows chunk by chunk.

    Arguments:
        path: Of the file.
        columns: The names in it; None where it has none.
        types: What columns are written as: a NumPy name, ``string``, ``category``, of dates their
            Arrow type, or ``time`` and ``other``, which are not read.
        rows: How many there are.
    """

    path: Path
    columns: Columns
    types: tuple[str, ...]
    rows: int

    @abstractmethod
    def chunks(self) -> Iterator[pa.Table]:
        """Its rows, a bounded number of them at a time, with null where a value is missing."""

    @abstractmethod
    def number_types(self) -> list[np.dtype | None]:
        """The NumPy type of each column; None of one that is no numbers."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns, also where the file has none."""
        return column_names(len(self.types)) if self.columns is None else self.columns

    def series(self, left_out: Collection[str] = ()) -> Iterator[list[Series]]:
        """Its columns but for some, chunk by chunk."""
        kept = [i for i, name in enumerate(self.names) if name not in left_out]
        for chunk in self.chunks():
            yield [series(self.names[i], chunk.column(i), self.types[i]) for i in kept]

    def number_dtype(self) -> np.dtype:
        """The NumPy type that holds all columns; columns that are no numbers are named."""
        found = self.number_types()
        if not found:
            raise bad_file(self.path, "have at least one column", "none", "Write it again.")
        text = [
            str(i) if self.columns is None else repr(self.columns[i])
            for i, dtype in enumerate(found)
            if dtype is None
        ]
        if text:
            raise not_numeric("load", text, str(self.path))
        return np.result_type(*[dtype for dtype in found if dtype is not None])


@dataclass(frozen=True)
class Columnar(TableFile):
    """A columnar file.

    Arguments:
        schema: Arrow's.
        read: Its rows from the first on.
    """

    schema: pa.Schema
    read: Callable[[], Iterator[pa.Table]]

    @classmethod
    def of(
        cls, path: Path, schema: pa.Schema, rows: int, read: Callable[[], Iterator[pa.Table]]
    ) -> "Columnar":
        """A file with the columns of an Arrow schema."""
        types = tuple(map(dtype_name, schema.types))
        return cls(path, tuple(schema.names), types, rows, schema, read)

    def chunks(self) -> Iterator[pa.Table]:
        return self.read()

    def number_types(self) -> list[np.dtype | None]:
        return list(map(_numpy_type, self.schema.types))

    def table(self) -> pa.Table:
        """All of it, in memory."""
        return pa.concat_tables([self.schema.empty_table(), *self.chunks()])


def open_columnar(path: Path) -> Columnar:
    """Look at a columnar file: at the end of a Parquet file, once through an Arrow file."""
    read = partial(_read, path)
    with _whole(path):
        if path.suffix.lower() == ".parquet":
            with _parquet(path) as source:
                return Columnar.of(path, source.schema_arrow, source.metadata.num_rows, read)
        with _arrow_reader(path) as reader:
            return Columnar.of(path, reader.schema, sum(map(len, _record_batches(reader))), read)


def _read(path: Path) -> Iterator[pa.Table]:
    with _whole(path):
        for batch in _batches(path):
            size = max(1, CHUNK // max(1, batch.num_columns))
            for start in range(0, len(batch), size):
                yield pa.Table.from_batches([batch.slice(start, size)])


def open_writer(
    path: Path, ending: str, schema: pa.Schema
) -> pq.ParquetWriter | ipc.RecordBatchFileWriter:
    """A writer of a columnar file with some ending."""
    if ending == ".parquet":
        return pq.ParquetWriter(path, schema)
    return ipc.new_file(str(path), schema)


def of_frame(frame: Frame, owner: str) -> pa.Table:
    """A pandas or polars frame as an Arrow table; its index, if it has one, is left out."""
    if isinstance(frame, PolarsFrame):
        return frame.to_arrow()
    check_names(list(map(str, frame.columns)), owner)
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        remedy = "Convert such columns to numbers or to words."
        raise invalid(
            owner, "X", "have columns of one type of value each", reason, remedy
        ) from None


def table_series(table: pa.Table) -> list[Series]:
    """The columns of an Arrow table."""
    return [
        series(str(name), column, dtype_name(column.type))
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]


def dtype_name(kind: pa.DataType) -> str:
    """What a column of an Arrow type is written as: a NumPy name, ``string``, ``category`` or, of
    dates, the type itself; ``time`` and ``other`` cannot be read.
    """
    if types.is_dictionary(kind):
        return "category"
    if types.is_temporal(kind):
        return str(kind) if is_date(str(kind)) else "time"
    if is_text(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return NAMES.get(str(kind), str(kind))
    return "float64" if types.is_decimal(kind) or types.is_null(kind) else "other"


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is of words."""
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def series(name: str, column: pa.ChunkedArray, dtype: str) -> Series:
    """A column that is written as ``dtype``; every word is looked up but once."""
    if types.is_dictionary(column.type):
        column = _decoded(column)
    if is_text(column.type):
        encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
        numbers, labels = numbered(encoded.dictionary.to_pylist())
        place = encoded.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
        return Series(name, np.append(numbers, np.nan)[place], dtype, labels)
    held = dtype_name(column.type)
    if is_date(held) and is_date(dtype):
        return Series(name, read_typed(column), dtype)
    if is_date(held) or held in ("time", "other"):
        return Series(name, np.zeros(len(column)), "other" if dtype == "category" else dtype)
    # truth values are cast to float64 by way of whole numbers alone
    plain = column.cast(pa.uint8()) if types.is_boolean(column.type) else column
    return Series(name, plain.cast(pa.float64(), safe=False).to_numpy(), dtype)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of categories as its values."""
    kind = column.type.value_type
    kind = pa.large_string() if is_text(kind) else kind
    values = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(values, type=kind)


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Inside it, a damaged file is named."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise damaged(path) from error


def _parquet(path: Path) -> pq.ParquetFile:
    """A Parquet file whose columns are read as they are needed, not a whole group of rows ahead."""
    return pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    if path.suffix.lower() == ".parquet":
        with _parquet(path) as source:
            size = max(1, CHUNK // max(1, len(source.schema_arrow)))
            # the stacks of threads would cost address space
            yield from source.iter_batches(size, use_threads=False)
        return
    with _arrow_reader(path) as reader:
        yield from _record_batches(reader)


Reader = ipc.RecordBatchFileReader | ipc.RecordBatchStreamReader


@contextmanager
def _arrow_reader(path: Path) -> Iterator[Reader]:
    """A reader of the file or the stream format, by the first bytes."""
    # no memory map, which would cost address space for all of it
    with pa.OSFile(str(path)) as file:
        head = file.read(len(FILE_FORMAT))
        file.seek(0)
        if head.startswith(FIRST_FEATHER):
            allowed = "be a Feather file of version 2"
            raise bad_file(path, allowed, "one of version 1", "Write it again.")
        options = ipc.IpcReadOptions(use_threads=False)
        open_reader = ipc.open_file if head == FILE_FORMAT else ipc.open_stream
        yield open_reader(file, options=options)


def _record_batches(reader: Reader) -> Iterator[pa.RecordBatch]:
    """The record batches of either format, checked: buffers that point outside would otherwise be
    read.
    """
    if isinstance(reader, ipc.RecordBatchFileReader):
        batches = map(reader.get_batch, range(reader.num_record_batches))
    else:
        batches = iter(reader)
    for batch in batches:
        batch.validate(full=True)
        yield batch


def _numpy_type(kind: pa.DataType) -> np.dtype | None:
    try:
        dtype = np.dtype(kind.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        return None
    return dtype if dtype.kind in NUMERIC else None
