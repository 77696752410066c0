"""A time to end by, for work whose length nobody knows beforehand; who cuts something short for it
says what.

Whoever has a time sets it; a search, which ends sooner where there is none left, looks at it.
Nobody else needs to know of it. The clock stands still while machine code is compiled
(:mod:`partita.runtime.numba_cache`): that happens once on a machine and is nobody's work.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Limit(NamedTuple):
    """When to end, and what was cut short for it, one sentence each."""

    moment: float
    cuts: list[str]


class Pauses:
    """When the clock stands still, and for how long it did; pauses within one another are one."""

    def __init__(self) -> None:
        self.seconds, self._since, self._depth = 0.0, 0.0, 0

    def begin(self) -> None:
        self._since = self._since if self._depth else time.monotonic()
        self._depth += 1

    def end(self) -> None:
        self._depth -= 1
        self.seconds += 0.0 if self._depth else time.monotonic() - self._since

    def now(self) -> float:
        """The seconds of the clock."""
        return (self._since if self._depth else time.monotonic()) - self.seconds


_LIMIT: ContextVar[Limit | None] = ContextVar("limit", default=None)
PAUSES = Pauses()  # of this process


def now() -> float:
    """Seconds, of which differences count, without those for which the clock stood still.

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
    """Inside the block there are at most so many seconds, less where an outer one ends sooner,
    which hears of all cuts too.

    >>> with ending_within(60) as limit, ending_within(600):
    ...     left() <= 60, cut("a search ended early.")
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
    """Seconds until the time is up, below zero when it is; infinite where nobody set one."""
    limit = _LIMIT.get()
    return math.inf if limit is None else limit.moment - now()


def cut(what: str) -> None:
    """Say, in a sentence, what was cut short; nobody hears it where no time was set."""
    limit = _LIMIT.get()
    if limit is not None:
        limit.cuts.append(what)
