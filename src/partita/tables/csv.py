"""Numbers in lines of text: the quick way through NumPy, and a slow, careful one where that fails
and a reason is owed.
"""

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from partita.errors import DataError
from partita.tables.alignments import looks_like_sequences
from partita.tables.arrays import Columns, not_numeric
from partita.tables.fields import DATE, TRUTH, is_lossy, is_missing, is_number, to_number
from partita.tables.labels import Labels, letters, numbered
from partita.tables.schema import Series, column_names, number_type

DELIMITERS = (";", "\t", ",", "|")
EXCELS = re.compile(r"sep=.", re.IGNORECASE)  # a line above the names that says what parts fields
LONGEST = 1 << 26  # characters of a line
MOST_LINES = 20  # that names take beyond the first


class Worded(NamedTuple):
    """Which columns of a table are words, whatever their fields look like."""

    always: Collection[str] = ()
    codes: Collection[str] = ()  # those that are words where numbers would lose something of them


def read_delimited(path: Path) -> tuple[np.ndarray, Columns]:
    """A table of float64 with the names in its first line, if that is not all numbers; missing
    values become NaN.
    """
    delimiter = delimiter_of(path)
    fields = names_of(next(stream_records(path), [""]), delimiter)
    columns = None if all(map(is_number, fields)) else tuple(fields)
    several = any("\n" in name for name in fields)  # lines that the names take
    try:
        table = None if several else _quickly(path, delimiter, columns is not None)
    except ValueError:
        table = None
    if table is None or (columns is not None and table.shape[1] != len(columns)):
        table = _carefully(path, delimiter, columns)
    return table, columns


def read_words(path: Path) -> tuple[np.ndarray, Columns, Labels]:
    """A table whose columns may be words, each word a number (:mod:`partita.tables.labels`), with
    names in its first line unless that looks like the others; lines of one word of one length are
    sequences, a column for each letter.
    """
    records = _all_records(path)
    if looks_like_sequences(records):
        return (
            letters((record[0] for record in records), f"load: {path}")[0],
            None,
            letters((r[0] for r in records), str(path))[1],
        )
    series, columns = _columns_of(path, records)
    labels = {number: word for one in series for number, word in one.labels.items()}
    return np.stack([one.values for one in series], 1), columns, labels


def holds_sequences(path: Path) -> bool:
    """Whether the lines are words of one length, without numbers among them or marks between."""
    first = _first_line(path).strip()
    alone = not any(mark in first for mark in (*DELIMITERS, " ")) and not is_number(first)
    if not alone:
        return False
    size = len(next(stream_records(path))[0])
    return size > 1 and all(
        len(record) == 1 and len(record[0]) == size for record in stream_records(path)
    )


def read_series(
    path: Path, worded: Callable[[Sequence[str]], Worded] | None = None
) -> tuple[list[Series], Columns]:
    """The columns of a table, numbers or words, and their names, if the first line gives them.

    ``worded`` tells by the names which columns are words, whatever they look like.
    """
    return _columns_of(path, _all_records(path), worded)


def delimiter_of(path: Path) -> str | None:
    """What parts the fields of a file, outside quotes; None for white space."""
    first = re.sub(r'"[^"]*("|$)', "", _first_line(path))
    if EXCELS.fullmatch(first.strip("\r\n")):
        got = f"{first.strip()!r}, which is for Excel alone. Take that line out."
        raise DataError(f"load: {path} must begin with names or numbers; got {got}")
    return next(
        (mark for mark in DELIMITERS if mark in first),
        "," if path.suffix.lower() == ".csv" else None,
    )


def names_of(first: Sequence[str], delimiter: str | None = ",") -> list[str]:
    """The names in the fields of a first line, which a comment's mark may come before, as
    numpy.savetxt writes it.

    >>> names_of(["# a", "b"]), names_of(["#", "a", "b"], None)
    (['a', 'b'], ['a', 'b'])
    """
    if delimiter is None and first[0] == "#":
        return list(first[1:])
    return [first[0].lstrip("# ") or first[0], *first[1:]]


def stream_records(path: Path) -> Iterator[list[str]]:
    """The fields of each line that is not empty, without the space around them, as they are asked
    for.
    """
    delimiter = delimiter_of(path)
    with path.open(encoding="utf-8-sig", newline="") as stream:
        yield from _records(_lines(stream), delimiter)


