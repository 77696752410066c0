"""Tables of text, .csv and .txt: what their fields stand for, and their rows chunk by chunk.

Arrow parses the files; every field stays text until all of its column is known. Python's own reader
finds the row or the byte at fault where Arrow refuses a file, and splits lines at white space.
"""

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from partita.errors import DataError, unusable
from partita.tables import on_disk
from partita.tables.arrays import Columns, damaged, not_numeric
from partita.tables.arrow import compute, word_series
from partita.tables.schema import Series, column_names, is_whole

MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
TRUTH = {"true": 1.0, "false": 0.0}
MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
DATE = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?$|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?$"
    rf"|\d{{1,2}}[ -]{MONTH},?[ -]\d{{2,4}}( .*)?$|{MONTH} \d{{1,2}},? \d{{4}}( .*)?$",
    re.IGNORECASE,
)
PADDED = re.compile(r"[+-]?0\d+")  # 007 is a name, not a number
EXACT = 2.0**53  # whole numbers from here on are not all float64
DELIMITERS = (";", "\t", ",", "|")
EXCEL = re.compile(r"sep=.", re.IGNORECASE)  # a line above the names that gives the delimiter
LONGEST = 1 << 24  # bytes of a line, and bytes that are parsed together
FIELDS = 1 << 18  # that are converted together
HEADER_LINES = 20  # that names take beyond the first


def is_missing(text: str) -> bool:
    """Whether a field stands for no value.

    >>> is_missing(""), is_missing("NaN"), is_missing("0")
    (True, True, False)
    """
    return text.lower() in MISSING


def to_number(text: str) -> float:
    """The number in a field; NaN where it is missing."""
    if "_" in text:  # which Python takes for a thousands separator
        raise ValueError(text)
    return float("nan") if is_missing(text) else float(text)


def is_number(text: str) -> bool:
    """Whether a field is a number, or stands for none."""
    try:
        to_number(text)
    except ValueError:
        return False
    return True


def is_lossy(text: str) -> bool:
    """Whether a number in a field has more in it than float64 keeps: leading zeros, or digits.

    >>> is_lossy("007"), is_lossy("10000000000000000001"), is_lossy("7"), is_lossy("0.5")
    (True, True, False, False)
    """
    return is_number(text) and (PADDED.fullmatch(text) is not None or abs(to_number(text)) >= EXACT)


class WordColumns(NamedTuple):
    """Which columns of a table are words, whatever their fields look like."""

    always: Collection[str] = ()
    codes: Collection[str] = ()  # only where numbers would lose something of them


