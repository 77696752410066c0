"""Limits of memory: a size beyond it is refused before it is allocated, and a failed allocation
becomes one sentence.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from math import inf, prod
from numbers import Integral
from pathlib import Path
from threading import local
from typing import TypeVar

from torch import Tensor
from torch.overrides import TorchFunctionMode

from partita.errors import PartitaError, TooLarge

T = TypeVar("T")

SENTENCE = (
    "this needs more memory than there is. Ask for fewer hidden units, chains or rows at once."
)
TORCH_MESSAGES = (
    "not enough memory",
    "allocate memory",
    "Storage size calculation overflowed",
    "Overflow when unpacking long",
)
# functions whose result is as large as their first argument
COPIES = {"clone", "contiguous", "to", "double", "float"}
LIKE = COPIES | {f"{name}_like" for name in ("empty", "zeros", "ones", "rand", "randn", "full")}
# whose sizes are listed, or given one by one
BY_SIZE = {"rand", "randn", "repeat"} | {
    prefix + name for prefix in ("", "new_") for name in ("empty", "zeros", "ones")
}
BY_LIST = {"full", "randint", "new_full"}  # whose sizes are listed, beside other numbers
BY_PRODUCT = {"eye", "tril_indices", "triu_indices"}  # of their first numbers
BY_LENGTH = {"arange", "linspace", "randperm"}
# where a container's limit is stated
CONTAINERS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
GIB = 1 << 30
# numbers that the smallest tensor counts as, so that endlessly many of them are refused too
LEAST = 64


class Bounded(TorchFunctionMode):
    """Refuses, inside its block, a new tensor of more than ``most`` numbers before it is allocated.

    Arguments:
        most: Numbers of each tensor, or of all that are made, ``together``.
        refusal: The sentence of the error.

    >>> import torch
    >>> with Bounded(1000, "a table must be small; got a large one."):
    ...     torch.zeros(10**6, 10**6)
    Traceback (most recent call last):
    partita.errors.TooLarge: a table must be small; got a large one.
    """

    def __init__(self, most: int, refusal: str, *, together: bool = False) -> None:
        super().__init__()
        self.left = most
        self.refusal = refusal
        self.together = together

    def __torch_function__(
        self,
        func: Callable[..., T],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> T:
        kwargs = kwargs or {}
        numbers = new_numbers(func.__name__, (*args, *kwargs.values()))
        if numbers > self.left:
            raise TooLarge(self.refusal)
        self.left -= numbers * self.together
        return func(*args, **kwargs)


class _Watch(local):
    bound: Bounded | None = None  # of this thread


_watch = _Watch()


@contextmanager
def within_machine(owner: str) -> Iterator[None]:
    """Refuse, inside the block, a tensor beyond the memory of this machine; in nested blocks the
    inner owner is named.
    """
    refusal = f"{owner}: {SENTENCE}"
    if (bound := _watch.bound) is not None:
        outer, bound.refusal = bound.refusal, refusal
        try:
            yield
        finally:
            bound.refusal = outer
        return
    _watch.bound = Bounded(machine() // 4, refusal)
    try:
        with _watch.bound:
            yield
    finally:
        _watch.bound = None


@contextmanager
def named(owner: str) -> Iterator[None]:
    """Turn every error that means that memory ran out, inside the block or the decorated function,
    into :class:`TooLarge`.
    """
    try:
        yield
    except (MemoryError, RuntimeError, TypeError) as error:
        if isinstance(error, PartitaError) or not ran_out(error):
            raise
        raise TooLarge(f"{owner}: {SENTENCE}") from error


def ran_out(error: Exception) -> bool:
    """Whether an error means that there is not enough memory."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in TORCH_MESSAGES)


def check_room(owner: str, what: str, needed: int, remedy: str) -> None:
    """Refuse to read something into memory that is larger than it.

    >>> check_room("load", "x.npz", 10**18, "Save its array as .npy.")
    Traceback (most recent call last):
    partita.errors.TooLarge: load: x.npz must fit into the memory of this machine, ... GiB;
    got 9.31e+08 GiB. Save its array as .npy.
    """
    if needed > (there := machine()):
        raise TooLarge(
            f"{owner}: {what} must fit into the memory of this machine, {there / GIB:.3g} GiB; "
            f"got {needed / GIB:.3g} GiB. {remedy}"
        )


def machine() -> int:
    """Bytes of memory that this process may have: the machine's, or less in a container or below a
    limit on address space.
    """
    return int(min([_physical(), *_limits()]))


def _physical() -> int:
    """Bytes of the machine; a terabyte where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 40


def _limits() -> Iterator[float]:
    yield from map(_container_limit, CONTAINERS)
    with suppress(ImportError, OSError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit


@cache
def _container_limit(path: Path) -> float:
    """A container's limit, which stays while it runs; infinite where the file is absent or says
    ``max``.
    """
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return inf


def new_numbers(operation: str, arguments: tuple[object, ...]) -> int:
    """The numbers that a new tensor will hold, by the arguments of the operation that makes it; 0
    for one that makes none.

    >>> new_numbers("randn", (1000, 20)), new_numbers("full", ([1000, 20], 7))
    (20000, 20000)
    >>> new_numbers("add", (1000, 20))
    0
    >>> import numpy as np
    >>> new_numbers("zeros", (np.int64(2**40), np.int64(2**40))) == 2**80
    True
    """
    first = arguments[0].numel() if arguments and isinstance(arguments[0], Tensor) else 1
    if operation in LIKE:
        return max(LEAST, first)
    if operation in BY_SIZE or operation in BY_LIST:
        sizes = [
            prod(_integers(value))
            for value in arguments
            if isinstance(value, list | tuple) and len(_integers(value)) == len(value)
        ]
        if operation in BY_SIZE:
            sizes.append(prod(_integers(arguments)))
        return max([LEAST, *(size * (first if operation == "repeat" else 1) for size in sizes)])
    if operation in BY_PRODUCT:
        sizes = _integers(arguments)[:2]
        return max(LEAST, prod(sizes) * (sizes[0] if len(sizes) == 1 else 1))
    return max([LEAST, *_integers(arguments)]) if operation in BY_LENGTH else 0


def _integers(arguments: Iterable[object]) -> list[int]:
    """The integers among arguments, as Python's, which never overflow."""
    return [
        int(value)
        for value in arguments
        if isinstance(value, Integral) and not isinstance(value, bool)
    ]
