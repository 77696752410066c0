"""Files of numbers: .npz, .npy (memory-mapped), .csv, .txt, .parquet, .arrow and .feather, with column names where the file has them.

A .txt file is read like a .csv file of numbers that are parted by white space, commas, semicolons or tabs. Nothing is unpickled.
"""

import csv
import math
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partita.core import memory
from partita.core.errors import DataError, InputError
from partita.core.files import unreachable
from partita.data import on_disk
from partita.data.delimited import holds_sequences, read_delimited, read_words
from partita.data.labels import Labels
from partita.data.mixed import TABLES, read_table
from partita.data.on_disk import OnDisk, read_header
from partita.data.schema import Asked, Schema
from partita.data.sequences import FASTA, read_fasta
from partita.data.tables import NUMERIC, Columns

MOST_DEFLATED = 1032  # bytes that one byte of deflated ones can stand for
UNREADABLE = (ValueError, EOFError, OSError, KeyError, OverflowError, RuntimeError, zipfile.BadZipFile, zlib.error)  # by NumPy and zip
GARBLED = (UnicodeDecodeError, OSError, csv.Error)  # text that is no text
SPLITS = (("train", "valid", "test"), ("x_train", "x_valid", "x_test"))  # the two ways to name the arrays of a split file


@dataclass(frozen=True)
class Splits:
    """What a file holds: one array, or the arrays of a split; the first axis is the row."""

    train: np.ndarray
    valid: np.ndarray | None = None
    test: np.ndarray | None = None
    columns: Columns = None
    weight: np.ndarray | None = None
    labels: Labels | None = None  # what numbers that stand for words mean
    schema: Schema | None = None  # what the columns of a table hold


@memory.named("load")
def read(path: str | Path, array: str | None = None, *, words: bool = False, asked: Asked | Schema | None = None) -> Splits:
    """The numbers in a file; ``array`` picks one array of an .npz. Missing values of a table (.csv, .parquet, .arrow) arrive as NaN.

    With ``words``, columns of a table or a .txt may hold words, and lines of letters are sequences. ``asked`` says what columns of a
    table hold, in place of what their values say (:mod:`partita.data.schema`).
    """
    check_reachable(path)
    path = Path(path)
    _check_file(path)
    if array is not None and path.suffix.lower() != ".npz":
        raise DataError(f"load: only an .npz file holds named arrays; got {array!r} with {path}. Leave out ':{array}'.")
    if path.suffix.lower() == ".npz":
        return _read_npz(path, array)
    if words and (path.suffix.lower() == ".txt" or (path.suffix.lower() == ".csv" and _sequences(path))):
        return _read_words(path)
    if path.suffix.lower() in TABLES:
        return _read_table(path, words, asked)
    if asked and not isinstance(asked, Schema):
        raise DataError(f"load: kinds of columns can be given for {', '.join(TABLES)} files; got some for {path}. Leave them out.")
    return READERS[path.suffix.lower()](path)


def headers(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of each array in an .npz, from the headers alone: nothing is decompressed beyond them."""
    found, there = {}, os.path.getsize(path)
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.file_size > MOST_DEFLATED * min(member.compress_size, there):
                    raise damaged(path)
                with archive.open(member) as stream:
                    shape, _, dtype = read_header(stream, member.file_size)
                found[member.filename.removesuffix(".npy")] = (shape, dtype)
    except UNREADABLE as error:
        raise damaged(path) from error
    return found


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Arrays of an .npz by name, those of them that it has."""
    found, names = headers(path), list(names)
    _check_room(path, [found[name] for name in names if name in found])
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in names if name in archive}
    except UNREADABLE as error:
        raise (_objects(path) if "Object arrays" in str(error) else damaged(path)) from error


def choose(found: dict[str, tuple[tuple[int, ...], np.dtype]]) -> dict[str, str]:
    """Which array is train, valid and test; empty if the names do not tell.

    >>> pixels = ((3, 2), np.dtype("uint8"))
    >>> choose({"x_train": pixels, "x_test": pixels, "y_test": ((3,), np.dtype(int))})
    {'train': 'x_train', 'test': 'x_test'}
    """
    for names in SPLITS:
        if names[0] in found:
            return {split: name for split, name in zip(SPLITS[0], names, strict=True) if name in found}
    numeric = [name for name, (shape, dtype) in found.items() if shape and dtype.kind in NUMERIC]
    if "x" in found or len(numeric) == 1:
        return {"train": "x" if "x" in found else numeric[0]}
    return {}


def damaged(path: Path) -> DataError:
    """The error for a file that does not hold what its ending says."""
    return DataError(f"load: {path} must be a whole {path.suffix} file; got one that is cut short or damaged. Copy or download it again.")


def check_reachable(name: str | Path) -> None:
    """Refuse what is no path, and one that the system cannot even look for."""
    if not isinstance(name, str | Path):
        raise DataError(f"load: a file must be given by its path; got {type(name).__name__}. For values use partita.data.load.")
    if why := unreachable(name):
        raise DataError(f"load: {str(name)!r} must be a path or a name; got one that cannot be looked for ({why}).")


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise DataError(f"load: {path} must be a file; got a folder. Name a file in it, or point PARTITA_DATA at it and use its names.")
    if not path.exists():
        raise DataError(f"load: {path} must be a file; got a path where there is none. Check the spelling and the working directory.")
    if path.suffix.lower() not in ENDINGS:
        came = path.suffix or "no ending"
        raise DataError(f"load: {path} must end in one of {' '.join(ENDINGS)}; got {came}. Convert it to one of these.")
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError(f"load: {path} must be a file; got a pipe or a device. Write its contents to a file.")
    if path.stat().st_size == 0:
        raise DataError(f"load: {path} must hold rows; got an empty file. Write it again.")
    if path.suffix.lower() in (".txt", *FASTA):
        memory.check_room("load", str(path), path.stat().st_size, "Convert it to .csv, .parquet or .npy, which stay on disk.")


