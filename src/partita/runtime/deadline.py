"""A deadline for work whose length is not known beforehand, and word of how it goes.

A caller with a time budget sets the deadline (:func:`ending_within`). A search reads it
(:func:`left`), ends sooner where no time is left, and records what it cut short
(:func:`record_cut`). What it is at, it says (:func:`say`) to a caller that has somewhere to show it
(:func:`listening`). Code in between needs no parameter for any of this. The clock stands still
while machine code is compiled (:mod:`partita.runtime.numba_cache`), which happens once on a
machine.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Limit(NamedTuple):
    """When to end, and what was cut short for it, one sentence each."""

    moment: float
    cuts: list[str]


class Pauses:
    """A clock that can be paused; nested pauses count as one."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0
        self._depth = 0

    def begin(self) -> None:
        """Stop the clock."""
        if not self._depth:
            self._since = time.monotonic()
        self._depth += 1

    def end(self) -> None:
        """Let the clock go on, where this ends the outermost pause."""
        self._depth -= 1
        if not self._depth:
            self.seconds += time.monotonic() - self._since

    def now(self) -> float:
        """The seconds of the clock."""
        return (self._since if self._depth else time.monotonic()) - self.seconds


_LIMIT: ContextVar[Limit | None] = ContextVar("limit", default=None)
_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)
PAUSES = Pauses()  # of this process


def now() -> float:
    """Seconds, of which only differences count, without those of pauses.

    >>> PAUSES.begin()
    >>> before = now()
    >>> time.sleep(0.01)
    >>> now() == before
    True
    >>> PAUSES.end()
    >>> now() >= before
    True
    """
    return PAUSES.now()


@contextmanager
def ending_within(seconds: float) -> Iterator[Limit]:
    """Set a deadline for the block; an outer one that comes sooner holds, and collects all cuts.

    >>> with ending_within(60) as limit, ending_within(600):
    ...     left() <= 60, record_cut("a search ended early.")
    (True, None)
    >>> limit.cuts, left()
    (['a search ended early.'], inf)
    """
    outer = _LIMIT.get()
    moment = now() + seconds
    limit = Limit(moment, []) if outer is None else Limit(min(moment, outer.moment), outer.cuts)
    token = _LIMIT.set(limit)
    try:
        yield limit
    finally:
        _LIMIT.reset(token)


def left() -> float:
    """Seconds until the deadline, negative after it; infinite where there is none."""
    limit = _LIMIT.get()
    return math.inf if limit is None else limit.moment - now()


def record_cut(what: str) -> None:
    """Record, in a sentence, what was cut short; without a deadline this does nothing."""
    limit = _LIMIT.get()
    if limit is not None:
        limit.cuts.append(what)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Inside it, what work says of itself reaches the listener.

    >>> heard = []
    >>> with listening(heard.append):
    ...     say("Annealing")
    >>> say("nobody listens")
    >>> heard
    ['Annealing']
    """
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def say(what: str) -> None:
    """Tell whoever listens what the work is at."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(what)