@dataclass(frozen=True)
class TextTable:
    """A table of text, whose columns have been looked through.

    Arguments:
        path: Of the file.
        layout: How its lines are parsed.
        columns: The names in its first line; None where that is a row like the others.
        rows: How many there are.
        types: What each column holds: ``int64``, ``float64``, ``bool``, ``date`` or ``string``.
        held: All of it, where it is small enough to be kept.
    """

    path: Path
    layout: "Layout"
    columns: Columns
    rows: int
    types: tuple[str, ...]
    held: pa.Table | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns, also where the file has none."""
        return self.columns or column_names(len(self.types))

    @property
    def header(self) -> list[list[str]]:
        """The names as they are written, if the file has them: none or one record."""
        return [] if self.columns is None else [self.layout.written]

    def with_words(self, words: WordColumns) -> "TextTable":
        """The same table, with some columns read as words."""
        numbers = {
            name: place
            for place, (name, dtype) in enumerate(zip(self.names, self.types, strict=True))
            if name in words.codes and dtype in ("int64", "float64")
        }
        lossy = {
            name
            for chunk in (self.chunks() if numbers else ())
            for name, place in numbers.items()
            if any(map(is_lossy, compute.unique(chunk.column(place)).to_pylist()))
        }
        types = (
            "string" if name in words.always or name in lossy else dtype
            for name, dtype in zip(self.names, self.types, strict=True)
        )
        return replace(self, types=tuple(types))

    def raw_chunks(self) -> Iterator[pa.Table]:
        """The fields of its rows as they are written, a bounded number of rows at a time."""
        skip = int(self.columns is not None)
        tables = _parse(self.path, self.layout) if self.held is None else iter([self.held])
        for table in tables:
            yield from _sliced(table.slice(skip))
            skip = 0

    def chunks(self) -> Iterator[pa.Table]:
        """The same without the space around each field."""
        return map(_stripped, self.raw_chunks())

    def series(self, left_out: Collection[str] = ()) -> Iterator[list[Series]]:
        """Its columns but for some, chunk by chunk."""
        kept = [i for i, name in enumerate(self.names) if name not in left_out]
        for chunk in self.chunks():
            yield [_series(self.names[i], self.types[i], chunk.column(i)) for i in kept]

    def gaps(self, names: Collection[str]) -> dict[str, int]:
        """How many values of some columns are missing."""
        counts = dict.fromkeys(names, 0)
        for chunk in self.chunks() if names else ():
            for name, values in zip(self.names, chunk.columns, strict=True):
                if name in counts:
                    counts[name] += _gaps(values).true_count
        return counts

    def number_dtype(self) -> np.dtype:
        """The type float64; columns that are no numbers are named."""
        labels = map(repr, self.columns) if self.columns else map(str, range(len(self.types)))
        text = [
            label
            for label, dtype in zip(labels, self.types, strict=True)
            if dtype not in ("int64", "float64")
        ]
        if text:
            raise not_numeric("load", text, str(self.path))
        return np.dtype(float)


def open_text(path: Path) -> TextTable:
    """Look through a file: the names and types of its columns, and the number of its rows."""
    layout = _layout(path)
    first = layout.first
    held: list[pa.Table] = []
    scans = [_Scan(name) for name in first]
    count = 0
    for table in _parse(path, layout):
        if path.stat().st_size <= on_disk.most_held():
            held.append(table)
        for chunk in map(_stripped, _sliced(table.slice(int(count == 0)))):
            for scan, values in zip(scans, chunk.columns, strict=True):
                scan.add(values)
        count += len(table)
    named = _names_columns(scans)
    if count == 1 and not all(map(is_number, first)):
        raise unusable("load", str(path), "hold rows", "only a line of names", "Write it again.")
    if not named:
        for scan in scans:
            scan.add(pa.chunked_array([[scan.first]], pa.string()))
    return TextTable(
        path,
        layout,
        tuple(first) if named else None,
        count - named,
        tuple(scan.dtype for scan in scans),
        pa.concat_tables(held) if held else None,
    )


def sequence_lines(path: Path) -> list[str] | None:
    """The lines of a file whose lines are words of one length; None of another file.

    In a .csv file, words of digits are numbers.
    """
    layout = _layout(path)
    first = layout.first[0]
    plain = path.suffix.lower() == ".csv" and (is_number(first) or " " in first)
    if len(layout.first) > 1 or plain:
        return None
    found: list[str] = []
    with _lines(path) as lines:
        for record in _records(lines, layout.delimiter):
            found.append(record[0])
            if len(record) > 1 or len(record[0]) != len(found[0]) or len(record[0]) < 2:
                return None
    return found


@dataclass(frozen=True)
class Layout:
    """How lines are parsed.

    Arguments:
        delimiter: Between fields; None for white space.
        skip: Empty lines before the first record.
        written: The fields of the first record as they are written.
        first: The same as names: without space, and without the mark of a comment before them, as
            numpy.savetxt writes it.
    """

    delimiter: str | None
    skip: int
    written: list[str]
    first: list[str]


def _layout(path: Path) -> Layout:
    with _lines(path) as lines:
        skip, head = next(((i, line) for i, line in enumerate(lines) if line.strip()), (0, ""))
        for line in islice(lines, HEADER_LINES):  # those that a name in quotes goes on in
            if head.count('"') % 2 == 0:
                break
            head += line
    if not head:
        raise unusable("load", str(path), "hold rows", "none", "Write it again.")
    plain = re.sub(r'"[^"]*("|$)', "", head)
    if EXCEL.fullmatch(plain.strip("\r\n")):
        got = f"{plain.strip()!r}, which is for Excel alone"
        allowed = "begin with names or numbers"
        raise unusable("load", str(path), allowed, got, "Take that line out.")
    by_default = "," if path.suffix.lower() == ".csv" else None
    delimiter = next((mark for mark in DELIMITERS if mark in plain), by_default)
    if delimiter is None:
        written = head.split()
        first = written[1:] if written[0] == "#" and len(written) > 1 else written
    else:
        lines = StringIO(head, newline="")
        written = next(csv.reader(lines, delimiter=delimiter))
        first = [text.strip() for text in written]
    return Layout(delimiter, skip, written, [first[0].lstrip("# ") or first[0], *first[1:]])


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[str]]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        yield _bounded(stream)


def _bounded(stream: TextIO) -> Iterator[str]:
    """The lines of a text; a line longer than any row is refused before all of it is read."""
    for line in iter(partial(stream.readline, LONGEST), ""):
        if len(line) >= LONGEST:
            allowed = f"have lines of less than {LONGEST >> 20} MiB"
            raise unusable("load", stream.name, allowed, "a longer one", "Is it a table?")
        yield line


def _records(lines: Iterable[str], delimiter: str | None) -> Iterator[list[str]]:
    """The fields of each line, without the space around them; lines of space are left out."""
    if delimiter is None:
        return (fields for line in lines if (fields := line.split()))
    return (
        [text.strip() for text in record]
        for record in csv.reader(lines, delimiter=delimiter)
        if record and not (len(record) == 1 and record[0].isspace())
    )


def _parse(path: Path, layout: Layout) -> Iterator[pa.Table]:
    """All lines as tables of text, the first line among them."""
    if layout.delimiter is None:
        yield from _split(path, layout)
        return
    width = len(layout.first)
    size = min(path.stat().st_size + 1, LONGEST)
    names = [f"f{i}" for i in range(width)]
    try:
        reader = arrow_csv.open_csv(
            path,
            arrow_csv.ReadOptions(
                use_threads=False, block_size=size, skip_rows=layout.skip, column_names=names
            ),
            arrow_csv.ParseOptions(
                delimiter=layout.delimiter,
                newlines_in_values=True,
                invalid_row_handler=_skip_space,
            ),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
        for batch in reader:
            table = pa.Table.from_batches([batch])
            if width == 1:  # a line of space is empty, one of two quotes has a missing value
                text = table.column(0)
                table = table.filter(
                    compute.or_(
                        compute.equal(text, ""),
                        compute.not_equal(compute.utf8_trim_whitespace(text), ""),
                    )
                )
            yield table
    except pa.ArrowInvalid as error:
        raise _fault(path, layout) from error


def _skip_space(row: arrow_csv.InvalidRow) -> str:
    return "skip" if row.actual_columns == 1 and row.text.isspace() else "error"


def _split(path: Path, layout: Layout) -> Iterator[pa.Table]:
    """The same of lines whose fields white space separates."""
    width = len(layout.first)
    with _lines(path) as lines:
        records = _records(lines, None)
        next(records)
        batch = [layout.first]
        while batch:
            if any(len(record) != width for record in batch):
                raise _fault(path, layout)
            columns = zip(*batch, strict=True)
            yield pa.table(
                [pa.array(column) for column in columns], [f"f{i}" for i in range(width)]
            )
            batch = list(islice(records, max(1, FIELDS // width)))


def _fault(path: Path, layout: Layout) -> DataError:
    """What is wrong with a file that cannot be parsed: a row of another length, or bytes that are
    no text, which raise their own error.
    """
    first = layout.first
    named = not all(map(is_number, first))
    with _lines(path) as lines:
        head = ""
        for row, record in enumerate(_records(lines, layout.delimiter), -int(named)):
            if row == -int(named):
                head = (layout.delimiter or " ").join(record)
            elif len(record) != len(first):
                remark = head.startswith("#") or (len(first) == 1 and row < 2)
                remedy = (
                    f"Take out its first line, {head[:60]!r}, if that is no row."
                    if remark
                    else "Give all rows the same number of values."
                )
                allowed = f"have {len(first)} values in each row"
                return unusable("load", str(path), allowed, f"{len(record)} in row {row}", remedy)
    return damaged(path)


def _sliced(table: pa.Table) -> Iterator[pa.Table]:
    size = max(1, FIELDS // max(1, table.num_columns))
    for start in range(0, len(table), size):
        yield table.slice(start, size)


def _stripped(table: pa.Table) -> pa.Table:
    columns = [compute.utf8_trim_whitespace(values) for values in table.columns]
    return pa.table(columns, table.column_names)


def _gaps(values: pa.ChunkedArray) -> pa.BooleanArray:
    gaps = compute.is_in(compute.utf8_lower(values), value_set=pa.array(MISSING))
    return gaps.combine_chunks()


def _without_gaps(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return compute.if_else(_gaps(values), pa.scalar(None, pa.string()), values)


def _numbers(values: pa.ChunkedArray) -> np.ndarray | None:
    """Fields as numbers, NaN where missing; None where one is no number."""
    try:
        return _without_gaps(values).cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:  # Python knows more ways to write a number
        encoded = values.combine_chunks().dictionary_encode()
        try:
            numbers = np.array([to_number(text) for text in encoded.dictionary.to_pylist()])
        except ValueError:
            return None
        return numbers[encoded.indices.to_numpy()]


@dataclass
class _Scan:
    """What the fields of a column below its first can be."""

    first: str
    number: bool = True
    whole: bool = True
    truth: bool = True
    date: bool = True
    filled: bool = False
    repeated: bool = False

    def add(self, values: pa.ChunkedArray) -> None:
        """Look at more of them."""
        self.repeated = self.repeated or bool(
            compute.any(compute.equal(values, self.first)).as_py()
        )
        numbers = _numbers(values) if self.number else None
        self.number = numbers is not None
        if numbers is not None:
            there = numbers[~np.isnan(numbers)]
            self.filled = self.filled or len(there) > 0
            self.whole = self.whole and is_whole(there)
        if self.truth or self.date:
            words = compute.unique(values.filter(compute.invert(_gaps(values)))).to_pylist()
            self.truth = self.truth and {word.lower() for word in words} <= TRUTH.keys()
            self.date = self.date and all(map(DATE.match, words))

    @property
    def dtype(self) -> str:
        """What all of them are."""
        if self.number:
            return "int64" if self.whole and self.filled else "float64"
        return "bool" if self.truth else "date" if self.date else "string"


def _names_columns(scans: Sequence[_Scan]) -> bool:
    """Whether the first line names columns: a column of numbers begins with a word, or no word of
    the line is seen again.
    """
    if all(is_number(scan.first) for scan in scans):
        return False
    below_word = any(scan.number and not is_number(scan.first) for scan in scans)
    return below_word or not any(scan.repeated for scan in scans)


def _series(name: str, dtype: str, values: pa.ChunkedArray) -> Series:
    """A chunk of a column of a known type."""
    if dtype in ("int64", "float64"):
        numbers = _numbers(values)
        assert numbers is not None
        return Series(name, numbers, dtype)
    words = _without_gaps(values)
    if dtype == "bool":
        truths = compute.equal(compute.utf8_lower(words), "true").cast(pa.float64())
        return Series(name, truths.to_numpy(), dtype)
    return word_series(name, words, dtype)
