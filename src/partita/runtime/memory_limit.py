"""Memory that is not there: a size beyond it is refused before anything is asked for, and a no from
the system becomes one sentence.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from math import inf, prod
from numbers import Integral
from pathlib import Path
from threading import local
from typing import Any

from torch.overrides import TorchFunctionMode

from partita.errors import PartitaError, TooLarge

SENTENCE = (
    "this needs more memory than there is. Ask for fewer hidden units, chains or rows at once."
)
TORCH_SAYS = (
    "not enough memory",
    "allocate memory",
    "Storage size calculation overflowed",
    "Overflow when unpacking long",
)
COPIES = frozenset({"clone", "contiguous", "to", "double", "float"})
LIKE = COPIES | {"empty_like", "zeros_like", "ones_like", "rand_like", "randn_like", "full_like"}
# listed, or one by one
BY_SIZE = frozenset(
    {"empty", "zeros", "ones", "rand", "randn", "new_empty", "new_zeros", "new_ones", "repeat"}
)
BY_LIST = frozenset({"full", "randint", "new_full"})  # with other numbers beside it
BY_PRODUCT = frozenset({"eye", "tril_indices", "triu_indices"})  # of their first numbers
BY_LENGTH = frozenset({"arange", "linspace", "randperm"})
# where a container's limit is told
CONTAINERS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
GIB = 1 << 30
# numbers that the smallest tensor counts as, so that endlessly many of them are refused too
LEAST = 64


class Bounded(TorchFunctionMode):
    """Inside it, a new tensor that holds more than ``most`` numbers is refused, before memory is
    asked for.

    Arguments:
        most: Numbers of each tensor, or of all that are made, ``together``.
        refusal: The sentence that says so.

    >>> import torch
    >>> with Bounded(1000, "a table must be small; got a large one."):
    ...     torch.zeros(10**6, 10**6)
    Traceback (most recent call last):
    partita.errors.TooLarge: a table must be small; got a large one.
    """

    def __init__(self, most: int, refusal: str, *, together: bool = False) -> None:
        super().__init__()
        self.left, self.refusal, self.together = most, refusal, together

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        numbers = asked_for(func.__name__, (*args, *kwargs.values()))
        if numbers > self.left:
            raise TooLarge(self.refusal)
        self.left -= numbers * self.together
        return func(*args, **kwargs)


class _Watch(local):
    bound: Bounded | None = None  # of this thread


_watch = _Watch()


@contextmanager
def within_machine(owner: str) -> Iterator[None]:
    """Inside it, a tensor beyond the memory of this machine is refused; one within another watches
    once, and the inner one is named.
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
    """Inside it, or in a function decorated by it, the many ways to say that memory ran out become
    one error.
    """
    try:
        yield
    except (MemoryError, RuntimeError, TypeError) as error:
        if isinstance(error, PartitaError) or not ran_out(error):
            raise
        raise TooLarge(f"{owner}: {SENTENCE}") from error


def ran_out(error: Exception) -> bool:
    """Whether an error says that there is not enough memory."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in TORCH_SAYS)


def check_room(owner: str, what: str, needed: int, remedy: str) -> None:
    """Refuse what has to be held in memory and is larger than that, before it is read.

    >>> check_room("load", "x.npz", 10**18, "Save its array as .npy.")
    Traceback (most recent call last):
    partita.errors.TooLarge: load: x.npz must fit into the memory of this machine, ... GiB;
    got 9.31e+08 GiB. Save its array as .npy.
    """
    if needed > (there := machine()):
        got = (
            f"must fit into the memory of this machine, {there / GIB:.3g} GiB; got "
            f"{needed / GIB:.3g} GiB"
        )
        raise TooLarge(f"{owner}: {what} {got}. {remedy}")


def machine() -> int:
    """Bytes of memory that this process may have: the machine's, or less in a container or below a
    limit on address space.
    """
    return int(min([_physical(), *_limits()]))


def _physical() -> int:
    """Of the machine; a terabyte where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 40


def _limits() -> Iterator[float]:
    """Those that were set, as far as the system has such."""
    yield from map(_told_by, CONTAINERS)
    with suppress(ImportError, OSError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit


@cache
def _told_by(path: Path) -> float:
    """A container's limit, which stays while it runs; none where the file is not there or
    says so.
    """
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return inf


def asked_for(operation: str, arguments: tuple[Any, ...]) -> int:
    """The numbers that a new tensor will hold, as the arguments of what makes it say; 0 for what
    makes none.

    >>> (
    ...     asked_for("randn", (1000, 20)),
    ...     asked_for("full", ([1000, 20], 7)),
    ...     asked_for("add", (1000, 20)),
    ... )
    (20000, 20000, 0)
    >>> import numpy as np
    >>> asked_for("zeros", (np.int64(2**40), np.int64(2**40))) == 2**80
    True
    """
    if operation in LIKE:
        return max(LEAST, arguments[0].numel())
    if operation in BY_SIZE or operation in BY_LIST:
        own = arguments[0].numel() if operation == "repeat" else 1
        listed = [
            prod(value)
            for value in arguments
            if isinstance(value, list | tuple) and len(_whole(value)) == len(value)
        ]
        return max(
            LEAST,
            *(own * size for size in listed),
            own * prod(_whole(arguments)) * (operation in BY_SIZE),
        )
    if operation in BY_PRODUCT:
        whole = _whole(arguments)[:2]
        return max(LEAST, prod(whole) * (whole[0] if len(whole) == 1 else 1))
    return max(LEAST, *_whole(arguments), 0) if operation in BY_LENGTH else 0


def _whole(arguments: Sequence[Any]) -> list[int]:
    """Those that are whole numbers, NumPy's too, none of which may overflow."""
    return [
        int(value)
        for value in arguments
        if isinstance(value, Integral) and not isinstance(value, bool)
    ]
