"""The clock of work that has to end by a time: it stands still while machine code is compiled."""

import re
from pathlib import Path

import pytest

import partita
from partita.runtime import deadline
from partita.runtime.numba_cache import njit


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The moments of a watch that goes on by a second whenever it is read."""
    moments = [0.0]

    def look() -> float:
        moments.append(moments[-1] + 1)
        return moments[-1]

    monkeypatch.setattr(deadline.time, "monotonic", look)
    return moments


def test_compiling_takes_no_time_of_the_clock(ticks: list[float]) -> None:
    double = njit(lambda x: [2 * y for y in range(x)])
    began, first, still = deadline.now(), ticks[-1], deadline.PAUSES.seconds
    with deadline.ending_within(10) as limit:
        assert double(3) == [0, 2, 4]
        stood = deadline.PAUSES.seconds - still
        assert stood >= 1
        assert deadline.left() == limit.moment - (began + ticks[-1] - first - stood)
    assert deadline.now() - began == ticks[-1] - first - stood
    double(4)
    assert deadline.PAUSES.seconds == still + stood


def test_what_cannot_be_compiled_lets_the_clock_go_on(ticks: list[float]) -> None:
    with pytest.raises(Exception, match="Failed in nopython"):
        njit(lambda x: not_there(x))(1)  # type: ignore[name-defined]  # noqa: F821
    before = deadline.now()
    assert deadline.now() == before + 1


def test_all_machine_code_is_compiled_where_the_clock_hears_of_it() -> None:
    folder = Path(partita.__file__).parent
    texts = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.py")}
    assert [
        name
        for name, text in texts.items()
        if re.search(r"from numba import .*njit|numba\.njit", text)
    ] == ["runtime/numba_cache.py"]
