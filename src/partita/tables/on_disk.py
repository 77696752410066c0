"""A table that stays on disk: rows are read when they are needed, so that neither memory nor
address space need hold it.

A memory map would cost address space for the whole file, which containers and ``ulimit -v`` count;
this costs the rows in hand.
"""

import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import IO, BinaryIO, NoReturn, cast
from weakref import finalize

import numpy as np
from numpy.typing import DTypeLike

from partita.errors import DataError, unusable
from partita.runtime import memory_limit

IN_MEMORY = 1 << 30  # bytes up to which a table is held in memory, and ...
# ... the part of what this process may have that it takes at most: reading it and working on it
# take as much again and more
SHARE = 8
TURNED = 1 << 21  # numbers that are turned from columns to rows together
# what NumPy raises where bytes are no header
NO_HEADER = (RecursionError, MemoryError, OverflowError, TypeError, SyntaxError, TokenError)
CLOSE = 16  # rows apart up to which two are read in one go
# bytes, about, up to which that is done: of rows that lie apart far more are read than needed
SPAN = 1 << 24


RowKey = slice | int | Sequence[int] | np.ndarray


class OnDisk:
    """Rows of fixed width, one after the other in a file; indexed like an array, by a range or by
    numbers of rows.

    Arguments:
        file: A path, or a descriptor that stays open as long as the table.
        shape: (N, D).
        dtype: Of the numbers.
        offset: Bytes before the first row.
        form: Axes of a row that has several, such as the (28, 28) of an image, laid out flat here.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
    ...     np.save(file.name, np.arange(6).reshape(3, 2))
    ...     OnDisk.npy(Path(file.name))[[2, 0]].tolist()
    [[4, 5], [0, 1]]
    """

    ndim = 2

    def __init__(
        self,
        file: Path | int,
        shape: tuple[int, int],
        dtype: np.dtype,
        offset: int = 0,
        form: tuple[int, ...] | None = None,
    ) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.offset = offset
        self.form = form
        self._handle = os.open(file, os.O_RDONLY) if isinstance(file, Path) else os.dup(file)
        finalize(self, os.close, self._handle)

    @classmethod
    def npy(cls, path: Path) -> "OnDisk | None":
        """The table of an .npy file; None where its rows do not lie one after the other, or are no
        rows.
        """
        with path.open("rb") as file:
            shape, by_columns, dtype = read_header(file, os.path.getsize(path))
            offset = file.tell()
        if len(shape) < 2 or by_columns or dtype.hasobject:
            return None
        form = shape[1:] if len(shape) > 2 else None
        return cls(path, (shape[0], math.prod(shape[1:])), dtype, offset, form)

    @property
    def size(self) -> int:
        """Numbers in the whole table."""
        return self.shape[0] * self.shape[1]

    @property
    def itemsize(self) -> int:
        """Bytes of one number."""
        return self.dtype.itemsize

    @property
    def _row(self) -> int:
        return self.shape[1] * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: RowKey | tuple[RowKey, RowKey]) -> np.ndarray:
        if isinstance(key, tuple):
            rows, columns = key
            return self[rows][..., columns]
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self._between(start, stop) if step == 1 else self[np.arange(start, stop, step)]
        rows = np.asarray(key)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        rows = np.where(rows < 0, rows + len(self), rows)
        return self._gathered(rows.reshape(-1)).reshape(*rows.shape, self.shape[1])

    def between(self, start: int, stop: int) -> "OnDisk":
        """A range of rows as a table of its own, on the same file."""
        shape = (stop - start, self.shape[1])
        return OnDisk(self._handle, shape, self.dtype, self.offset + start * self._row)

    def _between(self, start: int, stop: int) -> np.ndarray:
        out = np.empty((max(0, stop - start), self.shape[1]), self.dtype)
        view = memoryview(out.reshape(-1).view(np.uint8).data)
        place = self.offset + start * self._row
        while len(view):
            count = os.preadv(self._handle, [view], place)
            if count == 0:
                raise OSError("a table on disk became shorter while it was read")
            view = view[count:]
            place += count
        return out

    def _gathered(self, rows: np.ndarray) -> np.ndarray:
        if len(rows) and (np.diff(rows) == 1).all():
            return self._between(int(rows[0]), int(rows[-1]) + 1)
        out = np.empty((len(rows), self.shape[1]), self.dtype)
        order = np.argsort(rows, kind="stable")
        for run in _runs(rows[order], max(1, SPAN // (CLOSE * max(1, self._row)))):
            first, last = int(rows[order[run.start]]), int(rows[order[run.stop - 1]])
            out[order[run]] = self._between(first, last + 1)[rows[order[run]] - first]
        return out

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def __getstate__(self) -> NoReturn:
        raise TypeError("a table on disk is not pickled: open its file again")

    def __copy__(self) -> "OnDisk":
        return self


def most_held() -> int:
    """Bytes up to which a table is held in memory; fewer in a small container, or below a limit on
    address space.
    """
    return min(IN_MEMORY, memory_limit.machine() // SHARE)


def from_columns(path: Path) -> np.ndarray | None:
    """The table of an .npy file whose columns lie one after the other, as :func:`gather_rows` makes
    it; None of another one.
    """
    with path.open("rb") as file:
        shape, by_columns, dtype = read_header(file, os.path.getsize(path))
        # rows of nothing can be as many as a header likes
        if len(shape) != 2 or not by_columns or dtype.hasobject or not shape[1]:
            return None
        pieces = _by_rows(file, (shape[0], shape[1]), dtype, file.tell())
        return gather_rows(pieces, (shape[0], shape[1]), dtype)


def _by_rows(
    file: BinaryIO, shape: tuple[int, int], dtype: np.dtype, offset: int
) -> Iterator[np.ndarray]:
    n, width = shape
    step = max(1, TURNED // max(1, width))
    for start in range(0, n, step):
        part = np.empty((min(step, n - start), width), dtype)
        for j in range(width):
            file.seek(offset + (j * n + start) * dtype.itemsize)
            part[:, j] = np.fromfile(file, dtype, len(part))
        yield part


def gather_rows(
    pieces: Iterable[np.ndarray], shape: tuple[int, int], dtype: DTypeLike
) -> np.ndarray:
    """Pieces of a table one below the other: an array up to :func:`most_held` bytes, else an
    :class:`OnDisk` in a temporary file, which is indexed like one.

    >>> gather_rows(iter([np.zeros((2, 1)), np.ones((1, 1))]), (3, 1), np.uint8).tolist()
    [[0], [0], [1]]
    """
    dtype = np.dtype(dtype)
    if shape[0] * shape[1] * dtype.itemsize <= most_held():
        return _joined(pieces, np.empty(shape, dtype))
    # a file of a few bytes can stand for any
    if shape[0] * shape[1] * dtype.itemsize > shutil.disk_usage(tempfile.gettempdir()).free:
        raise _no_room("less than it needs")
    # its space is freed with the last that reads it
    with tempfile.TemporaryFile(buffering=0) as file:
        for piece in pieces:
            _write(file, piece.astype(dtype, copy=False))
        return cast("np.ndarray", OnDisk(file.fileno(), shape, dtype))


def _joined(pieces: Iterable[np.ndarray], out: np.ndarray) -> np.ndarray:
    """Pieces copied to their place one after the other, so that they are never all there beside the
    whole.
    """
    start = 0
    for piece in pieces:
        place = out[start : start + len(piece)]
        place[:] = piece[: len(place)]  # a file may hold more rows than it says
        start += len(place)
    return out[:start]


def _write(file: IO[bytes], piece: np.ndarray) -> None:
    left = memoryview(piece.tobytes())
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise _no_room(f"none ({error.strerror})") from None


def _no_room(got: str) -> DataError:
    allowed = f"find room in {tempfile.gettempdir()}"
    remedy = "Set TMPDIR to a folder that has some."
    return unusable("load", "a table that is larger than memory", allowed, got, remedy)


def read_header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether it goes by columns, and dtype of an .npy of ``size`` bytes; one that says more
    than the bytes can hold is refused.
    """
    version = np.lib.format.read_magic(file)
    try:
        if version == (1, 0):
            shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, by_columns, dtype = np.lib.format.read_array_header_2_0(file)
    except NO_HEADER as error:
        raise ValueError("the header is damaged") from error
    if dtype.hasobject:
        return shape, by_columns, dtype
    counts = all(type(length) is int and length >= 0 for length in shape)
    if not counts or size < file.tell() + math.prod(shape) * max(1, dtype.itemsize):
        raise ValueError("the file is shorter than its header says")
    return shape, by_columns, dtype


def _runs(rows: np.ndarray, most: int) -> Iterator[slice]:
    """Stretches of sorted row numbers, at most so many, that lie close enough to be read in
    one go.
    """
    edges = np.flatnonzero(np.diff(rows) > CLOSE) + 1
    for start, stop in zip([0, *edges], [*edges, len(rows)], strict=True):
        for first in range(start, stop, most):
            yield slice(first, min(first + most, stop))
