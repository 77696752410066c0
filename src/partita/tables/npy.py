"""Arrays in .npy and .npz files, which NumPy writes: looked at before they are read, for they may
be damaged, vast or no numbers.

Nothing is unpickled.
"""

import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np

from partita.errors import DataError
from partita.runtime import memory_limit
from partita.tables import on_disk
from partita.tables.arrays import NUMERIC, Columns, Splits, bad_file, damaged
from partita.tables.on_disk import OnDisk, read_header
from partita.tables.schema import Labels

MOST_DEFLATED = 1032  # bytes that one byte of deflated ones can stand for
# what NumPy and zip raise
DAMAGE = (ValueError, EOFError, OSError, KeyError, OverflowError, RuntimeError)
UNREADABLE = (*DAMAGE, zipfile.BadZipFile, zlib.error)
BESIDE = ("columns", "weights", "alphabet")  # arrays that tell more about others
# the two ways to name the arrays of a split file
SPLITS = (("train", "valid", "test"), ("x_train", "x_valid", "x_test"))

Header = tuple[tuple[int, ...], np.dtype]  # the shape and dtype of an array


def read_npy(path: Path) -> Splits:
    """An array, which stays on disk until its rows are read."""
    with _readable(path):
        table = OnDisk.npy(path)  # which also looks whether the file holds what it says
        if path.stat().st_size > on_disk.most_held():
            found = on_disk.from_columns(path) if table is None else cast("np.ndarray", table)
            if found is not None:
                return Splits(found)
        return Splits(np.lib.format.open_memmap(path, mode="r"))


def read_npz(path: Path, array: str | None) -> Splits:
    """One array by name, or those whose names tell what they are, with names of columns, weights
    and letters beside them.
    """
    found = headers(path)
    named = {"train": array} if array in found else {}
    names = name_splits(found) if array is None else named
    if not names:
        raise _which(path, array, list(found))
    held = read_arrays(path, [*names.values(), *BESIDE])
    x, valid, test = (held.get(names.get(split, "")) for split in SPLITS[0])
    assert x is not None
    with _readable(path):
        return Splits(
            x,
            valid,
            test,
            columns=_columns(held.get("columns"), x),
            weight=_weight(held.get("weights"), names, x),
            labels=_alphabet(held.get("alphabet"), x),
        )


def headers(path: Path) -> dict[str, Header]:
    """Shape and dtype of each array in an .npz, from the headers alone: nothing is decompressed
    beyond them.
    """
    if not path.is_file():  # a pipe may never be written to
        raise damaged(path)
    size = path.stat().st_size
    found: dict[str, Header] = {}
    with _readable(path), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.file_size > MOST_DEFLATED * min(member.compress_size, size):
                raise damaged(path)
            with archive.open(member) as stream:
                shape, _, dtype = read_header(stream, member.file_size)
            found[member.filename.removesuffix(".npy")] = (shape, dtype)
    return found


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Arrays of an .npz by name, those of them that it has."""
    found = headers(path)
    there = [name for name in names if name in found]
    # a thousand bytes can be deflated to one
    needed = sum(math.prod(found[name][0]) * found[name][1].itemsize for name in there)
    remedy = "Save the array as .npy, which stays on disk."
    memory_limit.check_room("load", f"what {path} holds", needed, remedy)
    with _readable(path), np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in there}


def name_splits(found: dict[str, Header]) -> dict[str, str]:
    """Which array is train, valid and test; empty if the names do not tell.

    >>> pixels = ((3, 2), np.dtype("uint8"))
    >>> name_splits({"x_train": pixels, "x_test": pixels, "y_test": ((3,), np.dtype(int))})
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


def _columns(names: np.ndarray | None, x: np.ndarray) -> Columns:
    if names is None or names.ndim != 1 or x.shape[1:] != names.shape:
        return None
    "".join(map(str, names)).encode()  # half a character is no part of a name
    return tuple(map(str, names))


def _alphabet(alphabet: np.ndarray | None, x: np.ndarray) -> Labels | None:
    """What whole numbers of sequences stand for, where the file has as many letters."""
    if alphabet is None or alphabet.shape != () or x.dtype.kind not in "iu" or x.size == 0:
        return None
    letters = str(alphabet)
    letters.encode()
    if x.max() >= len(letters):
        return None
    return {float(code): letter for code, letter in enumerate(letters)}


def _weight(weight: np.ndarray | None, names: dict[str, str], x: np.ndarray) -> np.ndarray | None:
    fits = weight is not None and names == {"train": "x"} and weight.shape == x.shape[:1]
    return weight if fits else None


def _which(path: Path, array: str | None, found: list[str]) -> DataError:
    if not found:
        return DataError(f"load: {path} holds no arrays. Save one in it, as np.savez(path, x=x).")
    got = "no choice among them" if array is None else repr(array)
    example = f"{path.stem}:{found[0]}"
    return DataError(
        f"load: {path} needs one of its arrays {', '.join(found)}; got {got}. Choose one after a "
        f"colon, as in {example}."
    )


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Inside it, a file that is damaged or holds Python objects is named."""
    try:
        yield
    except DataError:
        raise
    except UNREADABLE as error:
        if "Object arrays" not in str(error) and "Python objects" not in str(error):
            raise damaged(path) from error
        got = "Python objects, which could run code and are never read"
        remedy = "Save plain numbers with numpy.save or numpy.savez."
        raise bad_file(path, "hold numbers", got, remedy) from error
