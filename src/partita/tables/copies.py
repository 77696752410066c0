"""Copies of files of tables with more in them: gaps filled, or columns beside their own; what is
there keeps every bit.

A copy of the other format, text or columnar, is one of the file's own that is converted while it is
written: every column, also one that a run ignores, in the file's own order. Text has no types. A
column that is known gets its type where that holds every value of the file exactly; others are
truth values, whole numbers, numbers or words, by what all of their fields are.

Files are read and written chunk by chunk, so that none need fit into memory.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import types

from partita.runtime.files import replacing
from partita.tables.arrow import COLUMNAR, Columnar, compute, dtype_name, is_text, open_writer
from partita.tables.csv import TRUTH, TextTable, gaps, is_missing, stripped, to_number
from partita.tables.dates import arrow_type, read_text, to_arrow
from partita.tables.files import open_table
from partita.tables.schema import Cell, Column, Schema, is_date
from partita.tables.write import array_of, coded, own_type, text, write_csv

WORDS = ("string", "category")  # types of them
# Arrow's types whose numbers have fewer digits than Python's
NARROW = {"float": np.float32, "halffloat": np.float16}


class TextType(NamedTuple):
    """A type that a column of text gets where all its fields are so written, and it holds them
    exactly.
    """

    dtype: str
    written: re.Pattern[str] = re.compile(r".*", re.DOTALL)


WHOLE = re.compile(r"[+-]?(0|[1-9]\d*)")
# of a column that nothing is known about, the first that loses nothing; 007 is a name
TEXT_TYPES = (
    TextType("int64", WHOLE),
    TextType("float64", re.compile(r"(?![+-]?0\d+$).*")),
    TextType("bool"),
    TextType("string"),
)


def write_filled(source: Path, path: Path, schema: Schema, x: np.ndarray) -> None:
    """A copy of a table's file with ``x``, the columns that a schema uses, in place of what is
    missing, and nowhere else.
    """
    table = open_table(source)
    if isinstance(table, TextTable):
        filled = replace(table, fields=partial(_filled_fields, table, schema, x))
        _write_copy(filled, path, schema.used)
        return
    used = {column.name: column for column in schema.used}
    kinds = [
        field.with_type(filled_type(field.type, used[field.name])) if field.name in used else field
        for field in table.schema
    ]
    after = pa.schema(kinds, table.schema.metadata)
    filled = partial(_filled_chunks, table, schema, x)
    _write_copy(Columnar.of(source, after, table.rows, filled), path, source=table)


def write_beside(
    source: Path, path: Path, columns: Sequence[Column], x: np.ndarray, known: Sequence[Column] = ()
) -> None:
    """A copy of a table's file, whose first line has names if it is text, with ``x`` as more
    columns after its own.

    ``known`` are columns of the file whose types a run knows, where the copy has types and the file
    has none.
    """
    table = open_table(source)
    names = [column.name for column in columns]
    if isinstance(table, TextTable):
        more = replace(
            table,
            columns=None if table.columns is None else (*table.columns, *names),
            types=(*table.types, *(column.dtype for column in columns)),
            header=[[*line, *names] for line in table.header],
            fields=partial(_extended, table.fields, columns, x, _fields_of),
        )
        _write_copy(more, path, [*known, *columns])
        return
    fields = [pa.field(column.name, own_type(column)) for column in columns]
    after = pa.schema([*table.schema, *fields], table.schema.metadata)
    extended = partial(_extended, table.read, columns, x, array_of)
    _write_copy(Columnar.of(source, after, table.rows, extended), path, source=table)


def convert(source: Path, path: Path, known: Sequence[Column]) -> None:
    """A .csv file as a columnar one, or the other way round; ``known`` are columns of which more
    than their fields is known.
    """
    _write_copy(open_table(source), path, known)


def names_in(path: Path) -> tuple[str, ...]:
    """The names of a table's columns, in the file's order."""
    return open_table(path).names


def filled_arrow(table: pa.Table, schema: Schema, x: np.ndarray) -> pa.Table:
    """An Arrow table with the gaps of the columns that a schema uses filled, of the same types
    (:func:`filled_type`).
    """
    used = {column.name: (i, column) for i, column in enumerate(schema.used)}
    columns = list(table.columns)
    fields = list(table.schema)
    for place, (held, field) in enumerate(zip(table.columns, table.schema, strict=True)):
        if field.name in used and compute.any(compute.is_null(held, nan_is_null=True)).as_py():
            i, column = used[field.name]
            columns[place] = _filled(held, column, x[:, i])
            fields[place] = field.with_type(columns[place].type)
    return pa.table(columns, schema=pa.schema(fields, table.schema.metadata))


def filled_type(kind: pa.DataType, column: Column) -> pa.DataType:
    """The Arrow type of a column once its gaps are filled.

    It is the one that the column has; the run's own where that cannot hold what the run has, words
    or numbers, for then nothing is there that would have to be kept.
    """
    inner = kind.value_type if types.is_dictionary(kind) else kind
    text = bool(column.labels) or "%" in column.dtype
    fits = is_text(inner) if text else not (is_text(inner) or types.is_null(inner))
    return kind if fits else own_type(column)


def _filled(held: pa.ChunkedArray, column: Column, values: np.ndarray) -> pa.Array:
    """A column as this table has it, not the one that was fitted."""
    kind = held.type
    if filled_type(kind, column) != kind:
        return array_of(column, values)
    if types.is_dictionary(kind):
        # categories keep the order they have in the file; those that only the run knows come after
        joined = held.unify_dictionaries().combine_chunks()
        words = column.words(values.tolist())
        filled = [
            word if value is None else value
            for value, word in zip(joined.to_pylist(), words, strict=True)
        ]
        return coded(filled, [*joined.dictionary.to_pylist(), *words], kind)
    # views can be cast, and little else
    plain = pa.large_string() if types.is_string_view(kind) else kind
    if is_text(kind):
        own = pa.array(column.words(values.tolist()), plain)
    else:
        own = array_of(replace(column, dtype=dtype_name(kind)), values).cast(plain)
    gap = compute.is_null(held, nan_is_null=True)
    return compute.if_else(gap, own, held.cast(plain)).cast(kind)


def _with_rows(chunks: Iterable[pa.Table], x: np.ndarray) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """Chunks of a file, and the rows of ``x`` beside them."""
    start = 0
    for chunk in chunks:
        yield chunk, x[start : start + len(chunk)]
        start += len(chunk)


def _filled_chunks(table: Columnar, schema: Schema, x: np.ndarray) -> Iterator[pa.Table]:
    return (filled_arrow(chunk, schema, part) for chunk, part in _with_rows(table.chunks(), x))


def _filled_fields(table: TextTable, schema: Schema, x: np.ndarray) -> Iterator[pa.Table]:
    """The fields of a file as they are written, and what is missing from the rows of ``x``."""
    places = {name: place for place, name in enumerate(table.names)}
    for chunk, part in _with_rows(table.fields(), x):
        columns = list(chunk.columns)
        for i, column in enumerate(schema.used):
            place = places[column.name]
            gap = gaps(compute.utf8_trim_whitespace(columns[place]))
            own = _fields_of(column, part[:, i])
            columns[place] = compute.if_else(gap, own, columns[place])
        yield pa.table(columns, chunk.column_names)


def _extended(
    chunks: Callable[[], Iterator[pa.Table]],
    columns: Sequence[Column],
    x: np.ndarray,
    array: Callable[[Column, np.ndarray], pa.Array],
) -> Iterator[pa.Table]:
    """Chunks of a file with more columns, each as ``array`` makes it."""
    for chunk, part in _with_rows(chunks(), x):
        for i, column in enumerate(columns):
            chunk = chunk.append_column(column.name, array(column, part[:, i]))
        yield chunk


def _fields_of(column: Column, values: np.ndarray) -> pa.Array:
    return pa.array(map(text, column.words(values.tolist())), pa.string())


def _write_copy(
    copy: Columnar | TextTable,
    path: Path,
    known: Sequence[Column] = (),
    source: Columnar | None = None,
) -> None:
    """Write a table, converted where its format is the other one.

    The chunks of a columnar file share one list of categories: those of the ``source`` in its
    order, then those that fill its gaps.
    """
    ending = path.suffix.lower()
    with replacing(path) as beside:
        if ending not in COLUMNAR:
            delimiter = copy.delimiter if isinstance(copy, TextTable) else ","
            write_csv(beside, _records(copy), delimiter)
            return
        copy = _with_types(copy, known) if isinstance(copy, TextTable) else copy
        lists = {} if source is None else _categories(source, copy)
        with open_writer(beside, ending, copy.schema) as out:
            for chunk in copy.chunks():
                out.write_table(_with_lists(chunk, lists).cast(copy.schema))


def _categories(source: Columnar, copy: Columnar) -> dict[str, list[Cell]]:
    """The words of each column of categories that the copy has as the source has it."""
    names = [
        field.name
        for field in source.schema
        if types.is_dictionary(field.type) and copy.schema.field(field.name) == field
    ]
    words: dict[str, dict[Cell, None]] = {name: {} for name in names}
    for chunk in chain(source.chunks(), copy.chunks()) if names else ():
        for name in names:
            for part in chunk.column(name).chunks:
                words[name] |= dict.fromkeys(part.dictionary.to_pylist())
    return {name: list(found) for name, found in words.items()}


def _with_lists(chunk: pa.Table, lists: dict[str, list[Cell]]) -> pa.Table:
    """Rows whose columns of categories have the same lists of words as those of other chunks."""
    for name, words in lists.items():
        place = chunk.column_names.index(name)
        held = chunk.column(place)
        again = coded(held.to_pylist(), words, held.type)
        chunk = chunk.set_column(place, chunk.field(place), again)
    return chunk


def _records(table: Columnar | TextTable) -> Iterator[Sequence[str]]:
    """Fields of text that read back the same; a missing value is empty."""
    if isinstance(table, TextTable):
        header, chunks, fields = table.header, table.fields(), pa.ChunkedArray.to_pylist
    else:
        header, chunks, fields = [table.names], table.chunks(), _as_text
    yield from header
    for chunk in chunks:
        yield from zip(*map(fields, chunk.columns), strict=True)


def _as_text(held: pa.ChunkedArray) -> list[str]:
    number = NARROW.get(str(held.type), float)
    return [
        ("" if value != value else str(number(value))) if isinstance(value, float) else text(value)
        for value in held.to_pylist()
    ]


def _with_types(table: TextTable, known: Sequence[Column]) -> Columnar:
    """A table of text with types that lose nothing of its fields."""
    columns = {column.name: column for column in known}
    dtypes = _dtypes(table, columns)
    words = pa.dictionary(pa.int32(), pa.string())
    kinds = [
        words
        if dtype == "category"
        else arrow_type(dtype)
        if is_date(dtype)
        else pa.type_for_alias(dtype)
        for dtype in dtypes
    ]
    schema = pa.schema(list(map(pa.field, table.names, kinds)))

    def read() -> Iterator[pa.Table]:
        for chunk in table.fields():
            arrays = [
                _array(values.to_pylist(), dtype, kind, columns.get(name))
                for name, dtype, kind, values in zip(
                    table.names, dtypes, kinds, chunk.columns, strict=True
                )
            ]
            yield pa.table(arrays, schema=schema)

    return Columnar.of(table.path, schema, table.rows, read)


def _array(fields: Sequence[str], dtype: str, kind: pa.DataType, column: Column | None) -> pa.Array:
    # without the space around them, as a run knows its words
    fields = fields if column is None else [field.strip() for field in fields]
    values = [None if _is_gap(field, dtype, column) else _value(field, dtype) for field in fields]
    if is_date(dtype):
        days = read_text(dtype, pa.array(values, pa.string()))
        assert days is not None
        return to_arrow(dtype, days)
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
    return int(field) if WHOLE.fullmatch(field) else to_number(field)


def _dtypes(table: TextTable, known: dict[str, Column]) -> list[str]:
    """What each column is written as: the type that is known where it holds all fields exactly,
    else by the fields alone.
    """
    choices = [_choices(known.get(name)) for name in table.names]
    for chunk in map(stripped, table.fields()):
        for i, values in enumerate(chunk.columns):
            if len(choices[i]) > 1:
                there = [field for field in values.to_pylist() if not is_missing(field)]
                choices[i] = [choice for choice in choices[i] if _holds(choice, there)]
    return [first.dtype for first, *_ in choices]


def _choices(column: Column | None) -> list[TextType]:
    """The types that a column of text may get: the one that is known first."""
    if column is None or (column.dtype in WORDS and not column.labels):
        return [*TEXT_TYPES]
    own = TextType(column.dtype)
    return [own] if column.labels else [own, *TEXT_TYPES]


def _holds(choice: TextType, fields: list[str]) -> bool:
    """Whether a type has every one of these fields exactly."""
    if choice.dtype in WORDS:
        return True
    if is_date(choice.dtype):
        return "%" in choice.dtype and read_text(choice.dtype, pa.array(fields)) is not None
    if choice.dtype == "bool":
        return all(field.lower() in TRUTH for field in fields)
    try:
        if not all(map(choice.written.fullmatch, fields)):
            return False
        values = list(map(_number, fields))
        return pa.array(values, choice.dtype).to_pylist() == values
    except (ValueError, OverflowError, TypeError):
        return False
