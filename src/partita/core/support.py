r"""Where x lives. A support knows its width, its states where they are countable, and how to refuse
what lies outside.

Letters: D width, K states of one coordinate, L length.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from partita.core.arguments import check_count, check_finite, check_width
from partita.errors import InputError, invalid


class Support(ABC):
    """A set of vectors. ``discrete`` ones carry masses, the others densities; the two are never
    compared.
    """

    discrete: bool
    countable_sites: bool = False  # whether every coordinate has the same finite list of values

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of coordinates D."""

    @abstractmethod
    def outside(self, x: Tensor) -> Tensor:
        """True where a coordinate lies outside, ``(*, D) -> (*, D)``."""

    @abstractmethod
    def in_words(self) -> str:
        """What a coordinate may be, for error messages."""

    @property
    def bits(self) -> float:
        """log2 of the number of states; infinite where they cannot be counted."""
        return math.inf

    def values(self) -> Tensor:
        """The states of one coordinate, ``(K,)``."""
        raise InputError(
            f"{self}: the states cannot be listed; a discrete support such as Binary can."
        )

    def states(self, start: int, stop: int, like: Tensor) -> Tensor:
        """States number ``start`` to ``stop``, the first coordinate changing slowest, ``(stop -
        start, D)``.
        """
        return self.state_at(torch.arange(start, stop, device=like.device), like)

    def state_at(self, index: Tensor, like: Tensor) -> Tensor:
        """States by number, ``(n,) -> (n, D)``, with the device and dtype of ``like``."""
        values, digits = self.values().to(like), []
        # from the last coordinate to the first; powers of K would overflow on wide supports
        for _ in range(self.width):
            digits.append(index % len(values))
            index = index // len(values)
        return values[torch.stack(digits[::-1], -1)]

    def chunks(self, like: Tensor, size: int = 1 << 14) -> Iterator[Tensor]:
        """All states, ``size`` at a time, with the device and dtype of ``like``."""
        count = round(2**self.bits)
        for start in range(0, count, size):
            yield self.states(start, min(start + size, count), like)

    def check(
        self, x: Tensor, owner: str, parameter: str = "x", *, missing: bool = False
    ) -> Tensor:
        """Return ``x`` if it lies inside, else raise :class:`InputError` naming the first
        coordinate that does not.

        NaN lies outside, except where values may be ``missing``.
        """
        check_width(owner, parameter, x, self.width, str(self))
        if not missing:
            check_finite(owner, parameter, x)
        outside = self.outside(x) & ~x.isnan() if missing else self.outside(x)
        if outside.any():
            at = outside.nonzero()[0].tolist()
            where = f"{x[tuple(at)].item():g} in column {at[-1]}"
            raise invalid(owner, parameter, f"hold {self.in_words()}", where, self.remedy())
        return x

    def remedy(self) -> str:
        """What to do with data that lie outside."""
        return "Choose the support that fits the data."


@dataclass(frozen=True)
class _Vector(Support):
    """A support whose coordinates are all of one kind."""

    D: int

    def __post_init__(self) -> None:
        check_count(type(self).__name__, "D", self.D)

    @property
    def width(self) -> int:
        return self.D


@dataclass(frozen=True)
class _Listed(_Vector):
    """A support whose coordinates all have the same finite list of values."""

    discrete = True
    countable_sites = True

    @property
    def bits(self) -> float:
        return self.D * math.log2(len(self.values()))


@dataclass(frozen=True)
class Binary(_Listed):
    """{0, 1}^D.

    >>> Binary(2).states(0, 4, torch.zeros(())).tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """

    def values(self) -> Tensor:
        return torch.tensor([0.0, 1.0])

    def outside(self, x: Tensor) -> Tensor:
        return (x != 0) & (x != 1)

    def in_words(self) -> str:
        return "only 0 and 1"

    def remedy(self) -> str:
        return (
            "Cut the values at a threshold, or use a model of real values, such as an RBM with "
            "gaussian visible units."
        )


