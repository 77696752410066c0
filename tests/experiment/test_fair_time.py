"""Candidates end in time, whatever they do before their first step: searches are cut, told, and
never made again.

The clock is one that counts updates: a second for each component of a mixture, so that what is cut
does not depend on the machine.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.pressing import ctrl_c_after

from partita.datasets import Dataset
from partita.experiment import experiment
from partita.experiment.candidates import candidates_by_family
from partita.experiment.compare import Candidate, Comparison
from partita.experiment.leaderboard import Board
from partita.experiment.requests import recorded_experiment, requested
from partita.families import FAMILIES, mixture
from partita.models import Mixture
from partita.objectives import EM
from partita.runtime import deadline
from partita.tables import Rows
from partita.training.run import load
from partita.training.session import Session

CENTERS = 7.0 * np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]])


def clouds(n: int = 150, seed: int = 0) -> Dataset:
    g = np.random.default_rng(seed)
    x = CENTERS[g.integers(0, len(CENTERS), n)] + g.normal(size=(n, 2))
    return Dataset("clouds", Rows(x.astype(np.float32)))


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of a clock that only updates move."""
    seconds, update = [0.0], EM.update

    def counted(self: EM, model: Any, *more: Any, **options: Any) -> Any:
        seconds[0] += model.components
        return update(self, model, *more, **options)

    monkeypatch.setattr(EM, "update", counted)
    monkeypatch.setattr(deadline.time, "monotonic", lambda: seconds[0])
    return seconds


def climbed(seconds: float, most: int = 8) -> tuple[list[mixture.Rung], list[str]]:
    g = torch.Generator().manual_seed(0)
    with deadline.ending_within(seconds) as limit:
        table = mixture.ladder(
            lambda K: Mixture(K, 2, generator=g),
            clouds().train,
            range(1, most + 1),
            objective=EM(2, 5),
            generator=g,
        )
    return table, limit.cuts


def test_a_ladder_ends_in_time_and_passes_numbers_over_when_it_has_to(now: list[float]) -> None:
    """As long as none is passed over, rungs are those of a ladder that has all the time; the last
    update may be one that is timed.
    """
    whole, cuts = climbed(1e9)
    assert (
        mixture.best(whole).components == 6
        and [rung.components for rung in whole] == list(range(1, 9))
        and not cuts
    )
    now[0] = 0.0
    short, cuts = climbed(600.0)
    tried = [rung.components for rung in short]
    assert now[0] <= 608 and tried[:2] == [1, 2] and 4 <= tried[-1] <= 8 and len(tried) < tried[-1]
    assert [rung.bic for rung in short[:2]] == [rung.bic for rung in whole[:2]]
    assert cuts == [
        "the search for the number of components was cut short by the clock: of "
        f"{', '.join(map(str, tried))} the best is taken, and others may be better."
    ]
    assert len(climbed(60.0)[0]) < len(short)


