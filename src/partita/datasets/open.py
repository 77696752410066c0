"""Sequences by name or path: text, streams of numbers, and archives of many sequences, split into
parts that follow one another.
"""

import csv
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from partita.core.arguments import check_choice, check_count
from partita.datasets import folder
from partita.datasets.named import Dataset, load
from partita.datasets.sequences import Sequences
from partita.datasets.text import TOKENS, Alphabet, read_tokens
from partita.errors import Argument, DataError, unusable
from partita.tables.arrays import bad_file
from partita.tables.files import ENDINGS, TABLES, ColumnKinds, check_reachable, read
from partita.tables.npy import headers, read_arrays
from partita.tables.on_disk import OnDisk
from partita.tables.rows import Binarize

PARTS = ("train", "valid", "test")
SHARES = (0.8, 0.9)  # of a stream: where training ends, and validation
OVERLAP = 8  # windows to learn from begin this many times as often as they are long
PACKED = "polyphonic_music/"  # piano rolls, eight keys to a byte
KEYS = 88
ARCHIVE, BYTES = {"train", "train_lengths"}, {"bytes"}  # arrays of an .npz that holds sequences
SERIES = (".npy", *TABLES)  # files whose numbers are one series where they are one column


@dataclass(frozen=True)
class Reading:
    """How sequences are read, as JSON: what a saved run needs to read more of them in the same way.

    Arguments:
        length: Of a window; None takes sequences whole.
        tokens: ``"characters"`` or ``"bytes"``, of text.
        encoding: Of text.
        symbols: The vocabulary, once it is known.
    """

    length: int | None = 256
    tokens: str = "characters"
    encoding: str = "utf-8"
    symbols: str | None = None

    def __post_init__(self) -> None:
        check_choice("load", "tokens", self.tokens, TOKENS)
        if self.length is not None:
            check_count("load", "length", self.length)
        known = self.symbols
        if known is not None and not (
            isinstance(known, str) and len(known) > 1 and [*known] == sorted(set(known))
        ):
            allowed = "be the characters of a vocabulary, each once and in order"
            raise unusable("load", "symbols", allowed, repr(known))

    @property
    def alphabet(self) -> Alphabet | None:
        """What tokens stand for; None where it is not known yet."""
        if self.tokens == "bytes":
            return Alphabet()
        return None if self.symbols is None else Alphabet(self.symbols)

    def as_json(self) -> dict[str, str | int | None]:
        return asdict(self)


def open_dataset(
    source: str,
    *,
    binarize: Binarize | str = "auto",
    words: bool = False,
    missing: bool = False,
    columns: ColumnKinds = None,
    reading: Mapping[str, Any] | None = None,
) -> Dataset:
    """Tables as rows; with a ``reading``, the settings of :class:`Reading`, streams and text as
    sequences too.
    """
    if reading is None:
        return load(source, binarize=binarize, words=words, missing=missing, columns=columns)
    if not reading.keys() <= Reading.__dataclass_fields__.keys():
        allowed = f"say {', '.join(Reading.__dataclass_fields__)}"
        raise unusable("load", "reading", allowed, ", ".join(map(repr, reading)))
    return load_sequences(
        source, Reading(**reading), binarize=binarize, words=words, columns=columns
    )


def load_sequences(
    source: str,
    reading: Reading,
    *,
    binarize: Binarize | str = "auto",
    words: bool = False,
    columns: ColumnKinds = None,
) -> Dataset:
    """Data for models of sequences, with how they were read; tables come as rows.

    Text and other streams, such as one column of numbers in the order of time, are cut into
    windows: the first 80 % to learn from, 10 % to validate, 10 % to test. Windows to learn from
    overlap; the others do not, and leave no step out.
    """
    path = _path(source)
    if path is None:
        return load(source, binarize=binarize, words=words, columns=columns)
    ending = path.suffix.lower()
    if ending == ".txt" or ending not in ENDINGS:
        tokens, alphabet = read_tokens(path, reading.tokens, reading.encoding, reading.alphabet)
        return _stream(source, tokens, replace(reading, symbols=alphabet.symbols), alphabet.size)
    if ending == ".npz":
        found = headers(path)
        if found.keys() >= ARCHIVE:
            return _archive(source, path, reading)
        if found.keys() == BYTES:
            shape, dtype = found["bytes"]
            if len(shape) == 1 and dtype == np.uint8:
                stream = read_arrays(path, BYTES)["bytes"]
                return _stream(source, stream, replace(reading, tokens="bytes", symbols=None), 256)
    if ending in SERIES and reading.length is not None and not columns:
        series = _series(path, words)
        if series is not None:
            return _stream(source, series, replace(reading, symbols=None))
    return load(source, binarize=binarize, words=words, columns=columns)


