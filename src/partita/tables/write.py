"""Tables on disk: columns keep their names, types, categories and order, and a file is written
whole or not at all.

Rows are written chunk by chunk, so that a table on disk need not fit into memory.
"""

import csv
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from partita.errors import Argument, invalid
from partita.runtime.files import replacing
from partita.tables.arrays import pieces
from partita.tables.arrow import COLUMNAR, open_writer
from partita.tables.csv import DELIMITERS
from partita.tables.dates import arrow_type, to_arrow
from partita.tables.files import TABLES
from partita.tables.schema import Cell, Column, Labels, column_names, is_date

ENDINGS = (*TABLES, ".npy", ".npz")


def check_ending(path: Path, owner: str, columns: Sequence[Column] = ()) -> Path:
    """A path that ends as a table does; words go into tables alone."""
    words = any(column.labels for column in columns)
    allowed = TABLES if words else ENDINGS
    if path.suffix.lower() not in allowed:
        why = ", for columns hold words" if words else ""
        ends = f"end in one of {' '.join(allowed)}{why}"
        raise invalid(owner, Argument("out"), ends, str(path))
    return path


def plain_columns(
    names: Sequence[str] | None, x: np.ndarray, labels: Labels | None = None
) -> list[Column]:
    """Columns that nothing is known about: words where there are labels, else numbers, whole ones
    where all are.
    """
    names = names or column_names(x.shape[1])
    if labels:
        return [Column(name, "category", "string", labels=labels) for name in names]
    parts = pieces(x)
    whole = np.all([(~np.isfinite(part) | (part == np.round(part))).all(0) for part in parts], 0)
    return [
        Column(name, "real", "int64" if one else "float64")
        for name, one in zip(names, whole, strict=True)
    ]


def write_columns(
    path: Path, columns: Sequence[Column], x: np.ndarray, *, header: bool = True
) -> None:
    """A table of numbers, (N, D), in memory or on disk, as its columns say they are written."""
    ending = path.suffix.lower()
    if ending in ENDINGS:
        check_ending(path, "write", columns)
    parts = pieces(x)
    names = [column.name for column in columns] if header else None
    with replacing(path) as beside:
        if ending == ".npy":
            with beside.open("wb") as stream:
                _write_array(stream, x, parts)
        elif ending == ".npz":
            _write_archive(beside, x, parts, names)
        elif ending in COLUMNAR:
            schema = arrow_table(columns, np.zeros((0, len(columns)))).schema
            with open_writer(beside, ending, schema) as out:
                for part in parts:
                    out.write_table(arrow_table(columns, part))
        else:
            cells = (row for part in parts for row in rows_of_text(columns, part))
            write_csv(beside, chain([names] if names else [], cells))


def arrow_table(columns: Sequence[Column], x: np.ndarray) -> pa.Table:
    """Numbers, (N, D), as an Arrow table of the types of its columns."""
    arrays = [array_of(column, x[:, i]) for i, column in enumerate(columns)]
    return pa.table(arrays, names=[column.name for column in columns])


def array_of(column: Column, values: np.ndarray) -> pa.Array:
    """Numbers, (N,), as an Arrow array of the type of their column."""
    if is_date(column.dtype):
        return to_arrow(column.dtype, values)
    words = column.words(values.tolist())
    kind = own_type(column)
    try:
        if column.dtype == "category":
            return coded(words, column.words(column.levels), kind)
        return pa.array(words, type=kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        allowed = f"hold values of its type, {column.dtype}"
        remedy = "A .csv file has no types." if "int" in column.dtype else ""
        raise invalid("write", f"column {column.name!r}", allowed, reason, remedy) from None


def own_type(column: Column) -> pa.DataType:
    """The Arrow type of a column."""
    if is_date(column.dtype):
        return arrow_type(column.dtype)
    if column.dtype != "category":
        return pa.type_for_alias(column.dtype)
    if column.labels:
        return pa.dictionary(pa.int32(), pa.string())
    whole = all(level == round(level) for level in column.levels)
    return pa.dictionary(pa.int32(), pa.int64() if whole else pa.float64())


def coded(values: Iterable[Cell], levels: Iterable[Cell], kind: pa.DataType) -> pa.DictionaryArray:
    """Values as a column of categories with these levels, the first of equal ones counts."""
    known = list(dict.fromkeys(levels))
    place = {level: i for i, level in enumerate(known)}
    codes = [None if value is None else place[value] for value in values]
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, kind.index_type), pa.array(known, kind.value_type), ordered=kind.ordered
    )


def text(value: object) -> str:
    """A value in a field of text; a float as the shortest that reads back the same.

    >>> text(0.1), text(3), text(None), text("a b")
    ('0.1', '3', '', 'a b')
    """
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def rows_of_text(columns: Sequence[Column], x: np.ndarray) -> Iterator[list[str]]:
    """Fields of text for the rows of ``x``."""
    words = (column.words(x[:, i].tolist()) for i, column in enumerate(columns))
    for row in zip(*words, strict=True):
        yield list(map(text, row))


def write_csv(path: Path, rows: Iterable[Sequence[str]], delimiter: str = ",") -> None:
    """Fields of text, row by row; those of the first in quotes where one has a mark that could be
    taken for the delimiter.
    """
    rows = iter(rows)
    first = next(rows, [])
    marks = [mark for mark in DELIMITERS if mark != delimiter]
    marked = any(mark in field for field in first for mark in marks)
    quoting = csv.QUOTE_ALL if marked else csv.QUOTE_MINIMAL
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, delimiter=delimiter, lineterminator="\n", quoting=quoting).writerow(
            first
        )
        csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(rows)


def _write_array(stream: IO[bytes], x: np.ndarray, parts: Iterable[np.ndarray]) -> None:
    """An .npy file, as numpy.save writes it."""
    header = {
        "descr": np.lib.format.dtype_to_descr(x.dtype),
        "fortran_order": False,
        "shape": tuple(x.shape),
    }
    np.lib.format.write_array_header_1_0(stream, header)
    for part in parts:
        stream.write(part.tobytes())


def _write_archive(
    path: Path, x: np.ndarray, parts: Iterable[np.ndarray], names: list[str] | None
) -> None:
    """An .npz file, as numpy.savez_compressed writes it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as stream:
            _write_array(stream, x, parts)
        if names is not None:
            with archive.open("columns.npy", "w") as stream:
                np.lib.format.write_array(stream, np.array(names), allow_pickle=False)
