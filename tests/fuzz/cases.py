"""What a case is: how many there are, how long one may take, how much memory it may ask for, and
what may come out of it.

A few hundred cases run with the other tests, always the same ones; ``make fuzz`` sets
``PARTITA_FUZZ_CASES`` and runs new ones.
"""

import faulthandler
import os
import resource
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from sklearn.exceptions import NotFittedError

from partita.errors import PartitaError

VARIABLE, USUAL = "PARTITA_FUZZ_CASES", 400  # of all tests of this folder together
# of one case, computing and in all; compiling kernels once takes 30
SECONDS = {signal.ITIMER_PROF: 100, signal.ITIMER_REAL: 300}
ROOM = 4 << 30  # bytes of address space beyond what the process has
NAMED = (PartitaError, NotFittedError)  # the second is scikit-learn's own contract


class TookTooLong(BaseException):
    """A case did not come to its end; no ``except Exception`` holds it back."""


def cases(share: float) -> settings:
    """The settings of a test that takes this share of all cases."""
    asked = os.environ.get(VARIABLE)
    return settings(
        max_examples=max(1, round(share * int(asked or USUAL))),
        derandomize=asked is None,
        deadline=None,  # which is about the mean of many runs; ours is about hangs
        database=None,
        print_blob=True,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def bounded() -> Iterator[None]:
    """Neither a hang nor an allocation without end: both become a failure of the test."""

    def stop(*_: Any) -> None:
        raise TookTooLong

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = {number: signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGPROF)}
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + ROOM, hard))
    for timer, seconds in SECONDS.items():
        signal.setitimer(timer, seconds)
    # for a library that never comes back to Python
    faulthandler.dump_traceback_later(2 * max(SECONDS.values()), exit=True)
    try:
        yield
    except TookTooLong as error:
        raise AssertionError("a case took too long") from error
    finally:
        faulthandler.cancel_dump_traceback_later()
        for timer in SECONDS:
            signal.setitimer(timer, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def only_named_errors() -> Iterator[None]:
    """What is inside comes to an end, or raises an error of partita's that says something."""
    with warnings.catch_warnings(), bounded():
        warnings.simplefilter("ignore")
        try:
            yield
        except NAMED as error:
            if not str(error).strip():
                raise AssertionError(f"{type(error).__name__} says nothing") from error


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
