"""``njit`` with a clock that stands still while numba compiles; machine code is kept on disk."""

from numba import njit
from numba.core import event

from partita.runtime.deadline import PAUSES

__all__ = ["njit"]


class Compiling(event.Listener):
    """Pauses the clock while numba compiles, which one thread does at a time."""

    def on_start(self, event: object) -> None:
        PAUSES.begin()

    def on_end(self, event: object) -> None:
        PAUSES.end()


event.register("numba:compile", Compiling())
