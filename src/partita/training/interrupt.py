"""Ctrl-C and SIGTERM end a fit between two steps, so that it can be saved; a second one ends it at
once.
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """While the block runs, ``asked`` says whether somebody pressed Ctrl-C or sent SIGTERM."""

    def __init__(self) -> None:
        self.asked = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._notice)
                for number in (signal.SIGINT, signal.SIGTERM)
            }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _notice(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