@dataclass(frozen=True)
class Spin(_Listed):
    """{-1, +1}^D."""

    def values(self) -> Tensor:
        return torch.tensor([-1.0, 1.0])

    def outside(self, x: Tensor) -> Tensor:
        return (x != -1) & (x != 1)

    def in_words(self) -> str:
        return "only -1 and +1"

    def remedy(self) -> str:
        return "Map 0 and 1 to spins with 2 x - 1."


@dataclass(frozen=True)
class Categorical(_Listed):
    """{0, ..., K-1}^D."""

    K: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("Categorical", "K", self.K)

    def values(self) -> Tensor:
        return torch.arange(self.K, dtype=torch.get_default_dtype())

    def outside(self, x: Tensor) -> Tensor:
        return (x < 0) | (x >= self.K) | _broken(x)

    def in_words(self) -> str:
        return f"whole numbers from 0 to {self.K - 1}"


@dataclass(frozen=True)
class Count(_Vector):
    """{0, 1, 2, ...}^D."""

    discrete = True

    def outside(self, x: Tensor) -> Tensor:
        return (x < 0) | _broken(x)

    def in_words(self) -> str:
        return "counts 0, 1, 2, ..."


@dataclass(frozen=True)
class Real(_Vector):
    """R^D; its probabilities are densities."""

    discrete = False

    def outside(self, x: Tensor) -> Tensor:
        return ~torch.isfinite(x)

    def in_words(self) -> str:
        return "finite numbers"


@dataclass(frozen=True)
class Interval(_Vector):
    """(low, high)^D; either end may be infinite.

    >>> Interval(2, 0.0, math.inf).in_words()
    'numbers between 0 and inf'
    """

    low: float
    high: float
    discrete = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            got = f"{self.low} and {self.high}"
            raise invalid("Interval", "low and high", "be numbers, low below high", got)

    def outside(self, x: Tensor) -> Tensor:
        return ~torch.isfinite(x) | (x < self.low) | (x > self.high)

    def in_words(self) -> str:
        return f"numbers between {self.low:g} and {self.high:g}"


@dataclass(frozen=True)
class Sequence(Support):
    """L steps of one element support, flattened step by step."""

    element: Support
    L: int

    def __post_init__(self) -> None:
        check_count("Sequence", "L", self.L)

    @property
    def discrete(self) -> bool:  # type: ignore[override]
        return self.element.discrete

    @property
    def width(self) -> int:
        return self.L * self.element.width

    @property
    def bits(self) -> float:
        return self.L * self.element.bits

    @property
    def countable_sites(self) -> bool:  # type: ignore[override]
        return self.element.countable_sites

    def values(self) -> Tensor:
        return self.element.values()

    def state_at(self, index: Tensor, like: Tensor) -> Tensor:
        return Product((self.element,) * self.L).state_at(index, like)

    def outside(self, x: Tensor) -> Tensor:
        return self.element.outside(x.unflatten(-1, (self.L, -1))).flatten(-2)

    def in_words(self) -> str:
        return self.element.in_words()


@dataclass(frozen=True)
class Product(Support):
    """Blocks of columns, each with its own support: a mixed table."""

    parts: tuple[Support, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        check_count("Product", "the number of parts", len(self.parts))

    @property
    def discrete(self) -> bool:  # type: ignore[override]
        return all(part.discrete for part in self.parts)

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts)

    @property
    def bits(self) -> float:
        return sum(part.bits for part in self.parts)

    def state_at(self, index: Tensor, like: Tensor) -> Tensor:
        columns: list[Tensor] = []
        for part in reversed(self.parts):
            count = round(2**part.bits)
            columns.insert(0, part.state_at(index % count, like))
            index = index // count
        return torch.cat(columns, -1)

    def outside(self, x: Tensor) -> Tensor:
        blocks = x.split([part.width for part in self.parts], -1)
        return torch.cat(
            [part.outside(block) for part, block in zip(self.parts, blocks, strict=True)], -1
        )

    def in_words(self) -> str:
        return "; ".join(f"{part.in_words()} in {part.width} columns" for part in self.parts)


def _broken(x: Tensor) -> Tensor:
    """True where a number is not whole."""
    return x != x.round() if x.is_floating_point() else torch.zeros_like(x, dtype=torch.bool)
