"""Tables on disk: columns keep their names, types, categories and order, and a file is written whole or not at all."""

import csv
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from partita.core.errors import invalid
from partita.data.arrow import arrow, read_arrow
from partita.data.delimited import delimiter_of, is_missing
from partita.data.schema import Column, Schema, column_names

TABLES = (".csv", ".parquet")
ENDINGS = (*TABLES, ".npy", ".npz")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside another to write to, moved over it when all is written, and removed when that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    try:
        yield beside
        os.replace(beside, path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk does not say for which file
        raise
    finally:
        beside.unlink(missing_ok=True)


def check_ending(path: Path, owner: str, columns: Sequence[Column] = ()) -> Path:
    """A path that ends as a table does; words go into tables alone."""
    allowed = TABLES if any(column.labels for column in columns) else ENDINGS
    if path.suffix.lower() not in allowed:
        raise invalid(owner, "--out", f"end in one of {' '.join(allowed)}", str(path))
    return path


def plain_columns(names: Sequence[str] | None, x: np.ndarray) -> list[Column]:
    """Columns of numbers that nothing is known about: whole ones where all are."""
    whole = [bool((there == np.round(there)).all()) for there in (column[np.isfinite(column)] for column in x.T)]
    kinds = ["int64" if one else "float64" for one in whole]
    return [Column(name, "real", kind) for name, kind in zip(names or column_names(x.shape[1]), kinds, strict=True)]


def write_columns(path: Path, columns: Sequence[Column], x: np.ndarray, *, header: bool = True) -> None:
    """A table of numbers, (N, D), as its columns say they are written."""
    if path.suffix.lower() in ENDINGS:
        check_ending(path, "write", columns)
    with replacing(path) as beside:
        if path.suffix.lower() == ".npy":
            with beside.open("wb") as stream:
                np.save(stream, x)
        elif path.suffix.lower() == ".npz":
            names = {"columns": np.array([column.name for column in columns])} if header else {}
            with beside.open("wb") as stream:
                np.savez_compressed(stream, x=x, **names)  # type: ignore[arg-type]
        elif path.suffix.lower() == ".parquet":
            _write_arrow(beside, arrow_table(columns, x))
        else:
            cells = zip(*(column.words(x[:, i].tolist()) for i, column in enumerate(columns)), strict=True)
            rows = [[text(value) for value in row] for row in cells]
            _write_csv(beside, [[column.name for column in columns], *rows] if header else rows, ",")


def write_filled(source: Path, path: Path, schema: Schema, x: np.ndarray) -> None:
    """A copy of a .csv or .parquet file with ``x``, the columns that a schema uses, in place of what is missing, and nowhere else."""
    with replacing(path) as beside:
        if path.suffix.lower() == ".parquet":
            _write_arrow(beside, filled_arrow(read_arrow(source), schema, x))
        else:
            _write_csv(beside, _filled_cells(source, schema, x), delimiter_of(source) or ",")


def arrow_table(columns: Sequence[Column], x: np.ndarray) -> Any:
    """Numbers, (N, D), as an Arrow table of the types of its columns."""
    return arrow().table([_array(column, x[:, i]) for i, column in enumerate(columns)], names=[column.name for column in columns])


def filled_arrow(table: Any, schema: Schema, x: np.ndarray) -> Any:
    """An Arrow table with the gaps of the columns that a schema uses filled, of the same types."""
    for i, column in enumerate(schema.used):
        place = table.column_names.index(column.name)
        held = table.column(place)
        if held.null_count or _has_nan(held):
            values = _dictionary(held, column, x[:, i]) if column.dtype == "category" else _plain(held, column, x[:, i])
            table = table.set_column(place, table.field(place), values)
    return table


def text(value: Any) -> str:
    """A value in a field of text; a float as the shortest that reads back the same.

    >>> text(0.1), text(3), text(None), text("a b")
    ('0.1', '3', '', 'a b')
    """
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def _filled_cells(source: Path, schema: Schema, x: np.ndarray) -> Iterator[list[str]]:
    """The fields of a file as they are written, and what is missing from the rows of ``x``."""
    with source.open(encoding="utf-8-sig", newline="") as stream:
        records = [record for record in csv.reader(stream, delimiter=delimiter_of(source) or ",") if record]
    header = len(records) > len(x)
    names = [field.strip() for field in records[0]] if header else list(column_names(len(records[0])))
    if header:
        yield records.pop(0)
    at = [names.index(column.name) for column in schema.used]
    filled = [column.words(x[:, i].tolist()) for i, column in enumerate(schema.used)]
    for row, record in enumerate(records):
        for place, words in zip(at, filled, strict=True):
            if is_missing(record[place].strip()):
                record[place] = text(words[row])
        yield record


def _plain(held: Any, column: Column, values: np.ndarray) -> Any:
    pa = arrow()
    compute: Any = import_module("pyarrow.compute")  # whose functions are made when it is imported
    gap = compute.is_null(held, nan_is_null=True)
    return compute.if_else(gap, pa.chunked_array([_array(column, values).cast(held.type)]), held)


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
    pa, words = arrow(), column.words(values.tolist())
    if column.dtype == "category":
        levels = column.words(column.levels)
        return pa.DictionaryArray.from_arrays(pa.array([levels.index(word) for word in words], type=pa.int32()), pa.array(levels))
    return pa.array(words, type=pa.bool_() if column.dtype == "bool" else pa.type_for_alias(column.dtype))


def _write_arrow(path: Path, table: Any) -> None:
    from pyarrow.parquet import write_table

    write_table(table, path)


def _write_csv(path: Path, rows: Any, delimiter: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(rows)
