"""Tables on disk: columns keep their names, types, categories and order, and a file is written
whole or not at all.

Rows are written some after the others, so that neither a table on disk nor the file that it is a
copy of need fit into memory.
"""

import csv
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from partita.errors import invalid
from partita.runtime.atomic_files import replacing
from partita.tables.arrays import chunks
from partita.tables.arrow import arrow, dtype_name, is_text
from partita.tables.columnar import COLUMNAR, open_writer
from partita.tables.csv import DELIMITERS
from partita.tables.schema import Column, Schema, column_names

TABLES = (".csv", *COLUMNAR)
ENDINGS = (*TABLES, ".npy", ".npz")
FIELDS = 1 << 18  # of text that are held together


def check_ending(path: Path, owner: str, columns: Sequence[Column] = ()) -> Path:
    """A path that ends as a table does; words go into tables alone."""
    allowed = TABLES if any(column.labels for column in columns) else ENDINGS
    if path.suffix.lower() not in allowed:
        why = "" if allowed is ENDINGS else ", for columns hold words"
        raise invalid(owner, "--out", f"end in one of {' '.join(allowed)}{why}", str(path))
    return path


def plain_columns(names: Sequence[str] | None, x: np.ndarray) -> list[Column]:
    """Columns of numbers that nothing is known about: whole ones where all are."""
    parts = (x[part] for part in chunks(*x.shape))
    whole = np.all([(~np.isfinite(part) | (part == np.round(part))).all(0) for part in parts], 0)
    kinds = ["int64" if one else "float64" for one in whole]
    return [
        Column(name, "real", kind)
        for name, kind in zip(names or column_names(x.shape[1]), kinds, strict=True)
    ]


def write_columns(
    path: Path, columns: Sequence[Column], x: np.ndarray, *, header: bool = True
) -> None:
    """A table of numbers, (N, D), in memory or on disk, as its columns say they are written."""
    ending = path.suffix.lower()
    if ending in ENDINGS:
        check_ending(path, "write", columns)
    parts = (x[part] for part in chunks(*x.shape))
    with replacing(path) as beside:
        if ending == ".npy":
            with beside.open("wb") as stream:
                _write_array(stream, x, parts)
        elif ending == ".npz":
            _write_archive(
                beside, x, parts, [column.name for column in columns] if header else None
            )
        elif ending in COLUMNAR:
            with open_writer(
                beside, ending, arrow_table(columns, np.zeros((0, len(columns)))).schema
            ) as out:
                for part in parts:
                    out.write_table(arrow_table(columns, part))
        else:
            write_csv(beside, _cells(columns, x, header), ",")


def arrow_table(columns: Sequence[Column], x: np.ndarray) -> Any:
    """Numbers, (N, D), as an Arrow table of the types of its columns."""
    return arrow().table(
        [_array(column, x[:, i]) for i, column in enumerate(columns)],
        names=[column.name for column in columns],
    )


def filled_arrow(table: Any, schema: Schema, x: np.ndarray) -> Any:
    """An Arrow table with the gaps of the columns that a schema uses filled, of the same types
    (:func:`filled_type`).
    """
    used = {column.name: (i, column) for i, column in enumerate(schema.used)}
    columns, fields = list(table.columns), list(table.schema)
    for place, held in enumerate(table.columns):
        if fields[place].name in used and (held.null_count or _has_nan(held)):
            i, column = used[fields[place].name]
            columns[place] = _filled(held, column, x[:, i])
            fields[place] = fields[place].with_type(columns[place].type)
    return arrow().table(columns, schema=arrow().schema(fields, table.schema.metadata))


def filled_type(kind: Any, column: Column) -> Any:
    """The Arrow type of a column once its gaps are filled: the one it has; the run's own where that
    cannot hold what the run has, words or numbers, for then nothing is there that would have to be
    kept.
    """
    inner = kind.value_type if arrow().types.is_dictionary(kind) else kind
    fits = (
        is_text(inner) if column.labels else not is_text(inner) and not arrow().types.is_null(inner)
    )
    return kind if fits else _own_type(column)


