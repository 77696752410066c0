"""Tables of text, .csv and .txt: what their fields stand for, and their rows chunk by chunk.

Arrow parses the files; every field stays text until all of its column is known. Python's own reader
finds the row or the byte at fault where Arrow refuses a file, and splits lines at white space.
"""

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator
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

from partita.errors import DataError
from partita.tables import on_disk
from partita.tables.arrays import bad_file, damaged
from partita.tables.arrow import TableFile, compute
from partita.tables.schema import is_whole

MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
TRUTH = {"true": 1.0, "false": 0.0}
PADDED = re.compile(r"[+-]?0\d+")  # 007 is a name, not a number
EXACT = 2.0**53  # whole numbers from here on are not all float64
NUMBERS = ("int64", "float64")  # types of columns
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
class TextTable(TableFile):
    """A table of text, whose columns have been looked through.

    Its types are ``int64``, ``float64``, ``bool`` or ``string``. It has names where its first line
    is no row like the others.

    Arguments:
        header: The first line as it is written, if it has names: none or one record.
        delimiter: Between fields.
        fields: Its rows as they are written, a bounded number of rows at a time.
    """

    header: list[list[str]]
    delimiter: str
    fields: Callable[[], Iterator[pa.Table]]

    def with_words(self, words: WordColumns) -> "TextTable":
        """The same table, with some columns read as words."""
        numbers = {
            name: place
            for place, (name, dtype) in enumerate(zip(self.names, self.types, strict=True))
            if name in words.codes and dtype in NUMBERS
        }
        lossy = {
            name
            for chunk in (map(stripped, self.fields()) if numbers else ())
            for name, place in numbers.items()
            if any(map(is_lossy, compute.unique(chunk.column(place)).to_pylist()))
        }
        types = (
            "string" if name in words.always or name in lossy else dtype
            for name, dtype in zip(self.names, self.types, strict=True)
        )
        return replace(self, types=tuple(types))

    def chunks(self) -> Iterator[pa.Table]:
        for chunk in map(stripped, self.fields()):
            columns = list(map(_typed, self.types, chunk.columns))
            yield pa.table(columns, self.names)

    def number_types(self) -> list[np.dtype | None]:
        return [np.dtype(float) if dtype in NUMBERS else None for dtype in self.types]


def open_text(path: Path) -> TextTable:
    """Look through a file: the names and types of its columns, and the number of its rows."""
    layout = _layout(path)
    first = layout.first
    parse = partial(_parse, path, layout)
    if path.stat().st_size <= on_disk.most_held():
        parse = partial(iter, list(parse()))
    scans = [_Scan() for _ in first]
    count = 1
    repeated = False  # a word of the first line
    for chunk in map(stripped, _sliced(parse(), 1)):
        for word, scan, values in zip(first, scans, chunk.columns, strict=True):
            scan.add(values)
            repeated = repeated or bool(compute.any(compute.equal(values, word)).as_py())
        count += len(chunk)
    words = [not is_number(text) for text in first]
    # a column of numbers begins with a word, or no word of the line is seen again
    below_word = any(scan.number and word for scan, word in zip(scans, words, strict=True))
    named = any(words) and (below_word or not repeated)
    if count == 1 and named:
        raise bad_file(path, "hold rows", "only a line of names", "Write it again.")
    if not named:
        for text, scan in zip(first, scans, strict=True):
            scan.add(pa.chunked_array([[text]], pa.string()))
    return TextTable(
        path,
        tuple(first) if named else None,
        tuple(scan.dtype for scan in scans),
        count - named,
        [layout.written] if named else [],
        layout.delimiter or ",",
        lambda: _sliced(parse(), int(named)),
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
class TextLayout:
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


def _layout(path: Path) -> TextLayout:
    with _lines(path) as lines:
        skip, head = next(((i, line) for i, line in enumerate(lines) if line.strip()), (0, ""))
        for line in islice(lines, HEADER_LINES):  # those that a name in quotes goes on in
            if head.count('"') % 2 == 0:
                break
            head += line
    if not head:
        raise bad_file(path, "hold rows", "none", "Write it again.")
    plain = re.sub(r'"[^"]*("|$)', "", head)
    if EXCEL.fullmatch(plain.strip("\r\n")):
        got = f"{plain.strip()!r}, which is for Excel alone"
        allowed = "begin with names or numbers"
        raise bad_file(path, allowed, got, "Take that line out.")
    by_default = "," if path.suffix.lower() == ".csv" else None
    delimiter = next((mark for mark in DELIMITERS if mark in plain), by_default)
    if delimiter is None:
        written = head.split()
        first = written[1:] if written[0] == "#" and len(written) > 1 else written
    else:
        lines = StringIO(head, newline="")
        written = next(csv.reader(lines, delimiter=delimiter))
        first = [text.strip() for text in written]
    return TextLayout(delimiter, skip, written, [first[0].lstrip("# ") or first[0], *first[1:]])


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[str]]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        yield _bounded(stream)


