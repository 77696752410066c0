"""Arrow tables: columnar files, .parquet, .arrow and .feather, chunk by chunk, and frames of pandas
and polars.

An .arrow or .feather file is in Arrow's file or stream format. In memory at any time are a chunk of
a Parquet file, or one record batch of an Arrow file, and neither grows with the number of rows.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc, types

from partita.errors import invalid, unusable
from partita.tables.arrays import NUMERIC, Columns, damaged, not_numeric
from partita.tables.labels import numbered
from partita.tables.schema import Series, check_names

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
class Columnar:
    """A columnar file: what its columns are, and its rows chunk by chunk.

    Arguments:
        path: Of the file.
        schema: Arrow's.
        rows: How many there are.
        nulls: Whether values may be missing.
    """

    path: Path
    schema: pa.Schema
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
    def types(self) -> tuple[str, ...]:
        """What columns are written as (:func:`dtype_name`)."""
        return tuple(map(dtype_name, self.schema.types))

    def chunks(self) -> Iterator[pa.Table]:
        """Its rows, a bounded number of them at a time."""
        size = max(1, CHUNK // max(1, len(self.schema)))
        with _whole(self.path):
            for batch in _batches(self.path, size):
                for start in range(0, len(batch), size):
                    yield pa.Table.from_batches([batch.slice(start, size)])

    def series(self, left_out: Collection[str] = ()) -> Iterator[list[Series]]:
        """Its columns but for some, chunk by chunk."""
        kept = [name for name in self.names if name not in left_out]
        for chunk in self.chunks():
            yield series_of(chunk.select(kept))

    def gaps(self, names: Collection[str]) -> dict[str, int]:
        """How many values of some columns are missing."""
        counts = dict.fromkeys(names, 0)
        for chunk in self.chunks() if names else ():
            for name in names:
                counts[name] += chunk.column(name).null_count
        return counts

    def number_dtype(self) -> np.dtype:
        """The NumPy type that holds all columns; columns that are no numbers are named."""
        if not self.names:
            raise unusable(
                "load", str(self.path), "have at least one column", "none", "Write it again."
            )
        found = list(map(_numpy_type, self.schema.types))
        text = [repr(name) for name, dtype in zip(self.names, found, strict=True) if dtype is None]
        if text:
            raise not_numeric("load", text, str(self.path))
        dtype = np.result_type(*[dtype for dtype in found if dtype is not None])
        return dtype if dtype.kind == "f" or not self.nulls else np.dtype(float)

    def table(self) -> pa.Table:
        """All of it, in memory."""
        batches = [batch for chunk in self.chunks() for batch in chunk.to_batches()]
        return pa.Table.from_batches(batches, schema=self.schema)


def open_columnar(path: Path) -> Columnar:
    """Look at a columnar file: at the end of a Parquet file, once through an Arrow file."""
    with _whole(path):
        if path.suffix.lower() == ".parquet":
            with _parquet(path) as source:
                metadata = source.metadata
                return Columnar(
                    path, source.schema_arrow, metadata.num_rows, _may_have_nulls(metadata)
                )
        with _arrow_reader(path) as reader:
            rows = 0
            nulls = False
            for batch in _record_batches(reader):
                rows += len(batch)
                nulls = nulls or any(column.null_count for column in batch.columns)
            return Columnar(path, reader.schema, rows, nulls)


def open_writer(
    path: Path, ending: str, schema: pa.Schema
) -> pq.ParquetWriter | ipc.RecordBatchFileWriter:
    """A writer of a columnar file with some ending."""
    if ending == ".parquet":
        return pq.ParquetWriter(path, schema)
    return ipc.new_file(str(path), schema)


def of_frame(frame: Any, owner: str) -> pa.Table:
    """A pandas or polars frame as an Arrow table; its index, if it has one, is left out."""
    if hasattr(frame, "to_arrow"):
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


def series_of(table: pa.Table) -> list[Series]:
    """The columns of an Arrow table."""
    return [
        _series(str(name), column)
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]


def word_series(name: str, column: pa.ChunkedArray, dtype: str) -> Series:
    """A column of words, each looked up but once."""
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
    numbers, labels = numbered(encoded.dictionary.to_pylist())
    place = encoded.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
    return Series(name, np.append(numbers, np.nan)[place], dtype, labels)


def dtype_name(kind: pa.DataType) -> str:
    """What a column of an Arrow type is written as: a NumPy name, ``string`` or ``category``;
    ``date`` and ``other`` cannot be read.
    """
    if types.is_dictionary(kind):
        return "category"
    if types.is_temporal(kind):
        return "date"
    if is_text(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return NAMES.get(str(kind), str(kind))
    return "float64" if types.is_decimal(kind) or types.is_null(kind) else "other"


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is of words."""
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _series(name: str, column: pa.ChunkedArray) -> Series:
    dtype = dtype_name(column.type)
    if types.is_dictionary(column.type):
        column = _decoded(column)
    if is_text(column.type):
        return word_series(name, column, dtype)
    if dtype_name(column.type) in ("date", "other"):
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


def _batches(path: Path, size: int) -> Iterator[pa.RecordBatch]:
    if path.suffix.lower() == ".parquet":
        with _parquet(path) as source:
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
            raise unusable("load", str(path), allowed, "one of version 1", "Write it again.")
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


def _may_have_nulls(metadata: pq.FileMetaData) -> bool:
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            statistics = metadata.row_group(group).column(column).statistics
            if statistics is None or statistics.null_count is None or statistics.null_count > 0:
                return True
    return False
