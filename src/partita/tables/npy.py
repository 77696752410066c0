"""Arrays in .npy and .npz files, which NumPy writes: looked at before they are read, for they may
be damaged, vast or no numbers.

Nothing is unpickled.
"""

import math
import os
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from partita.errors import DataError
from partita.runtime import memory_limit
from partita.tables import on_disk
from partita.tables.arrays import NUMERIC, Columns
from partita.tables.contents import Splits, damaged
from partita.tables.labels import Labels
from partita.tables.on_disk import OnDisk, read_header

MOST_DEFLATED = 1032  # bytes that one byte of deflated ones can stand for
# by NumPy and zip
UNREADABLE = (
    ValueError,
    EOFError,
    OSError,
    KeyError,
    OverflowError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
# the two ways to name the arrays of a split file
SPLITS = (("train", "valid", "test"), ("x_train", "x_valid", "x_test"))


def read_npy(path: Path) -> Splits:
    """An array, which stays on disk until its rows are asked for."""
    try:
        table: Any = OnDisk.npy(path)  # which also looks whether the file holds what it says
        if path.stat().st_size > on_disk.most_held():
            table = on_disk.from_columns(path) if table is None else table
            return Splits(np.lib.format.open_memmap(path, mode="r") if table is None else table)
        return Splits(np.lib.format.open_memmap(path, mode="r"))
    except DataError:
        raise
    except UNREADABLE as error:
        raise (_objects(path) if "Python objects" in str(error) else damaged(path)) from error


def read_npz(path: Path, array: str | None) -> Splits:
    """One array by name, or those whose names tell what they are, with names of columns, weights
    and letters beside them.
    """
    try:
        found = headers(path)
        names = {"train": array} if array in found else {} if array else choose(found)
        if not names:
            raise _which(path, array, list(found))
        _check_room(
            path,
            [
                found[name]
                for name in (*names.values(), "columns", "weights", "alphabet")
                if name in found
            ],
        )
        with np.load(path, allow_pickle=False) as archive:
            arrays = {split: archive[name] for split, name in names.items()}
            x = arrays["train"]
            return Splits(
                **arrays,
                columns=_columns(archive, x),
                weight=_weight(archive, names, x),
                labels=_alphabet(archive, x),
            )
    except DataError:
        raise
    except UNREADABLE as error:
        raise (_objects(path) if "Object arrays" in str(error) else damaged(path)) from error


def headers(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of each array in an .npz, from the headers alone: nothing is decompressed
    beyond them.
    """
    found, there = {}, os.path.getsize(path)
    if not path.is_file():  # nobody may ever write to a pipe
        raise damaged(path)
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
            return {
                split: name for split, name in zip(SPLITS[0], names, strict=True) if name in found
            }
    numeric = [name for name, (shape, dtype) in found.items() if shape and dtype.kind in NUMERIC]
    if "x" in found or len(numeric) == 1:
        return {"train": "x" if "x" in found else numeric[0]}
    return {}


def _check_room(path: Path, arrays: Iterable[tuple[tuple[int, ...], np.dtype]]) -> None:
    """Refuse arrays that memory does not hold: a thousand bytes of them can be deflated to one."""
    needed = sum(math.prod(shape) * dtype.itemsize for shape, dtype in arrays)
    memory_limit.check_room(
        "load", f"what {path} holds", needed, "Save the array as .npy, which stays on disk."
    )


def _columns(archive: np.lib.npyio.NpzFile, x: np.ndarray) -> Columns:
    names = archive.get("columns")
    if names is None or names.ndim != 1 or x.shape[1:] != names.shape:
        return None
    "".join(map(str, names)).encode()  # half a character is no part of a name
    return tuple(map(str, names))


def _alphabet(archive: np.lib.npyio.NpzFile, x: np.ndarray) -> Labels | None:
    """What whole numbers of sequences stand for, where the file has an ``alphabet`` of as many
    letters.
    """
    alphabet = archive.get("alphabet")
    if (
        alphabet is None
        or alphabet.shape != ()
        or x.dtype.kind not in "iu"
        or x.size == 0
        or x.max() >= len(str(alphabet))
    ):
        return None
    str(alphabet).encode()
    return {float(code): letter for code, letter in enumerate(str(alphabet))}


def _weight(
    archive: np.lib.npyio.NpzFile, names: dict[str, str], x: np.ndarray
) -> np.ndarray | None:
    weight = archive.get("weights") if names == {"train": "x"} else None
    return weight if weight is not None and weight.shape == x.shape[:1] else None


def _which(path: Path, array: str | None, found: list[str]) -> DataError:
    came = "no choice among them" if array is None else repr(array)
    example = f"{path.stem}:{found[0]}" if found else ""
    return DataError(
        f"load: {path} needs one of its arrays {', '.join(found)}; got {came}. Choose one after a "
        f"colon, as in {example}."
    )


def _objects(path: Path) -> DataError:
    remedy = "Save plain numbers with numpy.save or numpy.savez."
    return DataError(
        f"load: {path} must hold numbers; got Python objects, which could run code and are never "
        f"read. {remedy}"
    )
