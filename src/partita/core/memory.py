"""Memory that is not there: a size beyond it is refused before anything is asked for, and a no from the system becomes one sentence."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from partita.core.errors import PartitaError, TooLarge

SENTENCE = "this needs more memory than there is. Ask for fewer hidden units, chains or rows at once."
TORCH_SAYS = ("not enough memory", "allocate memory", "Storage size calculation overflowed", "Overflow when unpacking long")
LIKE = frozenset({"clone", "_to_copy", "empty_like", "zeros_like", "ones_like", "rand_like", "randn_like", "full_like"})
BY_SIZE = frozenset({"empty", "zeros", "ones", "full", "rand", "randn", "randint", "new_empty", "new_zeros", "new_ones", "new_full"})
BY_PRODUCT = frozenset({"eye", "tril_indices", "triu_indices"})  # of their first numbers
BY_LENGTH = frozenset({"arange", "linspace", "randperm"})
CONTAINERS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))  # where a container's limit is told
GIB = 1 << 30
LEAST = 64  # numbers that the smallest tensor counts as, so that endlessly many of them are refused too


class Bounded(TorchDispatchMode):
    """Inside it, a new tensor that holds more than ``most`` numbers is refused, before memory is asked for.

    Arguments:
        most: Numbers of each tensor, or of all that are made, ``together``.
        refusal: The sentence that says so.

    >>> import torch
    >>> with Bounded(1000, "a table must be small; got a large one."):
    ...     torch.zeros(10**6, 10**6)
    Traceback (most recent call last):
    partita.core.errors.TooLarge: a table must be small; got a large one.
    """

    def __init__(self, most: int, refusal: str, *, together: bool = False) -> None:
        super().__init__()
        self.left, self.refusal, self.together = most, refusal, together

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        numbers = asked_for(func.overloadpacket.__name__, args)
        if numbers > self.left:
            raise TooLarge(self.refusal)
        self.left -= numbers * self.together
        return func(*args, **(kwargs or {}))


def within_machine(owner: str) -> Bounded:
    """Inside it, a tensor beyond the memory of this machine is refused."""
    return Bounded(machine() // 4, f"{owner}: {SENTENCE}")


@contextmanager
def named(owner: str) -> Iterator[None]:
    """Inside it, or in a function decorated by it, the many ways to say that memory ran out become one error."""
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
    partita.core.errors.TooLarge: load: x.npz must fit into the memory of this machine, ... GiB; got 9.31e+08 GiB. Save its array as .npy.
    """
    if needed > (there := machine()):
        got = f"must fit into the memory of this machine, {there / GIB:.3g} GiB; got {needed / GIB:.3g} GiB"
        raise TooLarge(f"{owner}: {what} {got}. {remedy}")


def machine() -> int:
    """Bytes of memory that this process may have: the machine's, or less in a container or below a limit on address space."""
    return min([_physical(), *_limits()])


def _physical() -> int:
    """Of the machine; a terabyte where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 40


def _limits() -> Iterator[int]:
    """Those that were set, as far as the system has such."""
    for path in CONTAINERS:
        with suppress(OSError, ValueError):
            yield int(path.read_text())
    with suppress(ImportError, OSError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit


def asked_for(operation: str, arguments: tuple[Any, ...]) -> int:
    """The numbers that a new tensor will hold, as the arguments of what makes it say; 0 for what makes none."""
    whole = [value for value in arguments if type(value) is int]
    if operation in LIKE:
        return max(LEAST, arguments[0].numel())
    if operation == "repeat":
        return max(LEAST, arguments[0].numel() * prod(arguments[1]))
    if operation in BY_SIZE:
        sizes = [prod(value) for value in arguments if isinstance(value, list | tuple) and not any(isinstance(v, Tensor) for v in value)]
        return max(LEAST, *sizes, 0)
    if operation in BY_PRODUCT:
        return max(LEAST, prod(whole[:2]) * (whole[0] if len(whole) == 1 else 1))
    return max(LEAST, *whole, 0) if operation in BY_LENGTH else 0