def text(value: Any) -> str:
    """A value in a field of text; a float as the shortest that reads back the same.

    >>> text(0.1), text(3), text(None), text("a b")
    ('0.1', '3', '', 'a b')
    """
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def _cells(columns: Sequence[Column], x: np.ndarray, header: bool) -> Iterator[list[str]]:
    """Fields of text for the rows of ``x``, below the names."""
    if header:
        yield [column.name for column in columns]
    for start in range(0, len(x), size := max(1, FIELDS // x.shape[1])):
        part = x[start : start + size]
        for row in zip(
            *(column.words(part[:, i].tolist()) for i, column in enumerate(columns)), strict=True
        ):
            yield [text(value) for value in row]


def _filled(held: Any, column: Column, values: np.ndarray) -> Any:
    """A column as this table has it, not the one that was fitted."""
    if filled_type(held.type, column) != held.type:
        return _array(column, values)
    return (_dictionary if arrow().types.is_dictionary(held.type) else _plain)(held, column, values)


def _plain(held: Any, column: Column, values: np.ndarray) -> Any:
    pa, column = arrow(), replace(column, dtype=dtype_name(held.type))
    compute: Any = import_module("pyarrow.compute")  # whose functions are made when it is imported
    gap = compute.is_null(held, nan_is_null=True)
    # views can be cast, and little else
    kind = pa.large_string() if pa.types.is_string_view(held.type) else held.type
    filled = compute.if_else(
        gap, pa.chunked_array([_array(column, values).cast(kind)]), held.cast(kind)
    )
    return filled.cast(held.type)


def _dictionary(held: Any, column: Column, values: np.ndarray) -> Any:
    """Categories keep the order they have in the file; those that only the run knows come after
    them.
    """
    pa, joined = arrow(), held.unify_dictionaries().combine_chunks()
    words = column.words(values.tolist())
    known = places_of([*joined.dictionary.to_pylist(), *words])
    indices = [
        known[word] if index is None else index
        for index, word in zip(joined.indices.to_pylist(), words, strict=True)
    ]
    levels = pa.array(list(known), type=joined.type.value_type)
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, type=joined.type.index_type), levels, ordered=joined.type.ordered
    )


def places_of(words: Iterable[Any]) -> dict[Any, int]:
    """Different words by their place, each at its first.

    >>> places_of(["b", "a", "b", "c"])
    {'b': 0, 'a': 1, 'c': 2}
    """
    return {word: place for place, word in enumerate(dict.fromkeys(words))}


def _has_nan(held: Any) -> bool:
    compute: Any = import_module("pyarrow.compute")
    return arrow().types.is_floating(held.type) and bool(compute.any(compute.is_nan(held)).as_py())


def _array(column: Column, values: np.ndarray) -> Any:
    pa, words, levels = (
        arrow(),
        column.words(values.tolist()),
        places_of(column.words(column.levels)),
    )
    try:
        if column.dtype == "category":
            places = [None if word is None else levels[word] for word in words]
            return pa.DictionaryArray.from_arrays(
                pa.array(places, type=pa.int32()), pa.array(list(levels))
            )
        return pa.array(words, type=_own_type(column))
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        allowed = f"hold values of its type, {column.dtype}"
        remedy = "A .csv file has no types." if "int" in column.dtype else ""
        raise invalid("write", f"column {column.name!r}", allowed, reason, remedy) from None


def _own_type(column: Column) -> Any:
    pa = arrow()
    levels = (
        pa.string()
        if column.labels
        else pa.float64()
        if any(level != round(level) for level in column.levels)
        else pa.int64()
    )
    return (
        pa.dictionary(pa.int32(), levels)
        if column.dtype == "category"
        else pa.type_for_alias(column.dtype)
    )


def _write_array(stream: Any, x: np.ndarray, parts: Iterator[np.ndarray]) -> None:
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
    path: Path, x: np.ndarray, parts: Iterator[np.ndarray], names: list[str] | None
) -> None:
    """An .npz file, as numpy.savez_compressed writes it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as stream:
            _write_array(stream, x, parts)
        if names is not None:
            with archive.open("columns.npy", "w") as stream:
                np.lib.format.write_array(stream, np.array(names), allow_pickle=False)


def write_csv(path: Path, rows: Iterator[list[str]], delimiter: str) -> None:
    """Fields of text, row by row; those of the first in quotes where one has a mark that could be
    taken for the one between fields.
    """
    first = next(rows, [])
    marked = any(mark in field for field in first for mark in DELIMITERS if mark != delimiter)
    quoting = csv.QUOTE_ALL if marked else csv.QUOTE_MINIMAL
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, delimiter=delimiter, lineterminator="\n", quoting=quoting).writerow(
            first
        )
        csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(rows)
