"""Tables on disk: columns keep their names, types, categories and order, and a file is written whole or not at all.

Rows are written some after the others, so that neither a table on disk nor the file that it is a copy of need fit into memory.
"""

import csv
import zipfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from partita.core.errors import invalid
from partita.core.files import replacing
from partita.data.arrow import arrow
from partita.data.columnar import COLUMNAR, open_writer
from partita.data.schema import Column, Schema, column_names
from partita.data.tables import chunks

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
    return [Column(name, "real", kind) for name, kind in zip(names or column_names(x.shape[1]), kinds, strict=True)]


def write_columns(path: Path, columns: Sequence[Column], x: np.ndarray, *, header: bool = True) -> None:
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
            _write_archive(beside, x, parts, [column.name for column in columns] if header else None)
        elif ending in COLUMNAR:
            with open_writer(beside, ending, arrow_table(columns, np.zeros((0, len(columns)))).schema) as out:
                for part in parts:
                    out.write_table(arrow_table(columns, part))
        else:
            write_csv(beside, _cells(columns, x, header), ",")


def arrow_table(columns: Sequence[Column], x: np.ndarray) -> Any:
    """Numbers, (N, D), as an Arrow table of the types of its columns."""
    return arrow().table([_array(column, x[:, i]) for i, column in enumerate(columns)], names=[column.name for column in columns])


def filled_arrow(table: Any, schema: Schema, x: np.ndarray) -> Any:
    """An Arrow table with the gaps of the columns that a schema uses filled, of the same types."""
    for i, column in enumerate(schema.used):
        place = table.column_names.index(column.name)
        held = table.column(place)
        if held.null_count or _has_nan(held):
            fill = _dictionary if arrow().types.is_dictionary(held.type) else _plain  # as this table has it, not the one that was fitted
            values = fill(held, column, x[:, i])
            table = table.set_column(place, table.field(place), values)
    return table


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
        for row in zip(*(column.words(part[:, i].tolist()) for i, column in enumerate(columns)), strict=True):
            yield [text(value) for value in row]


def _plain(held: Any, column: Column, values: np.ndarray) -> Any:
    pa = arrow()
    compute: Any = import_module("pyarrow.compute")  # whose functions are made when it is imported
    gap = compute.is_null(held, nan_is_null=True)
    kind = pa.large_string() if pa.types.is_string_view(held.type) else held.type  # views can be cast, and little else
    filled = compute.if_else(gap, pa.chunked_array([_array(column, values).cast(kind)]), held.cast(kind))
    return filled.cast(held.type)


def _dictionary(held: Any, column: Column, values: np.ndarray) -> Any:
    """Categories keep the order they have in the file; those that only the run knows come after them."""
    pa, joined = arrow(), held.unify_dictionaries().combine_chunks()
    known = joined.dictionary.to_pylist()
    words = column.words(values.tolist())
    known += [word for word in dict.fromkeys(words) if word not in known]
    indices = [known.index(word) if index is None else index for index, word in zip(joined.indices.to_pylist(), words, strict=True)]
    levels = pa.array(known, type=joined.type.value_type)
    return pa.DictionaryArray.from_arrays(pa.array(indices, type=joined.type.index_type), levels, ordered=joined.type.ordered)


def _has_nan(held: Any) -> bool:
    compute: Any = import_module("pyarrow.compute")
    return arrow().types.is_floating(held.type) and bool(compute.any(compute.is_nan(held)).as_py())


def _array(column: Column, values: np.ndarray) -> Any:
    pa, words, levels = arrow(), column.words(values.tolist()), column.words(column.levels)
    try:
        if column.dtype == "category":
            places = [None if word is None else levels.index(word) for word in words]
            return pa.DictionaryArray.from_arrays(pa.array(places, type=pa.int32()), pa.array(levels))
        return pa.array(words, type=pa.bool_() if column.dtype == "bool" else pa.type_for_alias(column.dtype))
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise invalid("write", f"column {column.name!r}", f"hold values of its type, {column.dtype}", reason) from None


def _write_array(stream: Any, x: np.ndarray, parts: Iterator[np.ndarray]) -> None:
    """An .npy file, as numpy.save writes it."""
    header = {"descr": np.lib.format.dtype_to_descr(x.dtype), "fortran_order": False, "shape": tuple(x.shape)}
    np.lib.format.write_array_header_1_0(stream, header)
    for part in parts:
        stream.write(part.tobytes())


def _write_archive(path: Path, x: np.ndarray, parts: Iterator[np.ndarray], names: list[str] | None) -> None:
    """An .npz file, as numpy.savez_compressed writes it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as stream:
            _write_array(stream, x, parts)
        if names is not None:
            with archive.open("columns.npy", "w") as stream:
                np.lib.format.write_array(stream, np.array(names), allow_pickle=False)


def write_csv(path: Path, rows: Any, delimiter: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(rows)
