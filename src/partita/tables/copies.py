"""Copies of files of tables with more in them: gaps filled, or columns beside their own; what is
there keeps every bit.

A copy of the other format, text or columnar, is first one of the file's own, which is then
converted: every column, also one that a run ignores, in the file's own order. Text has no types. A
column that is known gets its type where that holds every value of the file exactly; others are
truth values, whole numbers, numbers or words, by what all of their fields are.

Files are read and written chunk by chunk, so that none need fit into memory.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pyarrow import types

from partita.runtime.atomic_files import replacing
from partita.tables.arrow import COLUMNAR, Columnar, open_columnar, open_writer
from partita.tables.csv import PADDED, TRUTH, TextTable, is_missing, open_text
from partita.tables.schema import Cell, Column, Schema
from partita.tables.write import (
    coded,
    filled_arrow,
    filled_type,
    own_type,
    rows_of_text,
    text,
    write_csv,
)

WHOLE = re.compile(r"[+-]?(0|[1-9]\d*)")
# Arrow's types whose numbers have fewer digits than Python's
NARROW = {"float": np.float32, "halffloat": np.float16}
WORDS = ("string", "category")  # types of them
WIDER = {"int64": "float64", "float64": "string"}


def write_filled(source: Path, path: Path, schema: Schema, x: np.ndarray) -> None:
    """A copy of a table's file with ``x``, the columns that a schema uses, in place of what is
    missing, and nowhere else.
    """
    if _is_columnar(source) != _is_columnar(path):
        with TemporaryDirectory() as folder:
            write_filled(source, own := Path(folder) / f"filled{source.suffix}", schema, x)
            convert(own, path, schema.used)
        return
    with replacing(path) as beside:
        if _is_columnar(path):
            _write_filled_columns(open_columnar(source), beside, path.suffix.lower(), schema, x)
        else:
            table = open_text(source)
            cells = chain(table.header, _filled_cells(table, schema, x))
            write_csv(beside, cells, table.layout.delimiter or ",")


def write_beside(
    source: Path, path: Path, columns: Sequence[Column], x: np.ndarray, known: Sequence[Column] = ()
) -> None:
    """A copy of a table's file, whose first line has names if it is text, with ``x`` as more
    columns after its own.

    ``known`` are columns of the file whose types a run knows, where the copy has types and the file
    has none.
    """
    if _is_columnar(source) != _is_columnar(path):
        with TemporaryDirectory() as folder:
            write_beside(source, own := Path(folder) / f"beside{source.suffix}", columns, x)
            convert(own, path, [*known, *columns])
        return
    with replacing(path) as beside:
        if _is_columnar(path):
            _write_more_columns(open_columnar(source), beside, path.suffix.lower(), columns, x)
        else:
            table = open_text(source)
            names = [[*header, *(column.name for column in columns)] for header in table.header]
            cells = (
                [*record, *more]
                for records, part in _beside(table, x)
                for record, more in zip(records, rows_of_text(columns, part), strict=True)
            )
            write_csv(beside, chain(names, cells), table.layout.delimiter or ",")


def convert(source: Path, path: Path, known: Sequence[Column]) -> None:
    """A .csv file as a columnar one, or the other way round; ``known`` are columns of which more
    than their fields is known.
    """
    with replacing(path) as beside:
        if _is_columnar(path):
            columns = {column.name: column for column in known}
            _write_columnar(open_text(source), beside, path.suffix.lower(), columns)
        else:
            table = open_columnar(source)
            write_csv(beside, chain([table.names], _as_text(table)))


def names_in(path: Path) -> tuple[str, ...]:
    """The names of a table's columns, in the file's order."""
    return open_columnar(path).names if _is_columnar(path) else open_text(path).names


def _is_columnar(path: Path) -> bool:
    return path.suffix.lower() in COLUMNAR


def _beside(table: TextTable, x: np.ndarray) -> Iterator[tuple[list[list[str]], np.ndarray]]:
    """Rows of text as they are written, and the rows of ``x`` beside them."""
    start = 0
    for chunk in table.raw_chunks():
        columns = (column.to_pylist() for column in chunk.columns)
        yield list(map(list, zip(*columns, strict=True))), x[start : start + len(chunk)]
        start += len(chunk)


def _filled_cells(table: TextTable, schema: Schema, x: np.ndarray) -> Iterator[list[str]]:
    """The fields of a file as they are written, and what is missing from the rows of ``x``."""
    place_of = {name: place for place, name in enumerate(table.names)}
    places = [place_of[name] for name in schema.names]
    for records, part in _beside(table, x):
        for record, words in zip(records, rows_of_text(schema.used, part), strict=True):
            for place, word in zip(places, words, strict=True):
                if is_missing(record[place].strip()):
                    record[place] = word
            yield record


def _write_more_columns(
    source: Columnar, beside: Path, ending: str, columns: Sequence[Column], x: np.ndarray
) -> None:
    """A columnar file with more columns."""
    schema = source.schema
    for column in columns:
        schema = schema.append(pa.field(column.name, own_type(column)))
    lists = _categories(source)
    start = 0
    with open_writer(beside, ending, schema) as out:
        for chunk in source.chunks():
            whole = _with_lists(chunk, lists)
            part = x[start : start + len(chunk)]
            for i, column in enumerate(columns):
                words = pa.array(column.words(part[:, i].tolist()), own_type(column))
                whole = whole.append_column(column.name, words)
            out.write_table(whole.cast(schema))
            start += len(chunk)


def _write_filled_columns(
    source: Columnar, beside: Path, ending: str, schema: Schema, x: np.ndarray
) -> None:
    """A columnar file with its gaps filled; its categories are gathered first, for all chunks of a
    file share one list of them.
    """
    before = source.schema
    used = {column.name: column for column in schema.used}
    fields = [
        field.with_type(filled_type(field.type, used[field.name])) if field.name in used else field
        for field in before
    ]
    after = pa.schema(fields, before.metadata)
    lists = {
        name: words
        for name, words in _categories(source, schema, x).items()
        if after.field(name) == before.field(name)
    }
    start = 0
    with open_writer(beside, ending, after) as out:
        for chunk in source.chunks():
            part = x[start : start + len(chunk)]
            out.write_table(filled_arrow(_with_lists(chunk, lists), schema, part).cast(after))
            start += len(chunk)


def _categories(
    source: Columnar, schema: Schema | None = None, x: np.ndarray | None = None
) -> dict[str, list[Cell]]:
    """The words of each column of categories: those of the file in its order, then those that fill
    its gaps.
    """
    coded_names = [field.name for field in source.schema if types.is_dictionary(field.type)]
    own: dict[str, dict[Cell, None]] = {name: {} for name in coded_names}
    more: dict[str, dict[Cell, None]] = {name: {} for name in coded_names}
    used = {} if schema is None else {one.name: (i, one) for i, one in enumerate(schema.used)}
    start = 0
    for chunk in source.chunks() if coded_names else ():
        for name in coded_names:
            held = chunk.column(name)
            for part in held.chunks:
                own[name] |= dict.fromkeys(part.dictionary.to_pylist())
            if x is not None and name in used and held.null_count:
                i, column = used[name]
                gaps = np.asarray(held.is_null().to_numpy(), dtype=bool)
                values = x[start : start + len(chunk)][gaps, i]
                more[name] |= dict.fromkeys(column.words(values.tolist()))
        start += len(chunk)
    return {name: list(own[name] | more[name]) for name in coded_names}


def _with_lists(chunk: pa.Table, lists: dict[str, list[Cell]]) -> pa.Table:
    """Rows whose columns of categories have the same lists of words as those of other chunks."""
    for name, words in lists.items():
        place = chunk.column_names.index(name)
        held = chunk.column(place)
        again = coded(held.to_pylist(), words, held.type)
        chunk = chunk.set_column(place, chunk.field(place), again)
    return chunk


def _as_text(source: Columnar) -> Iterator[list[str]]:
    """A columnar file as fields of text that read back the same; a missing value is empty."""
    for chunk in source.chunks():
        columns = [
            [_field(value, NARROW.get(str(held.type), float)) for value in held.to_pylist()]
            for held in chunk.columns
        ]
        yield from map(list, zip(*columns, strict=True))


def _field(value: object, number: type) -> str:
    if isinstance(value, float):
        return "" if value != value else str(number(value))
    return text(value)


def _write_columnar(source: TextTable, path: Path, ending: str, known: dict[str, Column]) -> None:
    dtypes = _dtypes(source, known)
    coded_words = pa.dictionary(pa.int32(), pa.string())
    kinds = [coded_words if name == "category" else pa.type_for_alias(name) for name in dtypes]
    schema = pa.schema(list(map(pa.field, source.names, kinds)))
    with open_writer(path, ending, schema) as out:
        for chunk in source.raw_chunks():
            arrays = [
                _array(values.to_pylist(), dtype, kind, known.get(name))
                for name, dtype, kind, values in zip(
                    source.names, dtypes, kinds, chunk.columns, strict=True
                )
            ]
            out.write_table(pa.table(arrays, schema=schema))


def _array(fields: Sequence[str], dtype: str, kind: pa.DataType, column: Column | None) -> pa.Array:
    # without the space around them, as a run knows its words
    fields = fields if column is None else [field.strip() for field in fields]
    values = [None if _is_gap(field, dtype, column) else _value(field, dtype) for field in fields]
    if dtype != "category":
        return pa.array(values, kind)
    assert column is not None
    return coded(values, map(text, column.words(column.levels)), kind)


def _is_gap(field: str, dtype: str, column: Column | None) -> bool:
    """Whether a field stands for no value; in words that nothing is known of, NA is a word too."""
    return field == "" if dtype == "string" and column is None else is_missing(field.strip())


def _value(field: str, dtype: str) -> Cell:
    if dtype == "bool":
        return TRUTH[field.strip().lower()] == 1.0
    if "int" in dtype:
        return round(_number(field.strip()))
    return float(field) if "float" in dtype else field


def _number(field: str) -> int | float:
    return int(field) if WHOLE.fullmatch(field) else float(field)


def _dtypes(source: TextTable, known: dict[str, Column]) -> list[str]:
    """What each column is written as: the type that is known where it holds all fields exactly,
    else by the fields alone.
    """
    numbers = [dtype in ("int64", "float64") for dtype in source.types]
    wanted = [
        _wanted(known.get(name), dtype)
        for name, dtype in zip(source.names, source.types, strict=True)
    ]
    found = [
        "int64" if number else "bool" if dtype == "bool" else "string"
        for number, dtype in zip(numbers, source.types, strict=True)
    ]
    for chunk in source.chunks():
        for i, values in enumerate(chunk.columns):
            if numbers[i]:
                there = [field for field in values.to_pylist() if not is_missing(field)]
                values = list(map(_number, there))
                if found[i] == "int64" and not all(isinstance(value, int) for value in values):
                    found[i] = "float64"
                padded = any(map(PADDED.fullmatch, there))
                while found[i] != "string" and (padded or not _holds(found[i], values)):
                    found[i] = WIDER[found[i]]
                if wanted[i] not in ("", *WORDS) and not _holds(wanted[i], values):
                    wanted[i] = ""
    return [one or other for one, other in zip(wanted, found, strict=True)]


def _wanted(column: Column | None, dtype: str) -> str:
    """The type that is known of a column, if fields of this type can be of it."""
    if column is None:
        return ""
    if dtype in ("int64", "float64"):
        fits = "int" in column.dtype or "float" in column.dtype
    else:
        fits = column.dtype == dtype
    return column.dtype if column.labels or fits else ""


def _holds(dtype: str, values: list[int | float]) -> bool:
    """Whether a type of numbers has every one of these exactly."""
    try:
        return pa.array(values, dtype).to_pylist() == values
    except (pa.ArrowInvalid, OverflowError, TypeError):
        return False
