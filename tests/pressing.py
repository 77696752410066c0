"""Ctrl-C in the midst of a fit."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from partita.training import Interrupted, Run
from partita.training.session import Session


@contextmanager
def ctrl_c_after(step: int) -> Iterator[None]:
    """Whoever fits in this block presses Ctrl-C once this step is done."""
    advance = Session.advance

    def pressed(self: Session) -> dict[str, float]:
        record = advance(self)
        if self.step == step:
            signal.raise_signal(signal.SIGINT)
        return record

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "advance", pressed)
        yield


def interrupted_after(step: int, fit: Callable[[], object]) -> Run:
    """What a fit leaves that meets Ctrl-C once this step is done."""
    with (
        ctrl_c_after(step),
        pytest.raises(Interrupted, match=r"^fit: interrupted after") as stopped,
    ):
        fit()
    return stopped.value.run
