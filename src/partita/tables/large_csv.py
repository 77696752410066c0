"""A .csv file that is too large to be held: looked through once for what its columns are, then read
some rows after the others.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from partita.errors import DataError
from partita.tables.arrays import Columns, not_numeric
from partita.tables.csv import Worded, names_of, stream_records, uneven
from partita.tables.fields import DATE, TRUTH, is_lossy, is_missing, is_number, to_number
from partita.tables.labels import numbered
from partita.tables.schema import Series, column_names

FIELDS = 1 << 18  # that are held together


@dataclass
class Sort:
    """What the fields of a column below its first can be: all numbers, all truth values, all dates;
    whether some of the numbers would lose digits; and whether the first comes again.
    """

    first: str
    number: bool = True
    truth: bool = True
    date: bool = True
    lossy: bool = False
    again: bool = False

    def add(self, fields: Sequence[str]) -> None:
        """Look at some more of them."""
        self.again = self.again or self.first in fields
        self.number = self.number and all(map(is_number, fields))
        words = {field for field in fields if not is_missing(field)}
        self.lossy = self.lossy or (self.number and any(map(is_lossy, words)))
        self.truth = self.truth and {word.lower() for word in words} <= TRUTH.keys()
        self.date = self.date and all(map(DATE.match, words))

    @property
    def name(self) -> str:
        """The sort as one word."""
        return (
            "number" if self.number else "bool" if self.truth else "date" if self.date else "string"
        )


@dataclass(frozen=True)
class LargeText:
    """A table of text: where it is, its names (``columns`` None where its first line has none), the
    sort of each column, and which of them would lose digits as numbers.
    """

    path: Path
    columns: Columns
    names: tuple[str, ...]
    rows: int
    sorts: tuple[str, ...]
    lossy: tuple[bool, ...]

    def worded(self, told: Worded) -> "LargeText":
        """The same, with some columns as words, whatever they look like."""
        words = {
            *told.always,
            *(
                name
                for name, lossy in zip(self.names, self.lossy, strict=True)
                if lossy and name in told.codes
            ),
        }
        return replace(
            self,
            sorts=tuple(
                "string" if name in words else sort
                for name, sort in zip(self.names, self.sorts, strict=True)
            ),
        )

    @property
    def types(self) -> list[str]:
        """What columns are written as; that of numbers shows when they are read."""
        return [{"number": "int64"}.get(sort, sort) for sort in self.sorts]

    def number_dtype(self) -> np.dtype:
        """float64; columns that are no numbers are named."""
        names = (
            list(map(repr, self.names)) if self.columns else list(map(str, range(len(self.names))))
        )
        text = [name for name, sort in zip(names, self.sorts, strict=True) if sort != "number"]
        if text:
            raise not_numeric("load", text, str(self.path))
        return np.dtype(float)

    def fields(self) -> Iterator[list[tuple[str, ...]]]:
        """The fields of each column, a stretch of rows at a time."""
        for batch in _batches(
            stream_records(self.path), len(self.names), skip=self.columns is not None
        ):
            yield list(zip(*batch, strict=True))

    def series(self, left_out: Collection[str]) -> Iterator[list[Series]]:
        """Its columns but for some, a stretch of rows at a time."""
        kept = [i for i, name in enumerate(self.names) if name not in left_out]
        for fields in self.fields():
            yield [_series(self.names[i], self.sorts[i], fields[i]) for i in kept]

    def gaps(self, names: Collection[str]) -> dict[str, int]:
        """How many values of some columns are missing."""
        count = dict.fromkeys(names, 0)
        at = {name: i for i, name in enumerate(self.names) if name in names}
        for record in (
            islice(stream_records(self.path), int(self.columns is not None), None) if names else ()
        ):
            for name, i in at.items():
                count[name] += is_missing(record[i])
        return count


def open_text(path: Path) -> LargeText:
    """Look through a .csv file: names, sorts of columns, number of rows; a row of another length is
    named.
    """
    records = stream_records(path)
    first = next(records, None)
    if first is None:
        raise DataError(f"load: {path} must hold rows; got none. Write it again.")
    sorts, rows = [Sort(field) for field in first], 0
    for batch in _batches(records, len(first), path=path):
        rows += len(batch)
        for sort, fields in zip(sorts, zip(*batch, strict=True), strict=True):
            sort.add(fields)
    if named := _names_columns(first, sorts, rows):
        names = tuple(names_of(first))
    else:
        names, rows = column_names(len(first)), rows + 1
        for sort, field in zip(sorts, first, strict=True):
            sort.add([field])
    return LargeText(
        path,
        names if named else None,
        names,
        rows,
        tuple(sort.name for sort in sorts),
        tuple(sort.lossy for sort in sorts),
    )


def _names_columns(first: list[str], sorts: list[Sort], rows: int) -> bool:
    """Whether the first line names columns: one of numbers begins with a word, or no word of it is
    ever seen again.
    """
    if all(map(is_number, first)) or not rows:
        return False
    return any(sort.number and not is_number(sort.first) for sort in sorts) or not any(
        sort.again for sort in sorts
    )


def _batches(
    records: Iterator[list[str]], width: int, *, skip: bool = False, path: Path | None = None
) -> Iterator[list[list[str]]]:
    """Records some at a time, the first left out if it has names, and of one length if the path to
    name is given.
    """
    size, start = max(1, FIELDS // width), 0
    records = islice(records, 1, None) if skip else chain(records)
    while batch := list(islice(records, size)):
        odd = next((number for number, record in enumerate(batch) if len(record) != width), None)
        if path is not None and odd is not None:
            raise uneven(path, width, len(batch[odd]), start + odd)
        yield batch
        start += len(batch)


def _series(name: str, sort: str, fields: Sequence[str]) -> Series:
    """A stretch of a column of a known sort."""
    if sort == "number":
        values = np.array([to_number(field) for field in fields])
        there = values[~np.isnan(values)]
        return Series(
            name,
            values,
            "int64" if np.isfinite(there).all() and (there == np.round(there)).all() else "float64",
        )
    there = np.array([not is_missing(field) for field in fields])
    values = np.full(len(fields), np.nan)
    words = [field for field in fields if not is_missing(field)]
    labels: dict[Any, Any] = {}
    if sort == "bool":
        values[there] = [TRUTH[word.lower()] for word in words]
    else:
        values[there], labels = numbered(words)
    return Series(name, values, sort, labels)