def _read_npy(path: Path) -> Splits:
    try:
        table: Any = OnDisk.npy(path)  # which also looks whether the file holds what it says
        if path.stat().st_size > on_disk.IN_MEMORY:
            table = on_disk.from_columns(path) if table is None else table
            return Splits(np.lib.format.open_memmap(path, mode="r") if table is None else table)
        return Splits(np.lib.format.open_memmap(path, mode="r"))
    except DataError:
        raise
    except UNREADABLE as error:
        raise (_objects(path) if "Python objects" in str(error) else damaged(path)) from error


def _read_npz(path: Path, array: str | None) -> Splits:
    try:
        found = headers(path)
        names = {"train": array} if array in found else {} if array else choose(found)
        if not names:
            raise _which(path, array, list(found))
        _check_room(path, [found[name] for name in (*names.values(), "columns", "weights", "alphabet") if name in found])
        with np.load(path, allow_pickle=False) as archive:
            arrays = {split: archive[name] for split, name in names.items()}
            x = arrays["train"]
            return Splits(**arrays, columns=_columns(archive, x), weight=_weight(archive, names, x), labels=_alphabet(archive, x))
    except DataError:
        raise
    except UNREADABLE as error:
        raise (_objects(path) if "Object arrays" in str(error) else damaged(path)) from error


def _check_room(path: Path, arrays: Iterable[tuple[tuple[int, ...], np.dtype]]) -> None:
    """Refuse arrays that memory does not hold: a thousand bytes of them can be deflated to one."""
    needed = sum(math.prod(shape) * dtype.itemsize for shape, dtype in arrays)
    memory.check_room("load", f"what {path} holds", needed, "Save the array as .npy, which stays on disk.")


def _columns(archive: np.lib.npyio.NpzFile, x: np.ndarray) -> Columns:
    names = archive.get("columns")
    if names is None or names.ndim != 1 or x.shape[1:] != names.shape:
        return None
    "".join(map(str, names)).encode()  # half a character is no part of a name
    return tuple(map(str, names))


def _alphabet(archive: np.lib.npyio.NpzFile, x: np.ndarray) -> Labels | None:
    """What whole numbers of sequences stand for, where the file has an ``alphabet`` of as many letters."""
    alphabet = archive.get("alphabet")
    if alphabet is None or alphabet.shape != () or x.dtype.kind not in "iu" or x.size == 0 or x.max() >= len(str(alphabet)):
        return None
    str(alphabet).encode()
    return {float(code): letter for code, letter in enumerate(str(alphabet))}


def _weight(archive: np.lib.npyio.NpzFile, names: dict[str, str], x: np.ndarray) -> np.ndarray | None:
    weight = archive.get("weights") if names == {"train": "x"} else None
    return weight if weight is not None and weight.shape == x.shape[:1] else None


def _which(path: Path, array: str | None, found: list[str]) -> DataError:
    came = "no choice among them" if array is None else repr(array)
    example = f"{path.stem}:{found[0]}" if found else ""
    return DataError(f"load: {path} needs one of its arrays {', '.join(found)}; got {came}. Choose one after a colon, as in {example}.")


def _objects(path: Path) -> DataError:
    remedy = "Save plain numbers with numpy.save or numpy.savez."
    return DataError(f"load: {path} must hold numbers; got Python objects, which could run code and are never read. {remedy}")


def _tabular(reader: Callable[[Path], tuple[np.ndarray, Columns]]) -> Callable[[Path], Splits]:
    def read_table(path: Path) -> Splits:
        try:
            table, columns = reader(path)
        except InputError as error:
            raise DataError(str(error)) from error
        except GARBLED as error:
            raise damaged(path) from error
        return Splits(table, columns=columns)

    return read_table


def _sequences(path: Path) -> bool:
    try:
        return holds_sequences(path)
    except GARBLED as error:
        raise damaged(path) from error


def _read_table(path: Path, words: bool, asked: Asked | Schema | None) -> Splits:
    try:
        table, columns, schema = read_table(path, words, asked)
    except InputError as error:
        raise DataError(str(error)) from error
    except GARBLED as error:
        raise damaged(path) from error
    return Splits(table, columns=columns, labels=None if schema is None else schema.labels or None, schema=schema)


def _read_words(path: Path) -> Splits:
    try:
        table, columns, labels = read_words(path)
    except GARBLED as error:
        raise damaged(path) from error
    return Splits(table, columns=columns, labels=labels)


def _read_fasta(path: Path) -> Splits:
    try:
        table, labels = read_fasta(path)
    except GARBLED as error:
        raise damaged(path) from error
    return Splits(table, labels=labels)


READERS: dict[str, Callable[[Path], Splits]] = {
    ".npy": _read_npy,
    ".txt": _tabular(read_delimited),
    **dict.fromkeys(FASTA, _read_fasta),
}
ENDINGS = (".npz", ".npy", *TABLES, ".txt", *FASTA)
