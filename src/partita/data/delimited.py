"""Numbers in lines of text: the quick way through NumPy, and a slow, careful one where that fails and a reason is owed."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TextIO

import numpy as np

from partita.core.errors import DataError
from partita.data.labels import Labels, letters, numbered
from partita.data.schema import Series, column_names, number_type
from partita.data.sequences import looks_like_sequences
from partita.data.tables import Columns, not_numeric

DELIMITERS = (";", "\t", ",")
LONGEST = 1 << 26  # characters of a line
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
TRUTH = {"true": 1.0, "false": 0.0}
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?$|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?$")


def read_delimited(path: Path) -> tuple[np.ndarray, Columns]:
    """A table of float64 with the names in its first line, if that is not all numbers; missing values become NaN."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        first = next((line for line in _lines(stream) if line.strip()), "")
    delimiter = delimiter_of(path)
    fields = next(_records([first.lstrip("# ")], delimiter), [])
    columns = None if all(map(is_number, fields)) else tuple(fields)
    try:
        table = _quickly(path, delimiter, columns is not None)
    except ValueError:
        table = _carefully(path, delimiter, columns)
    if columns is not None and table.shape[1] != len(columns):
        table = _carefully(path, delimiter, columns)
    return table, columns


def read_words(path: Path) -> tuple[np.ndarray, Columns, Labels]:
    """A table whose columns may be words, each word a number (:mod:`partita.data.labels`), with names in its first line unless that
    looks like the others; lines of one word of one length are sequences, a column for each letter.
    """
    records = _all_records(path)
    if looks_like_sequences(records):
        return letters((record[0] for record in records), f"load: {path}")[0], None, letters((r[0] for r in records), str(path))[1]
    series, columns = _columns_of(path, records)
    labels = {number: word for one in series for number, word in one.labels.items()}
    return np.stack([one.values for one in series], 1), columns, labels


def holds_sequences(path: Path) -> bool:
    """Whether the lines are words of one length, without numbers among them or marks between."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        first = next((line.strip() for line in _lines(stream) if line.strip()), "")
    alone = not any(mark in first for mark in (*DELIMITERS, " ")) and not is_number(first)
    if not alone:
        return False
    size = len(next(stream_records(path))[0])
    return size > 1 and all(len(record) == 1 and len(record[0]) == size for record in stream_records(path))


def read_series(path: Path) -> tuple[list[Series], Columns]:
    """The columns of a table, numbers or words, and their names, if the first line gives them."""
    return _columns_of(path, _all_records(path))


def read_cells(path: Path) -> tuple[list[list[str]], bool]:
    """The fields of a table as they are written, and whether the first line names columns."""
    records = _all_records(path)
    return records, _has_header(records)


def delimiter_of(path: Path) -> str | None:
    """What parts the fields of a file; None for white space."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        first = next((line for line in _lines(stream) if line.strip()), "")
    return next((mark for mark in DELIMITERS if mark in first), "," if path.suffix.lower() == ".csv" else None)


def is_missing(field: str) -> bool:
    """Whether a field stands for no value.

    >>> is_missing(""), is_missing("NaN"), is_missing("0")
    (True, True, False)
    """
    return field.lower() in MISSING


def stream_records(path: Path) -> Iterator[list[str]]:
    """The fields of each line that is not empty, without the space around them, as they are asked for."""
    delimiter = delimiter_of(path)
    with path.open(encoding="utf-8-sig", newline="") as stream:
        yield from (record for record in _records(_lines(stream), delimiter) if record)


