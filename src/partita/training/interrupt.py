"""Ctrl-C ends a fit between two steps, so that it can be saved; a second Ctrl-C ends it at once."""

import signal
import threading
from types import FrameType, TracebackType


class Interrupts:
    """While the block runs, ``asked`` says whether somebody pressed Ctrl-C."""

    def __init__(self) -> None:
        self.asked = False
        self._previous = None

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._notice)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _notice(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
