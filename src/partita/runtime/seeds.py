r"""Randomness as a function of numbers: generators made from seeds, and orders and choices of very
many things, of which each place is computed on demand: a list of all would be as large as a narrow
table.

A shuffle is a Feistel network of R rounds on pairs of half-words, walked until it falls below n; a
choice takes one of every group.

.. math:: (l, r) \leftarrow \bigl(r,\; l \oplus f_k(r)\bigr), \; k = 1, \ldots, R
          \qquad\text{and}\qquad c_g = g m + \bigl(f(g) \bmod m\bigr), \; g = 0, 1, \ldots

Letters: n things, m in a group, g number of a group, f a mixing function with a key.
"""

from collections.abc import Iterator
from typing import Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

ROUNDS = 10
# odd, near 2^64 over the golden ratio: keys that follow one another come to lie far apart
GOLDEN = 0x9E3779B97F4A7C15

Places: TypeAlias = "ArrayLike | slice"


def seed(generator: torch.Generator) -> int:
    """A fresh seed for what keeps its own state: a numba kernel, a scikit-learn model, a child
    generator.
    """
    return int(torch.randint(2**31 - 1, (), generator=generator, device=generator.device))


def keyed(key: int, *path: int) -> torch.Generator:
    """A CPU generator that depends only on its numbers, so that any part of a run can be drawn
    again by itself.
    """
    mixed = key
    for number in path:
        # int() because NumPy's integers overflow
        mixed = (mixed * 6364136223846793005 + int(number) + 1442695040888963407) % 2**63
    return torch.Generator().manual_seed(mixed)


class Choice(Protocol):
    """Numbers by their places: an array, or one of the classes below."""

    def __len__(self) -> int: ...

    def __getitem__(self, places: np.ndarray, /) -> ArrayLike: ...


class Shuffled:
    """A random order of ``n`` things, indexed by a slice or an array of places.

    >>> order = Shuffled(5, key=7)
    >>> sorted(order[:].tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, n: int, key: int, device: torch.device | None = None) -> None:
        self.n, self.device = n, device
        self._half = max(1, (max(1, n - 1).bit_length() + 1) // 2)
        self._keys = mixed(np.arange(1, ROUNDS + 1, dtype=np.uint64), key)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, places: Places) -> Tensor:
        if isinstance(places, slice):
            places = np.arange(*places.indices(self.n))
        found = self._stepped(np.asarray(places).astype(np.uint64))
        while (beyond := found >= self.n).any():
            found[beyond] = self._stepped(found[beyond])
        return torch.from_numpy(found.astype(np.int64)).to(self.device)

    def split(self, size: int) -> Iterator[Tensor]:
        """Chunks of it, as :func:`torch.split` gives them."""
        return (self[start : start + size] for start in range(0, self.n, size))

    def cpu(self) -> "Shuffled":
        """The same order, with its numbers in the memory of the processor."""
        self.device = None
        return self

    def _stepped(self, x: np.ndarray) -> np.ndarray:
        shift, mask = np.uint64(self._half), np.uint64((1 << self._half) - 1)
        left, right = x >> shift, x & mask
        for key in self._keys:
            left, right = right, left ^ (mixed(right, int(key)) & mask)
        return left << shift | right


class OneIn:
    """Of every ``m`` things in a row one, at a place drawn for each group; or the others, with
    those that fill no group.

    >>> one, others = OneIn(12, 5, key=3), OneIn(12, 5, key=3, others=True)
    >>> len(one), len(others), sorted([*one[[0, 1]], *others[range(10)]]) == list(range(12))
    (2, 10, True)
    """

    def __init__(self, n: int, m: int, key: int, others: bool = False) -> None:
        self.n, self.m, self.key, self.others = n, m, key, others

    def __len__(self) -> int:
        groups = self.n // self.m
        return self.n - groups if self.others else groups

    def __getitem__(self, places: ArrayLike) -> np.ndarray:
        places = np.asarray(places)
        if not self.others:
            return places * self.m + self._drawn(places)
        group, place = places // (self.m - 1), places % (self.m - 1)
        left = group * self.m + place + (place >= self._drawn(group))
        return np.where(group < self.n // self.m, left, places + self.n // self.m)

    def _drawn(self, group: np.ndarray) -> np.ndarray:
        return (mixed(group.astype(np.uint64), self.key) % np.uint64(self.m)).astype(np.int64)


class Spaced:
    """Where windows begin, one every ``stride`` steps; or, with the steps ``total`` that there are,
    how long each of at most ``length`` is.

    >>> Spaced(3, 4)[np.arange(3)].tolist(), Spaced(3, 4, total=10, length=4)[np.arange(3)].tolist()
    ([0, 4, 8], [4, 4, 2])
    """

    def __init__(self, n: int, stride: int, total: int | None = None, length: int = 0) -> None:
        self.n, self.stride, self.total, self.length = n, stride, total, length

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, places: ArrayLike) -> np.ndarray:
        starts = np.asarray(places) * self.stride
        return starts if self.total is None else np.minimum(self.length, self.total - starts)

    def sum(self) -> int:
        """Of all lengths, of which only the last may be short."""
        return (self.n - 1) * self.length + int(self[self.n - 1])


class Within:
    """A choice among the things of another choice."""

    def __init__(self, outer: Choice, inner: Choice) -> None:
        self.outer, self.inner = outer, inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, places: ArrayLike) -> np.ndarray:
        return np.asarray(self.outer[np.asarray(self.inner[np.asarray(places)])])


def stretches(n: int, size: int) -> Iterator[Tensor]:
    """The numbers from 0 to n - 1, ``size`` at a time and never all of them.

    >>> [part.tolist() for part in stretches(5, 2)]
    [[0, 1], [2, 3], [4]]
    """
    return (torch.arange(start, min(start + size, n)) for start in range(0, n, size))


def row_numbers(index: ArrayLike, n: int) -> np.ndarray:
    """Numbers from 0 to n - 1, from numbers, which may count from the end, or from a mask.

    >>> row_numbers([2, -1], 5).tolist(), row_numbers([True, False, True], 3).tolist()
    ([2, 4], [0, 2])
    """
    index = np.asarray(index)
    if index.dtype == bool or (index.size and (index.min() < -n or index.max() >= n)):
        return np.arange(n)[index]  # which says what is wrong
    return np.where(index < 0, index + n, index).astype(np.int64, copy=False)


def mixed(x: np.ndarray, key: int) -> np.ndarray:
    """Well-mixed bits of numbers and a key, ``uint64``: the finalizer of SplitMix64 (Steele, Lea
    and Flood 2014).
    """
    x = (x + np.uint64(key % (1 << 64))) * np.uint64(GOLDEN)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