def raw_records(path: Path) -> Iterator[list[str]]:
    """The fields of a .csv file as they are written, but for empty lines."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        yield from (record for record in csv.reader(stream, delimiter=delimiter_of(path) or ",") if record)


def _all_records(path: Path) -> list[list[str]]:
    records = list(stream_records(path))
    if not records:
        raise DataError(f"load: {path} must hold rows; got none. Write it again.")
    return records


def _columns_of(path: Path, records: list[list[str]]) -> tuple[list[Series], Columns]:
    columns = tuple(records.pop(0)) if _has_header(records) else None
    if not records:
        raise DataError(f"load: {path} must hold rows; got only a line of names. Write it again.")
    if columns is not None and len(columns) != len(records[0]):
        remedy = "Give all rows the same number of values."
        raise DataError(f"load: {path} must have {len(columns)} values in each row; got {len(records[0])} in row 0. {remedy}")
    _check_widths(path, records)
    names = columns or column_names(len(records[0]))
    return [_series(name, fields) for name, fields in zip(names, zip(*records, strict=True), strict=True)], columns


def _series(name: str, fields: Sequence[str]) -> Series:
    """One column: numbers where all of it are, truth values, dates, else words."""
    if all(map(is_number, fields)):
        values = np.array([to_number(field) for field in fields])
        return Series(name, values, number_type(values))
    there = np.array([not is_missing(field) for field in fields])
    words = [field for field in fields if not is_missing(field)]
    values = np.full(len(fields), np.nan)
    if {word.lower() for word in words} <= TRUTH.keys():
        values[there] = [TRUTH[word.lower()] for word in words]
        return Series(name, values, "bool")
    values[there], labels = numbered(words)
    return Series(name, values, "date" if all(map(DATE.match, words)) else "string", labels)


def _has_header(records: list[list[str]]) -> bool:
    """Whether the first line names columns: a column of numbers begins with a word, or no word of it is ever seen again."""
    first, others = records[0], records[1:]
    if all(map(is_number, first)) or not others:
        return False
    below = list(zip(*(row for row in others if len(row) == len(first)), strict=True))
    if any(not is_number(name) and all(map(is_number, column)) for name, column in zip(first, below, strict=False)):
        return True
    return not any(name in column for name, column in zip(first, below, strict=False))


def _check_widths(path: Path, records: list[list[str]]) -> None:
    for number, record in enumerate(records):
        if len(record) != len(records[0]):
            remedy = "Give all rows the same number of values."
            raise DataError(f"load: {path} must have {len(records[0])} values in each row; got {len(record)} in row {number}. {remedy}")


def _quickly(path: Path, delimiter: str | None, header: bool) -> np.ndarray:
    with path.open(encoding="utf-8-sig") as stream:
        lines = (line for line in _lines(stream) if line.strip())
        if header:
            next(lines)
        first = next(lines, None)
        if first is None:
            raise ValueError("no rows")
        return np.loadtxt(chain([first], lines), delimiter=delimiter, ndmin=2, quotechar='"', comments=None)


def _carefully(path: Path, delimiter: str | None, columns: Columns) -> np.ndarray:
    rows: list[list[float]] = []
    text: set[int] = set()
    with path.open(encoding="utf-8-sig", newline="") as stream:
        records = (record for record in _records(_lines(stream), delimiter) if record)
        width = len(columns) if columns is not None and next(records) else None
        for number, record in enumerate(records):  # rows are counted from 0, as in arrays
            width = len(record) if width is None else width
            if len(record) != width:
                remedy = "Give all rows the same number of values."
                raise DataError(f"load: {path} must have {width} values in each row; got {len(record)} in row {number}. {remedy}")
            text.update(i for i, field in enumerate(record) if not is_number(field))
            rows.append([] if text else [to_number(field) for field in record])
    if text:
        raise not_numeric("load", [repr(columns[i]) if columns else str(i) for i in sorted(text)], str(path))
    if not rows:
        raise DataError(f"load: {path} must hold rows; got {'only a line of names' if columns else 'none'}. Write it again.")
    return np.array(rows)


def _lines(stream: TextIO) -> Iterator[str]:
    """The lines of a text; one longer than any row is refused before all of it is read."""
    for line in iter(partial(stream.readline, LONGEST), ""):
        if len(line) == LONGEST:
            raise DataError(f"load: {stream.name} must have lines of less than {LONGEST >> 20} MiB; got a longer one. Is it a table?")
        yield line


def _records(lines: Iterable[str], delimiter: str | None) -> Iterator[list[str]]:
    if delimiter is None:
        return (line.split() for line in lines)
    return ([field.strip() for field in record] for record in csv.reader(lines, delimiter=delimiter))


def is_number(field: str) -> bool:
    """Whether a field is a number, or stands for none."""
    try:
        to_number(field)
    except ValueError:
        return False
    return True


def to_number(field: str) -> float:
    """The number in a field; NaN where it is missing."""
    return float("nan") if field.lower() in MISSING else float(field)