def test_a_ladder_that_has_time_left_goes_back_to_numbers_near_the_best(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of the time is gone with 6: it passes over 7 on its way to 8, and then tries it."""
    order, criterion = [], mixture.criterion
    monkeypatch.setattr(
        mixture,
        "criterion",
        lambda model, *more, **kept: (
            order.append(model.components) or criterion(model, *more, **kept)
        ),
    )
    table, cuts = climbed(2000.0)
    assert order == [1, 2, 3, 4, 5, 6, 8, 7] and [rung.components for rung in table] == list(
        range(1, 9)
    )
    assert mixture.best(table).components == 6 and not cuts and now[0] <= 2000


def test_a_ladder_that_never_comes_back_to_a_number_says_so(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends by itself, in time, but what it passed over depends on how fast the machine is."""
    monkeypatch.setattr(mixture, "HASTE", 0.0)  # in haste from the first number on
    table, cuts = climbed(1e9, most=20)
    tried = [rung.components for rung in table]
    assert len(tried) < tried[-1] and mixture.best(table).components == 6
    assert [
        cut.startswith("the search for the number of components was cut short by the clock")
        for cut in cuts
    ] == [True]


def test_where_there_is_no_time_at_all_one_number_is_tried_by_one_update(now: list[float]) -> None:
    table, cuts = climbed(0.0)
    assert [(rung.components, rung.run.steps) for rung in table] == [(1, 1)] and len(cuts) == 1
    assert now[0] == 2  # one that is timed, and one that counts
    assert len(climbed(-5.0)[0]) == 1  # nor where it is over


def test_ctrl_c_ends_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Session.advance
    monkeypatch.setattr(
        Session, "advance", lambda self: os.kill(os.getpid(), signal.SIGINT) or advance(self)
    )
    with pytest.raises(KeyboardInterrupt):
        climbed(1e9)


def entered(
    settings: dict[str, Any], seconds: float, out: Path | None = None, **changes: Any
) -> Any:
    (candidate,), _ = candidates_by_family(["mixture"], {"mixture": settings}, clouds())
    own = replace(candidate, family=replace(candidate.family, **changes))
    return Comparison(clouds(), {"tolerance": 0.0}, limit=seconds / 60, out=out).enter(own)


def test_a_fit_of_so_many_minutes_searches_in_its_time_too_and_keeps_what_was_cut(
    now: list[float], tmp_path: Path
) -> None:
    """Ten minutes of the counted seconds, of which three fifths are for the search."""
    np.savetxt(
        tmp_path / "clouds.csv",
        clouds().train.tensor(torch.Generator()).numpy(),
        delimiter=",",
        header="a,b",
        comments="",
    )
    experiment = requested(
        "mixture",
        str(tmp_path / "clouds.csv"),
        tmp_path / "run",
        ["n_init=2"],
        {"minutes": 10.0},
        0,
    )
    plan = experiment.plan()
    assert now[0] <= 0.6 * 600 + 8 and plan.options["minutes"] == round((600 - now[0]) / 60, 2)
    (cut,) = plan.cuts
    assert "cut short by the clock" in cut
    run = experiment.run(plan._replace(options={"steps": 2}))
    assert (
        cut in run.warnings
        and cut in load(tmp_path / "run").warnings
        and recorded_experiment(tmp_path / "run").plan_to_resume().cuts == [cut]
    )


@pytest.mark.parametrize("slow", [0.0, 40.0, 1000.0])
def test_what_building_takes_is_taken_from_the_fit(slow: float, now: list[float]) -> None:
    """Of a minute; where building alone takes longer, the least number of steps is left."""

    def make(*given: Any) -> Any:
        now[0] += slow
        return FAMILIES["mixture"].make(*given)

    result = entered({"n_components": 2, "n_init": 1}, 60.0, make=make)
    timed, each = 2, 2.0  # updates that are thrown away, and what each takes
    assert result.score is not None and result.run.config["fit"]["steps"] == max(
        1, int((60 - slow) / each) - timed
    )
    assert result.seconds <= max(60, slow + 2 * each)


def test_starts_that_there_is_no_time_for_are_not_made(now: list[float]) -> None:
    result = entered({"n_components": 2, "n_init": 4}, 100.0)
    assert now[0] <= 100 and result.run.config["objective"]["restarts"] == 1
    assert "1 of 4 starts tried: there was no time for more." in result.run.warnings
    assert Board("", timed=True).cut_short(result)


def test_a_search_that_was_cut_is_not_made_again(
    now: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle of the fit that follows, the candidate goes on with what was found,
    however much time there is then.
    """
    whole = entered({}, 900.0, tmp_path / "whole")
    found = whole.run.model.components
    assert 2 <= found < 6 and now[0] <= 900 and whole.run.steps > 1
    advance, fit, begun = Session.advance, experiment.fit, []

    def killed(self: Session) -> Any:
        if begun and self.step == 1:
            raise KeyboardInterrupt
        return advance(self)

    now[0] = 0.0
    with monkeypatch.context() as patch:
        patch.setattr(
            experiment, "fit", lambda *given, **options: begun.append(1) or fit(*given, **options)
        )
        patch.setattr(Session, "advance", killed)
        with pytest.raises(KeyboardInterrupt):
            entered({}, 900.0, tmp_path / "killed")
    monkeypatch.setattr("partita.families.mixture.ladder", None)
    resumed = entered({}, 1e9, tmp_path / "killed")
    assert (
        resumed.run.model.components == found
        and resumed.run.steps == whole.run.steps
        and resumed.score == whole.score
    )
    (told,) = [warning for warning in resumed.run.warnings if "cut short by the clock" in warning]
    candidate = Candidate("mixture", FAMILIES["mixture"], {})
    board = Board("", timed=True)
    saved = Comparison(clouds(), limit=1.0, out=tmp_path / "killed").enter(candidate)
    assert (
        saved.run is not None
        and told in saved.run.warnings
        and all(map(board.cut_short, (whole, resumed, saved)))
    )


def test_options_of_optimizers_are_for_those_who_have_one() -> None:
    options = {"batch_size": 30, "learning_rate": 0.01, "epochs": 1}
    data = clouds()
    found, _ = candidates_by_family(["mixture", "flow"], {"mixture": {"n_components": 2}}, data)
    mixture, flow = Comparison(data, options).run(found)
    assert mixture.run is not None and flow.run is not None and mixture.score is not None
    assert (
        mixture.run.warnings[0]
        == "fitted without batch_size, learning_rate: EM takes closed-form updates."
    )
    assert flow.run.config["fit"]["batch_size"] == 30 and not any(
        "fitted without" in warning for warning in flow.run.warnings
    )


def entered_slowly(
    monkeypatch: pytest.MonkeyPatch, now: list[float], factor: float, out: Path
) -> Any:
    """A mixture of eight within 400 seconds, whose updates take so many times as long once its fit
    has begun.
    """
    advance, own, begun = Session.advance, experiment.fit, []

    def slower(self: Session) -> Any:
        now[0] += (factor - 1) * self.bare.components if begun else 0.0
        return advance(self)

    with monkeypatch.context() as patch:
        patch.setattr(
            experiment, "fit", lambda *given, **options: begun.append(1) or own(*given, **options)
        )
        patch.setattr(Session, "advance", slower)
        return entered({"n_components": 8, "n_init": 1}, 400.0, out)


def test_a_fit_stops_where_the_machine_became_slower_than_it_was_planned_for(
    now: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned are 48 updates of eight seconds, after two that are timed; at 64 seconds each the
    eighth ends after 1.3 times 400.
    """
    result = entered_slowly(monkeypatch, now, 8.0, tmp_path / "slow")
    run = result.run
    assert (
        run.config["steps"] == 48
        and (run.steps, run.stopped) == (8, "out of time")
        and result.seconds == 16 + 64 * 8
    )
    assert result.score is not None and Board("", timed=True).cut_short(result)
    told = {
        "step": 8,
        "event": "the time was up: steps took longer than when their number was fixed.",
        "done": "stopped after 8 of 48 steps",
    }
    assert told in run.history
    again = Comparison(clouds(), {"tolerance": 0.0}, limit=1.0, out=tmp_path / "slow").enter(
        Candidate("mixture", FAMILIES["mixture"], {})
    )
    # it is done, and not gone on with
    assert again.run is not None and again.run.steps == 8 and again.score == result.score
    little = entered_slowly(monkeypatch, now, 1.2, tmp_path / "a little")
    assert (little.run.steps, little.run.stopped) == (
        48,
        "finished",
    ) and little.seconds <= 1.3 * 400


def test_compiling_is_no_part_of_what_a_step_costs(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first update that compiles for 1,000 seconds leaves the plan, and the seconds, of one that
    need not.
    """
    update, compiled = EM.update, []

    def first(self: EM, *given: Any, **options: Any) -> Any:
        if not compiled:
            deadline.PAUSES.begin()
            now[0] += 1000.0
            deadline.PAUSES.end()
            compiled.append(1)
        return update(self, *given, **options)

    plain = entered({"n_components": 2, "n_init": 1}, 60.0)
    with monkeypatch.context() as patch:
        patch.setattr(EM, "update", first)
        result = entered({"n_components": 2, "n_init": 1}, 60.0)
    assert (
        compiled
        and result.run.steps == plain.run.steps
        and result.seconds == pytest.approx(plain.seconds)
    )


def test_seconds_of_a_search_count_after_an_interruption(now: list[float], tmp_path: Path) -> None:
    """All of the counted seconds are there: those of the search, of the steps before Ctrl-C, and of
    those after it.
    """
    with ctrl_c_after_fit_begins(2):
        stopped = entered({}, 900.0, tmp_path)
    assert (
        stopped.interrupted
        and stopped.problem
        == f"interrupted after 2 of {stopped.run.config['steps']:,} steps, which are saved"
    )
    assert stopped.seconds == pytest.approx(now[0]) and stopped.run.history[0]["seconds"] > 100
    resumed = entered({}, 900.0, tmp_path)
    assert resumed.score is not None and resumed.seconds == pytest.approx(now[0])


@contextmanager
def ctrl_c_after_fit_begins(step: int) -> Iterator[None]:
    """Ctrl-C in the fit itself, not in the search before it."""
    own = experiment.fit

    def pressed(*given: Any, **options: Any) -> Any:
        with ctrl_c_after(step):
            return own(*given, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "fit", pressed)
        yield