def raw_records(path: Path) -> Iterator[list[str]]:
    """The fields of a .csv file as they are written, but for empty lines."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        yield from _fields(stream, delimiter_of(path) or ",")


def _all_records(path: Path) -> list[list[str]]:
    records = list(stream_records(path))
    if not records:
        raise DataError(f"load: {path} must hold rows; got none. Write it again.")
    return records


def _columns_of(
    path: Path, records: list[list[str]], worded: Callable[[Sequence[str]], Worded] | None = None
) -> tuple[list[Series], Columns]:
    columns = tuple(names_of(records.pop(0), delimiter_of(path))) if _has_header(records) else None
    if not records:
        raise DataError(f"load: {path} must hold rows; got only a line of names. Write it again.")
    _check_widths(path, records, columns)
    names = columns or column_names(len(records[0]))
    told = Worded() if worded is None else worded(names)
    return [
        _series(name, fields, told)
        for name, fields in zip(names, zip(*records, strict=True), strict=True)
    ], columns


def _series(name: str, fields: Sequence[str], told: Worded) -> Series:
    """One column: numbers where all of it are, truth values, dates, else words."""
    words = [field for field in fields if not is_missing(field)]
    as_words = name in told.always or (name in told.codes and any(map(is_lossy, words)))
    if not as_words and all(map(is_number, fields)):
        values = np.array([to_number(field) for field in fields])
        return Series(name, values, number_type(values))
    there = np.array([not is_missing(field) for field in fields])
    values = np.full(len(fields), np.nan)
    if not as_words and {word.lower() for word in words} <= TRUTH.keys():
        values[there] = [TRUTH[word.lower()] for word in words]
        return Series(name, values, "bool")
    values[there], labels = numbered(words)
    return Series(
        name, values, "date" if not as_words and all(map(DATE.match, words)) else "string", labels
    )


def _has_header(records: list[list[str]]) -> bool:
    """Whether the first line names columns: a column of numbers begins with a word, or no word of
    it is ever seen again.
    """
    first, others = records[0], records[1:]
    if all(map(is_number, first)) or not others:
        return False
    below = list(zip(*(row for row in others if len(row) == len(first)), strict=True))
    if any(
        not is_number(name) and all(map(is_number, column))
        for name, column in zip(first, below, strict=False)
    ):
        return True
    return not any(name in column for name, column in zip(first, below, strict=False))


def _check_widths(path: Path, records: list[list[str]], columns: Columns) -> None:
    for number, record in enumerate(records):
        if len(record) != len(columns or records[0]):
            raise uneven(path, len(columns or records[0]), len(record), number)


def uneven(path: Path, width: int, got: int, row: int) -> DataError:
    """The error for a row that has more or fewer values than those before; where that is a remark
    above the table, it is the remark's.
    """
    first = _first_line(path).strip()
    remark = first.startswith("#") or (width == 1 and row < 2)
    remedy = (
        f"Take out its first line, {first[:60]!r}, if that is no row."
        if remark
        else "Give all rows the same number of values."
    )
    return DataError(
        f"load: {path} must have {width} values in each row; got {got} in row {row}. {remedy}"
    )


def _quickly(path: Path, delimiter: str | None, header: bool) -> np.ndarray:
    with path.open(encoding="utf-8-sig") as stream:
        # a line of tabs may be one of missing values
        around = None if delimiter is None else " \r\n"
        lines = (line for line in _lines(stream) if line.strip(around))
        if header:
            next(lines)
        first = next(lines, None)
        if first is None:
            raise ValueError("no rows")
        return np.loadtxt(
            chain([first], lines), delimiter=delimiter, ndmin=2, quotechar='"', comments=None
        )


def _carefully(path: Path, delimiter: str | None, columns: Columns) -> np.ndarray:
    rows: list[list[float]] = []
    text: set[int] = set()
    with path.open(encoding="utf-8-sig", newline="") as stream:
        records = _records(_lines(stream), delimiter)
        width = len(columns) if columns is not None and next(records) else None
        for number, record in enumerate(records):  # rows are counted from 0, as in arrays
            width = len(record) if width is None else width
            if len(record) != width:
                raise uneven(path, width, len(record), number)
            text.update(i for i, field in enumerate(record) if not is_number(field))
            rows.append([] if text else [to_number(field) for field in record])
    if text:
        raise not_numeric(
            "load", [repr(columns[i]) if columns else str(i) for i in sorted(text)], str(path)
        )
    if not rows:
        raise DataError(
            f"load: {path} must hold rows; got {'only a line of names' if columns else 'none'}. "
            "Write it again."
        )
    return np.array(rows)


def _lines(stream: TextIO) -> Iterator[str]:
    """The lines of a text; one longer than any row is refused before all of it is read."""
    for line in iter(partial(stream.readline, LONGEST), ""):
        if len(line) == LONGEST:
            raise DataError(
                f"load: {stream.name} must have lines of less than {LONGEST >> 20} MiB; got a "
                "longer one. Is it a table?"
            )
        yield line


def _first_line(path: Path) -> str:
    """The first that is not empty, with those that a name in quotes goes on in."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        lines = _lines(stream)
        first = next((line for line in lines if line.strip()), "")
        for line in islice(lines, MOST_LINES):
            if first.count('"') % 2 == 0:
                break
            first += line
    return first


def _records(lines: Iterable[str], delimiter: str | None) -> Iterator[list[str]]:
    if delimiter is None:
        return (fields for line in lines if (fields := line.split()))
    return ([field.strip() for field in record] for record in _fields(lines, delimiter))


def _fields(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """Fields as they are written; a line of nothing but space is empty, one of two quotes has a
    missing value.
    """
    return (
        record
        for record in csv.reader(lines, delimiter=delimiter)
        if record and not (len(record) == 1 and record[0].isspace())
    )
