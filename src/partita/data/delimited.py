"""Numbers in lines of text: the quick way through NumPy, and a slow, careful one where that fails and a reason is owed."""

import csv
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from partita.core.errors import DataError
from partita.data.labels import Labels, letters, numbered
from partita.data.sequences import looks_like_sequences
from partita.data.tables import Columns, not_numeric

DELIMITERS = (";", "\t", ",")
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})


def read_delimited(path: Path) -> tuple[np.ndarray, Columns]:
    """A table of float64 with the names in its first line, if that is not all numbers; missing values become NaN."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        first = next((line for line in stream if line.strip()), "")
    delimiter = next((mark for mark in DELIMITERS if mark in first), "," if path.suffix.lower() == ".csv" else None)
    fields = next(_records([first.lstrip("# ")], delimiter), [])
    columns = None if all(map(_is_number, fields)) else tuple(fields)
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
    with path.open(encoding="utf-8-sig", newline="") as stream:
        first = next((line for line in stream if line.strip()), "")
    delimiter = next((mark for mark in DELIMITERS if mark in first), "," if path.suffix.lower() == ".csv" else None)
    with path.open(encoding="utf-8-sig", newline="") as stream:
        records = [record for record in _records(stream, delimiter) if record]
    if not records:
        raise DataError(f"load: {path} must hold rows; got none. Write it again.")
    if looks_like_sequences(records):
        return letters((record[0] for record in records), f"load: {path}")[0], None, letters((r[0] for r in records), str(path))[1]
    columns = tuple(records.pop(0)) if _has_header(records) else None
    _check_widths(path, records)
    table, labels = [], {}
    for words in zip(*records, strict=True):
        if all(map(_is_number, words)):
            table.append(np.array([_number(word) for word in words]))
        else:
            known = [word for word in words if word.lower() not in MISSING]
            values, meaning = numbered(known)
            column = np.full(len(words), np.nan)
            column[[word.lower() not in MISSING for word in words]] = values
            table.append(column)
            labels |= meaning
    return np.stack(table, 1), columns, labels


def _has_header(records: list[list[str]]) -> bool:
    """Whether the first line names columns: a column of numbers begins with a word, or no word of it is ever seen again."""
    first, others = records[0], records[1:]
    if all(map(_is_number, first)) or not others:
        return False
    below = list(zip(*(row for row in others if len(row) == len(first)), strict=True))
    if any(not _is_number(name) and all(map(_is_number, column)) for name, column in zip(first, below, strict=False)):
        return True
    return not any(name in column for name, column in zip(first, below, strict=False))


def _check_widths(path: Path, records: list[list[str]]) -> None:
    for number, record in enumerate(records):
        if len(record) != len(records[0]):
            remedy = "Give all rows the same number of values."
            raise DataError(f"load: {path} must have {len(records[0])} values in each row; got {len(record)} in row {number}. {remedy}")


def _quickly(path: Path, delimiter: str | None, header: bool) -> np.ndarray:
    with path.open(encoding="utf-8-sig") as stream:
        lines = (line for line in stream if line.strip())
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
        records = (record for record in _records(stream, delimiter) if record)
        width = len(columns) if columns is not None and next(records) else None
        for number, record in enumerate(records):  # rows are counted from 0, as in arrays
            width = len(record) if width is None else width
            if len(record) != width:
                remedy = "Give all rows the same number of values."
                raise DataError(f"load: {path} must have {width} values in each row; got {len(record)} in row {number}. {remedy}")
            text.update(i for i, field in enumerate(record) if not _is_number(field))
            rows.append([] if text else [_number(field) for field in record])
    if text:
        raise not_numeric("load", [repr(columns[i]) if columns else str(i) for i in sorted(text)], str(path))
    if not rows:
        raise DataError(f"load: {path} must hold rows; got {'only a line of names' if columns else 'none'}. Write it again.")
    return np.array(rows)


def _records(lines: Iterable[str], delimiter: str | None) -> Iterator[list[str]]:
    if delimiter is None:
        return (line.split() for line in lines)
    return ([field.strip() for field in record] for record in csv.reader(lines, delimiter=delimiter))


def _is_number(field: str) -> bool:
    try:
        _number(field)
    except ValueError:
        return False
    return True


def _number(field: str) -> float:
    return float("nan") if field.lower() in MISSING else float(field)