def _bounded(stream: TextIO) -> Iterator[str]:
    """The lines of a text; a line longer than any row is refused before all of it is read."""
    for line in iter(partial(stream.readline, LONGEST), ""):
        if len(line) >= LONGEST:
            allowed = f"have lines of less than {LONGEST >> 20} MiB"
            raise bad_file(stream.name, allowed, "a longer one", "Is it a table?")
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


def _parse(path: Path, layout: TextLayout) -> Iterator[pa.Table]:
    """All lines as tables of text, the first line among them."""
    if layout.delimiter is None:
        yield from _split(path, layout)
        return
    width = len(layout.first)
    size = min(path.stat().st_size + 1, LONGEST)
    names = [f"f{i}" for i in range(width)]
    options = arrow_csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True)
    reading = arrow_csv.ReadOptions(
        use_threads=False, block_size=size, skip_rows=layout.skip, column_names=names
    )
    converting = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    done = 0
    try:
        for batch in arrow_csv.open_csv(path, reading, options, converting):
            done += batch.num_rows
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
        return
    except pa.ArrowInvalid:
        pass
    yield from _by_lines(path, layout, done)


def _by_lines(path: Path, layout: TextLayout, done: int) -> Iterator[pa.Table]:
    """The rows after the first ``done`` of a file in which lines of white space, which are no
    rows, stop Arrow's reader. (Its handler of such lines is called from a thread that may outlive
    the interpreter.)
    """
    assert layout.delimiter is not None
    width = len(layout.first)
    with _lines(path) as lines:
        records = (
            record
            for record in csv.reader(lines, delimiter=layout.delimiter)
            if record and not (len(record) == 1 and record[0].isspace())
        )
        rest = islice(records, done, None)
        while batch := list(islice(rest, max(1, FIELDS // width))):
            if any(len(record) != width for record in batch):
                raise _fault(path, layout)
            columns = zip(*batch, strict=True)
            yield pa.table(
                [pa.array(column, pa.string()) for column in columns],
                [f"f{i}" for i in range(width)],
            )


def _split(path: Path, layout: TextLayout) -> Iterator[pa.Table]:
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


def _fault(path: Path, layout: TextLayout) -> DataError:
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
                return bad_file(path, allowed, f"{len(record)} in row {row}", remedy)
    return damaged(path)


def _sliced(blocks: Iterable[pa.Table], skip: int) -> Iterator[pa.Table]:
    """Blocks of rows but for the first few, in chunks of about ``FIELDS`` fields."""
    for block in blocks:
        size = max(1, FIELDS // max(1, block.num_columns))
        for start in range(skip, len(block), size):
            yield block.slice(start, size)
        skip = 0


def stripped(table: pa.Table) -> pa.Table:
    """Fields without the space around them."""
    columns = [compute.utf8_trim_whitespace(values) for values in table.columns]
    return pa.table(columns, table.column_names)


def gaps(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which fields stand for no value."""
    return compute.is_in(compute.utf8_lower(values), value_set=pa.array(MISSING))


def _without_gaps(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return compute.if_else(gaps(values), pa.scalar(None, pa.string()), values)


def _typed(dtype: str, values: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Fields of a known type, null where missing."""
    if dtype in NUMBERS:
        numbers = _numbers(values)
        assert numbers is not None
        return numbers
    words = _without_gaps(values)
    return compute.equal(compute.utf8_lower(words), "true") if dtype == "bool" else words


def _numbers(values: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array | None:
    """Fields as numbers, null where missing; None where one is no number."""
    try:
        return _without_gaps(values).cast(pa.float64())
    except pa.ArrowInvalid:  # Python knows more ways to write a number
        encoded = values.combine_chunks().dictionary_encode()
        try:
            numbers = [to_number(text) for text in encoded.dictionary.to_pylist()]
        except ValueError:
            return None
        return pa.array(numbers, pa.float64(), from_pandas=True).take(encoded.indices)


@dataclass
class _Scan:
    """What the fields of a column can be."""

    number: bool = True
    whole: bool = True
    truth: bool = True
    filled: bool = False

    def add(self, values: pa.ChunkedArray) -> None:
        """Look at more of them."""
        numbers = _numbers(values) if self.number else None
        self.number = numbers is not None
        if numbers is not None:
            there = np.asarray(numbers.drop_null())
            self.filled = self.filled or len(there) > 0
            self.whole = self.whole and is_whole(there)
        if self.truth:
            words = compute.unique(_without_gaps(values)).drop_null().to_pylist()
            self.truth = {word.lower() for word in words} <= TRUTH.keys()

    @property
    def dtype(self) -> str:
        """What all of them are."""
        if self.number:
            return "int64" if self.whole and self.filled else "float64"
        return "bool" if self.truth else "string"
