"""The clock of work that has to end by a time: it stands still while machine code is compiled."""

import re
import time
from pathlib import Path

import pytest

import partita
from partita.core import clock
from partita.core.machine_code import njit


def test_compiling_takes_no_time_of_the_clock() -> None:
    """A function compiles in a good tenth of a second; another call takes none, and neither does the clock."""
    double = njit(lambda x: [2 * y for y in range(x)])
    began, wall, still = clock.now(), time.monotonic(), clock.PAUSES.seconds
    with clock.ending_within(10):
        assert double(3) == [0, 2, 4]
        stood = clock.PAUSES.seconds - still
        assert clock.left() == pytest.approx(10 - (time.monotonic() - wall - stood), abs=0.05)
    assert 0.05 < stood <= time.monotonic() - wall
    assert clock.now() - began == pytest.approx(time.monotonic() - wall - stood, abs=0.05)
    double(4)
    assert clock.PAUSES.seconds == still + stood


def test_what_cannot_be_compiled_lets_the_clock_go_on() -> None:
    with pytest.raises(Exception, match="Failed in nopython"):
        njit(lambda x: not_there(x))(1)  # type: ignore[name-defined]  # noqa: F821
    before = clock.now()
    time.sleep(0.01)
    assert clock.now() > before


def test_all_machine_code_is_compiled_where_the_clock_hears_of_it() -> None:
    folder = Path(partita.__file__).parent
    texts = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.py")}
    assert [name for name, text in texts.items() if re.search(r"from numba import .*njit|numba\.njit", text)] == ["core/machine_code.py"]
