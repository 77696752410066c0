"""The benchmark of growth: exact costs give exact exponents on the page, and every operation runs
at its smallest size.
"""

import os
from typing import Any

import pytest

import growth
import harness
import page
import scaling
from records import Record


@pytest.fixture
def shown() -> Any:
    """What is shown and kept during a test, as a record."""
    before = len(harness.LINES), len(harness.CURVES), len(harness.NOTES)
    yield lambda: Record(
        harness.LINES[before[0] :], harness.CURVES[before[1] :], harness.NOTES[before[2] :]
    )
    for part, start in zip((harness.LINES, harness.CURVES, harness.NOTES), before, strict=True):
        del part[start:]


def test_exact_costs_give_exact_exponents(shown: Any) -> None:
    n = [10 * 2**i for i in range(6)]
    square = scaling.Growth("sum", "rows", "n²", scaling.power(2))
    scaling.report(square, n, [3e-6 * size**2 for size in n], [1e-6 * size for size in n])
    (line,), (curve,) = shown().lines, shown().curves
    assert (line["exponent"], line["theory"], line["bare"]) == pytest.approx((2, 2, 1), abs=1e-9)
    assert (line["what"], line["sizes"], line["departs"]) == ("sum against rows", "40 to 320", "")
    assert curve["theory"] == pytest.approx(curve["cost"][2:])
    assert growth.row(line)[:5] == ["sum", "rows", "2.00", "2.00 to 2.00", "2.00 (n²)"]


def test_two_processes_against_one(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(scaling, "_timed", lambda kind, count: {1: 0.04, 2: 0.025}[count])
    scaling.processes(quick=True)
    (line,) = shown().lines
    assert line["exponent"] == pytest.approx(-0.678, abs=1e-3)  # log2 of 25 / 40
    assert line["departs"] == "The cost of a unit of theory rises by 25% from 1 to 2."
    assert any(section.title == "How cost grows" for section in page.sections({"scaling": shown()}))


def test_one_core_leaves_processes_out(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    scaling.processes(quick=True)
    assert shown().lines == []
    assert shown().notes == ["processes: two of them need two cores, and this one may use one"]


@pytest.mark.parametrize("case", scaling.CASES, ids=lambda case: f"{case.what} against {case.axis}")
def test_every_operation_runs(case: scaling.Case) -> None:
    """And those of one axis are made of the size that is asked for: theory is positive and
    grows.
    """
    scaling.least([case.make(case.first), case.bare(case.first)], 0.0)
    assert 0 < case.theory(case.first) < case.theory(2 * case.first)
    assert case.full >= case.quick >= 5
