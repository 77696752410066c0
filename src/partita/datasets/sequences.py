r"""Sequences to learn from: windows of one long stream, or many of different lengths, read from
memory or from disk.

.. math:: \text{row } i = (s_{a_i},\, s_{a_i + 1},\, \ldots,\, s_{a_i + l_i - 1}), \qquad l_i \le L

Letters: N rows, L longest row, l_i length and a_i start of one, T steps of the stream s, E numbers
in a step.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from partita.core.arguments import check_count
from partita.core.protocols import Batch
from partita.core.rng import MOST_LISTED
from partita.errors import invalid
from partita.runtime.seeds import Spaced, row_numbers
from partita.tables.arrays import NUMERIC, aligned, check_finite_table
from partita.tables.on_disk import OnDisk
from partita.tables.rows import Weight, check_weight
from partita.tables.schema import Labels

ROWS_AT_ONCE = 256

Stream = ArrayLike | Tensor | OnDisk


class Sequences:
    """Parts of a stream as rows; it implements :class:`partita.core.protocols.Data`.

    A batch is padded with zeros and says its lengths where they differ. :meth:`tensor`, which has
    no place for lengths, has NaN from the end of a row on.

    Arguments:
        stream: (T,) or (T, E), of any real dtype; a memory map, or a table on disk, stays there.
        starts, lengths: a and l of each row.
        longest: L; the longest of the lengths if not given.
        owner: The caller's name in error messages.

    >>> rows = Sequences.of([[1, 2, 3], [4]])
    >>> batch = rows.batch(torch.tensor([0, 1]), generator=torch.Generator())
    >>> batch.x.tolist(), batch.lengths.tolist()
    ([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]], [3, 1])
    """

    # as Rows has them
    binarize: None = None
    columns: None = None
    schema: None = None
    labels: Labels = {}
    states: int | None = None  # K, where steps are tokens

    def __init__(
        self,
        stream: Stream,
        starts: ArrayLike | Spaced,
        lengths: ArrayLike | Spaced,
        *,
        longest: int | None = None,
        owner: str = "Sequences",
    ) -> None:
        self.stream = _check_stream(stream, owner)
        # listed, or computed where there are very many
        self.starts: np.ndarray | Spaced
        self.lengths: np.ndarray | Spaced
        if isinstance(starts, Spaced) and isinstance(lengths, Spaced):
            self.starts, self.lengths = starts, lengths
            self.longest = lengths.length if longest is None else longest
        else:
            self.starts = np.asarray(starts, dtype=np.int64)
            self.lengths = np.asarray(lengths, dtype=np.int64)
            self.longest = _check_parts(self.starts, self.lengths, len(self.stream), longest, owner)
        self.weight: Tensor | None = None  # one number per row, with mean one
        self.dtype = torch.float64 if self.stream.dtype == np.float64 else torch.float32

    @classmethod
    def windows(
        cls,
        stream: Stream,
        length: int,
        *,
        stride: int | None = None,
        owner: str = "Sequences.windows",
    ) -> "Sequences":
        """Windows of a stream, one every ``stride`` steps (``length`` if not given); the last may
        be shorter: no step is left out.

        >>> Sequences.windows(np.arange(10), 4).lengths.tolist()
        [4, 4, 2]
        """
        check_count(owner, "length", length)
        stride = length if stride is None else check_count(owner, "stride", stride)
        T = len(_check_stream(stream, owner))
        count = len(range(0, max(1, T - length + stride), stride))
        if count > MOST_LISTED:
            lengths = Spaced(count, stride, T, length)
            return cls(stream, Spaced(count, stride), lengths, longest=length, owner=owner)
        starts = np.arange(count) * stride
        return cls(stream, starts, np.minimum(length, T - starts), longest=length, owner=owner)

    @classmethod
    def of(cls, parts: Sequence[ArrayLike]) -> "Sequences":
        """Sequences of different lengths, (l,) or (l, E) each."""
        arrays, owner = list(map(np.asarray, parts)), "Sequences.of"
        check_count(owner, "the number of sequences", len(arrays))
        return cls.parted(np.concatenate(arrays), list(map(len, arrays)), owner=owner)

    @classmethod
    def parted(
        cls,
        stream: Stream,
        lengths: ArrayLike,
        *,
        longest: int | None = None,
        owner: str = "Sequences.parted",
    ) -> "Sequences":
        """Sequences that lie one after the other in a stream and fill it."""
        lengths = np.asarray(lengths, dtype=np.int64)
        T = len(cast("np.ndarray", stream))
        if lengths.sum() != T:
            allowed = f"add up to the {T} steps of the stream"
            raise invalid(owner, "lengths", allowed, int(lengths.sum()))
        return cls(stream, np.cumsum(lengths) - lengths, lengths, longest=longest, owner=owner)

    @property
    def size(self) -> int:
        """E."""
        return self.stream.shape[1]

    @property
    def width(self) -> int:
        """L E."""
        return self.longest * self.size

    @property
    def steps(self) -> int:
        """Steps in all rows."""
        return int(self.lengths.sum())

    def numbers_per_row(self) -> float:
        """How many numbers a row has, on average: what bits per dimension are counted by."""
        return self.steps * self.size / len(self)

    def __len__(self) -> int:
        return len(self.starts)

    def __repr__(self) -> str:
        size = f" of {self.size}" if self.size > 1 else ""
        return f"Sequences({len(self)} of at most {self.longest} steps{size})"

    def batch(self, index: Tensor, *, generator: torch.Generator) -> Batch:
        """The rows numbered ``index``, on the generator's device; lengths only where some row ends
        early.
        """
        rows = index.cpu().numpy()
        lengths = torch.from_numpy(self.lengths[rows])
        x = aligned(torch.from_numpy(self._read(rows, 0.0))).to(generator.device)
        weight = None if self.weight is None else self.weight[index.cpu()].to(x)
        full = bool((lengths == self.longest).all())
        return Batch(
            x=x, weight=weight, lengths=None if full else lengths.to(generator.device), row=index
        )

    def tensor(self, generator: torch.Generator | None = None) -> Tensor:
        """All rows, (N, L E), with NaN from the end of a row on."""
        x = aligned(torch.from_numpy(self._read(np.arange(len(self)), np.nan)))
        return x if generator is None else x.to(generator.device)

    def mean(self) -> Tensor:
        """Mean of every place over the rows that reach it, in float64, (L E,)."""
        return self._average(lambda x: x)

    def variance(self) -> Tensor:
        """Variance of every place over the rows that reach it, in float64, (L E,)."""
        mean = self.mean().numpy()
        return self._average(lambda x: (x - mean) ** 2)

    def take(self, index: Tensor | np.ndarray | Sequence[int]) -> "Sequences":
        """A view of some rows, by number or by a mask; the stream is not copied."""
        chosen = row_numbers(index, len(self))
        view = copy(self)
        view.starts = self.starts[chosen]
        view.lengths = self.lengths[chosen]
        if self.weight is not None:
            view.weight = check_weight(self.weight[chosen], len(chosen), "Sequences.take")
        return view

    def weighted(self, weight: Weight, owner: str = "Sequences.weighted") -> "Sequences":
        """The same rows with other weights."""
        view = copy(self)
        view.weight = check_weight(weight, len(self), owner)
        return view

    def _read(self, rows: np.ndarray, beyond: float) -> np.ndarray:
        offset = np.arange(self.longest)
        there = offset < self.lengths[rows][:, None]
        place = np.where(there, self.starts[rows][:, None] + offset, 0)
        x = self.stream[place].astype(
            np.float64 if self.dtype == torch.float64 else np.float32, copy=False
        )
        if not there.all():
            x[~there] = beyond
        return x.reshape(len(rows), -1)

    def _average(self, of: Callable[[np.ndarray], np.ndarray]) -> Tensor:
        """Weighted means of a function of what is there."""
        total, mass = np.zeros(self.width), np.zeros(self.width)
        for start in range(0, len(self), ROWS_AT_ONCE):
            index = np.arange(start, min(start + ROWS_AT_ONCE, len(self)))
            weight = np.ones(len(index)) if self.weight is None else self.weight[index].numpy()
            x = of(self._read(index, np.nan).astype(np.float64))
            total += weight @ np.nan_to_num(x)
            mass += weight @ ~np.isnan(x)
        return torch.from_numpy(total / np.where(mass > 0, mass, 1.0))


def _check_stream(stream: Stream, owner: str) -> np.ndarray:
    if isinstance(stream, OnDisk):
        array = cast("np.ndarray", stream)  # indexed like one, and stays where it is
    elif isinstance(stream, Tensor):
        array = stream.detach().cpu().numpy()
    else:
        array = np.asanyarray(stream)
    array = array[:, None] if array.ndim == 1 else array
    if array.dtype.kind not in NUMERIC or array.ndim != 2 or 0 in array.shape:
        allowed = "be numbers of shape (T,) or (T, E) with at least one step"
        got = f"{array.dtype} of shape {array.shape}"
        remedy = "Give one number, or one row of numbers, for each step."
        raise invalid(owner, "stream", allowed, got, remedy)
    check_finite_table(array, None, owner)
    return array


def _check_parts(
    starts: np.ndarray, lengths: np.ndarray, T: int, longest: int | None, owner: str
) -> int:
    both = "starts and lengths"
    if starts.shape != lengths.shape or starts.ndim != 1 or not len(starts):
        allowed = "be one number for each of at least one row"
        raise invalid(owner, both, allowed, f"{starts.shape} and {lengths.shape}")
    if lengths.min() < 1:
        got = f"{lengths.min()} in row {lengths.argmin()}"
        raise invalid(owner, "lengths", "be at least 1", got, "Leave empty sequences out.")
    end = int((starts + lengths).max())
    if starts.min() < 0 or end > T:
        raise invalid(owner, both, f"stay within the {T} steps of the stream", end)
    longest = int(lengths.max()) if longest is None else longest
    if lengths.max() > longest:
        got = f"{lengths.max()} in row {lengths.argmax()}"
        remedy = (
            "Cut long sequences into windows, or declare a larger maximum: nothing is cut in "
            "silence."
        )
        raise invalid(owner, "lengths", f"be at most {longest}", got, remedy)
    return longest
