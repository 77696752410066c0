"""Tables as files of another sort, text or columnar: every column, also one that a run ignores, in
the file's own order.

Text says no types. A column that is known gets its type where that holds every value of the file
exactly; others are truth values, whole numbers, numbers or words, by what all of their fields are.
Rows are read and written some after the others.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from partita.runtime.atomic_files import replacing
from partita.tables.arrow import arrow
from partita.tables.columnar import COLUMNAR, Columnar, open_columnar, open_writer
from partita.tables.csv import raw_records
from partita.tables.fields import PADDED, TRUTH, WHOLE, is_missing
from partita.tables.large_csv import LargeText, open_text
from partita.tables.schema import Column
from partita.tables.write import FIELDS, places_of, text, write_csv

LARGEST = 2**63
WORDS = ("string", "category")  # types of them
# Arrow's types whose numbers have fewer digits than Python's
NARROW = {"float": np.float32, "halffloat": np.float16}


def convert(source: Path, path: Path, known: Sequence[Column]) -> None:
    """A .csv file as a columnar one, or the other way round; ``known`` are columns of which more
    than their fields is known.
    """
    with replacing(path) as beside:
        if path.suffix.lower() in COLUMNAR:
            _write_columnar(
                open_text(source),
                beside,
                path.suffix.lower(),
                {column.name: column for column in known},
            )
        else:
            write_csv(beside, _fields(open_columnar(source)), ",")


def names_in(path: Path) -> tuple[str, ...]:
    """The names of a table's columns, in the file's order."""
    return open_columnar(path).names if path.suffix.lower() in COLUMNAR else open_text(path).names


def _fields(source: Columnar) -> Iterator[list[str]]:
    """A columnar file as fields of text, below the names; a missing value is an empty field."""
    yield list(source.names)
    for piece in source.pieces():
        columns = ((held.to_pylist(), NARROW.get(str(held.type), float)) for held in piece.columns)
        yield from map(
            list,
            zip(
                *([_field(value, number) for value in values] for values, number in columns),
                strict=True,
            ),
        )


def _field(value: Any, number: Any) -> str:
    """A value as text that reads back the same."""
    if isinstance(value, float):
        return "" if value != value else str(number(value))
    return text(value)


def _write_columnar(source: LargeText, path: Path, ending: str, known: dict[str, Column]) -> None:
    pa, types = arrow(), _types(source, known)
    kinds = [_arrow_type(kind) for kind in types]
    schema = pa.schema(list(map(pa.field, source.names, kinds)))
    with open_writer(path, ending, schema) as out:
        for batch in _raw_fields(source):
            columns = zip(source.names, types, kinds, batch, strict=True)
            arrays = [
                _array(fields, kind, arrow_type, known.get(name))
                for name, kind, arrow_type, fields in columns
            ]
            out.write_table(pa.table(arrays, schema=schema))


def _array(fields: Sequence[str], kind: str, arrow_type: Any, column: Column | None) -> Any:
    # as a run knows its words
    fields = fields if column is None else [field.strip() for field in fields]
    values = [None if _is_gap(field, kind, column) else _value(field, kind) for field in fields]
    if kind != "category":
        return arrow().array(values, arrow_type)
    assert column is not None
    levels = places_of(map(text, column.words(column.levels)))
    places = [None if value is None else levels[value] for value in values]
    return arrow().DictionaryArray.from_arrays(
        arrow().array(places, arrow().int32()), arrow().array(list(levels))
    )


def _is_gap(field: str, kind: str, column: Column | None) -> bool:
    """Whether a field stands for no value; in words that nothing is known of, NA is a word too."""
    return field == "" if kind == "string" and column is None else is_missing(field.strip())


def _value(field: str, kind: str) -> Any:
    if kind == "bool":
        return TRUTH[field.strip().lower()] == 1.0
    if "int" in kind:
        return int(field) if WHOLE.fullmatch(field.strip()) else round(float(field))
    return float(field) if "float" in kind else field


def _raw_fields(source: LargeText) -> Iterator[list[tuple[str, ...]]]:
    """The fields of each column as they are written, a stretch of rows at a time."""
    records = islice(raw_records(source.path), int(source.columns is not None), None)
    while batch := list(islice(records, max(1, FIELDS // len(source.names)))):
        yield list(zip(*batch, strict=True))


def _arrow_type(kind: str) -> Any:
    pa = arrow()
    special = {"bool": pa.bool_(), "category": pa.dictionary(pa.int32(), pa.string())}
    return special.get(kind) or pa.type_for_alias(kind)


def _types(source: LargeText, known: dict[str, Column]) -> list[str]:
    """What each column is written as: the type that is known where it holds all fields exactly,
    else by the fields alone.
    """
    found = [{"number": "int64", "bool": "bool"}.get(sort, "string") for sort in source.sorts]
    wanted = [
        _wanted(known.get(name), sort)
        for name, sort in zip(source.names, source.sorts, strict=True)
    ]
    for batch in source.fields():
        for i, fields in enumerate(batch):
            there = [field for field in fields if not is_missing(field)]
            if source.sorts[i] == "number":
                found[i] = max(
                    found[i], _number_type(there), key=("int64", "float64", "string").index
                )
                wanted[i] = (
                    wanted[i]
                    if wanted[i] in WORDS or (wanted[i] and _holds(wanted[i], there))
                    else ""
                )
    return [one or other for one, other in zip(wanted, found, strict=True)]


def _wanted(column: Column | None, sort: str) -> str:
    """The type that is known of a column, if fields of its sort can be of it."""
    if column is None:
        return ""
    numeric = "int" in column.dtype or "float" in column.dtype
    return (
        column.dtype
        if column.labels or (numeric if sort == "number" else column.dtype == sort)
        else ""
    )


def _number_type(fields: Sequence[str]) -> str:
    """Whole numbers, numbers, or words where digits would be lost."""
    if all(WHOLE.fullmatch(field) and abs(int(field)) < LARGEST for field in fields):
        return "int64"
    lost = any(
        PADDED.fullmatch(field) or (WHOLE.fullmatch(field) and float(field) != int(field))
        for field in fields
    )
    return "string" if lost else "float64"


def _holds(kind: str, fields: Sequence[str]) -> bool:
    """Whether a type of numbers has every one of these exactly."""
    if "float" in kind:
        numbers = np.array([float(field) for field in fields])
        with np.errstate(over="ignore"):
            exact = bool((numbers.astype(kind).astype(float) == numbers).all())
        return exact and all(
            float(field) == int(field) for field in fields if WHOLE.fullmatch(field)
        )
    limits = np.iinfo(kind)
    values = [int(field) if WHOLE.fullmatch(field) else float(field) for field in fields]
    return all(
        abs(value) < LARGEST and value == int(value) and limits.min <= value <= limits.max
        for value in values
    )
