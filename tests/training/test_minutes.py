"""A fit of so many minutes: the number of steps comes from their cost, is fixed once, and is
recorded.
"""

from pathlib import Path

import pytest
from tests.pressing import interrupted_after
from tests.training.small_fits import same, scenario, timeless

import partita
from partita.training import budget
from partita.training.session import Session


def test_minutes_fix_the_steps_and_record_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "LEAST_STEPS", 30)
    timed = scenario("tempered", tmp_path / "timed", steps=None, minutes=1e-3)
    n = timed.config["steps"]
    assert timed.steps == n >= 30
    assert partita.load(tmp_path / "timed").config["steps"] == n
    counted = scenario("tempered", steps=n, validations=timed.config["fit"]["validations"])
    assert same(dict(timed.model.state_dict()), dict(counted.model.state_dict()))
    assert timeless(timed.history) == timeless(counted.history)


def test_a_timed_run_is_resumed_with_its_own_number_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the clock says the second time."""
    monkeypatch.setattr(budget, "_steps_within", lambda *_: 80)
    interrupted_after(33, lambda: scenario("pcd", tmp_path / "run", steps=None, minutes=1.0))
    monkeypatch.setattr(budget, "_steps_within", lambda *_: 500)
    resumed = scenario("pcd", tmp_path / "run", resume=True, steps=None, minutes=1.0)
    whole = scenario("pcd", steps=80)
    assert resumed.steps == resumed.config["steps"] == 80
    assert same(dict(resumed.model.state_dict()), dict(whole.model.state_dict()))


def test_the_number_of_steps_comes_from_their_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves one second a step leaves 60 steps less the warm-up in a minute."""
    now = [0.0]
    advance = Session.advance

    def slow(self: Session) -> dict[str, float]:
        now[0] += 1.0
        return advance(self)

    monkeypatch.setattr(Session, "advance", slow)
    monkeypatch.setattr(budget.deadline, "now", lambda: now[0])
    run = scenario("pcd", steps=None, minutes=1.0)
    assert run.steps == 60 - 5 - 4  # five to warm up, four seconds to time
    now[0] = 0.0
    assert scenario("pcd", steps=None, minutes=1e-6).steps == budget.LEAST_STEPS
