"""Numbers in lines of text: the quick way through NumPy, and a slow, careful one where that fails and a reason is owed."""

import csv
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from partita.core.errors import DataError
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
