"""Machine code that numba makes of a function when it is first called, and keeps on disk; the clock
stands still meanwhile.
"""

from numba import njit
from numba.core import event

from partita.runtime.deadline import PAUSES

__all__ = ["njit"]


class Compiling(event.Listener):
    """Stops the clock when numba begins to compile, which one thread does at a time, and lets it go
    on when that ends or fails.
    """

    def on_start(self, event: object) -> None:
        PAUSES.begin()

    def on_end(self, event: object) -> None:
        PAUSES.end()


event.register("numba:compile", Compiling())