def holds_sequences(source: str) -> bool:
    """Whether a source is sequences to every family: text that is no table, bytes, or an archive of
    sequences with their lengths.

    A .txt file is a table where its lines are numbers, words in columns, or letters of an
    alignment.
    """
    path = _path(source)
    if path is None or not path.is_file():
        return False
    if path.suffix.lower() == ".txt":
        try:
            found = read(path, words=True)
        except (DataError, csv.Error):
            return path.stat().st_size > 0
        return len(found.train) < 2 or (found.train.shape[1] == 1 and bool(found.labels))
    if path.suffix.lower() != ".npz":
        return False
    arrays = headers(path)
    return arrays.keys() >= ARCHIVE or arrays.keys() == BYTES


def _path(source: str) -> Path | None:
    check_reachable(source)
    return Path(source) if Path(source).is_file() or Path(source).suffix else folder.path_of(source)


def _series(path: Path, words: bool = False) -> np.ndarray | None:
    """The numbers of a file that holds but one column of them; None for a table."""
    found = read(path, words=words)
    table = found.train
    if found.labels is not None or found.weight is not None:
        return None
    if table.ndim != 1 and table.shape[1:] != (1,):
        return None
    return table if isinstance(table, OnDisk) else table.reshape(-1)


def _stream(name: str, stream: np.ndarray, reading: Reading, states: int | None = None) -> Dataset:
    """Windows of three parts of a stream that follow one another."""
    if reading.length is None:
        allowed = "be given for text, which is one long sequence"
        remedy = ("As in ", Argument("length", value=256), ".")
        raise unusable("load", "length", allowed, "none", remedy)
    length, total = reading.length, len(stream)
    first, second = (int(share * total) for share in SHARES)
    if first < length:
        allowed = f"have at least {length} steps to learn from"
        raise unusable("load", name, allowed, first, "Give a longer one, or a smaller length.")

    def windows(start: int, stop: int, stride: int = length) -> Any:
        """Sequences, which are read as rows are; None where there is no step."""
        if start == stop:
            return None
        part = stream.between(start, stop) if isinstance(stream, OnDisk) else stream[start:stop]
        rows = Sequences.windows(part, length, stride=stride, owner="load")
        rows.states = states
        return rows

    return Dataset(
        name,
        windows(0, first, max(1, length // OVERLAP)),
        windows(first, second),
        windows(second, total),
        note="windows of one stream",
        reading=reading.as_json(),
        undivided=windows(0, total),
    )


def _archive(name: str, path: Path, reading: Reading) -> Dataset:
    """Many sequences of different lengths in each part, whole."""
    held = read_arrays(path, [f"{part}{ending}" for part in PARTS for ending in ("", "_lengths")])
    arrays = {
        part: (held[part], held[f"{part}_lengths"])
        for part in PARTS
        if {part, f"{part}_lengths"} <= held.keys()
    }
    for part, (x, lengths) in arrays.items():
        if x.ndim == 0 or lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not len(lengths):
            allowed = f"hold steps in {part} and a length of each sequence in {part}_lengths"
            raise bad_file(path, allowed, "other shapes")
    first = arrays["train"][0]
    packed = name.startswith(PACKED) and first.dtype == np.uint8 and first.ndim == 2
    longest = max(int(lengths.max()) for _, lengths in arrays.values())
    rows: Any = {  # sequences, which are read as rows are
        part: Sequences.parted(
            np.unpackbits(x, axis=1)[:, :KEYS] if packed else x,
            lengths,
            longest=longest,
            owner="load",
        )
        for part, (x, lengths) in arrays.items()
    }
    made = Reading(None, reading.tokens, reading.encoding).as_json()
    return Dataset(name, **rows, note="whole sequences", reading=made)
