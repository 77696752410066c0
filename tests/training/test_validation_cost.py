"""Validations take at most a fifth of a fit's time: their number is fixed before the first step,
recorded, and repeated by a resumed fit.
"""

from pathlib import Path

import pytest
import torch
from tests.pressing import interrupted_after
from tests.training.small_fits import same, scenario, timeless

import partita
from partita.core.support import Real
from partita.errors import Diverged
from partita.models import NeuralEnergy
from partita.nets import MLP
from partita.training import budget
from partita.training.session import Session

STEP = 1.0  # seconds of a step, by a clock that nothing else moves
SECONDS = 10.0  # of a validation


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that moves with every step, and validations that are measured as expensive."""
    now, advance = [0.0], Session.advance

    def slow(self: Session) -> dict[str, float]:
        now[0] += STEP
        return advance(self)

    monkeypatch.setattr(Session, "advance", slow)
    monkeypatch.setattr(budget.deadline, "now", lambda: now[0])
    monkeypatch.setattr(budget, "_cost_before_fit", lambda *_: SECONDS)
    return now


@pytest.mark.parametrize("name", ["pcd", "tempered", "cd"])
def test_expensive_validations_are_fewer_and_nothing_else_changes(
    name: str, clock: list[float], tmp_path: Path
) -> None:
    """Of 120 seconds of steps and 30 of validations, the latter are a fifth; the steps that were
    timed are undone.
    """
    bounded = scenario(name, tmp_path / "run")
    assert bounded.config["fit"]["validations"] == 3 == len(bounded.series("validation"))
    assert partita.load(tmp_path / "run").config["fit"]["validations"] == 3
    given = scenario(name, validations=3)
    assert same(dict(bounded.model.state_dict()), dict(given.model.state_dict()))
    assert timeless(bounded.history) == timeless(given.history)


def test_a_number_that_is_given_is_kept(clock: list[float]) -> None:
    assert len(scenario("pcd", validations=12).series("validation")) == 12
    assert len(scenario("pcd", validate_every=10).series("validation")) == 4


def test_a_resumed_fit_repeats_the_number_whatever_the_clock_says(
    clock: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_after(33, lambda: scenario("pcd", tmp_path / "run"))
    monkeypatch.setattr(budget, "_cost_before_fit", lambda *_: 1e-3)
    resumed = scenario("pcd", tmp_path / "run", resume=True)
    whole = scenario("pcd", validations=3)
    assert same(dict(resumed.model.state_dict()), dict(whole.model.state_dict()))
    assert timeless(resumed.history) == timeless(whole.history)


def test_exact_validations_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> float:
        raise AssertionError("timed")

    monkeypatch.setattr(budget, "_seconds_to_validate", refuse)
    assert scenario("pcd").config["fit"]["validations"] == 20  # few states
    g = torch.Generator().manual_seed(0)
    flow = partita.models.Flow(2, generator=g)
    x = torch.randn(50, 2, generator=g)
    partita.fit(flow, x, validation=x[:5], steps=2, generator=g)


def test_an_annealing_by_gradients_is_measured_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network's energies on real columns, where one validation takes as long as many steps."""
    monkeypatch.setattr(budget, "FREE_SECONDS", 0.0)
    g = torch.Generator().manual_seed(0)
    model = NeuralEnergy(MLP(6, 1, generator=g), Real(6))
    x = torch.randn(60, 6, generator=g)
    run = partita.fit(model, x, validation=x[:10], steps=12, generator=g)
    assert 1 <= run.config["fit"]["validations"] == len(run.series("validation")) < 12


def test_a_divergence_while_steps_are_timed_is_left_to_the_fit(
    clock: list[float], tmp_path: Path
) -> None:
    """Which records it and saves its last good weights."""
    with pytest.raises(Diverged):
        scenario("pcd", tmp_path / "run", learning_rate=1e3, schedule="constant")
    assert partita.load(tmp_path / "run", allow_diverged=True).stopped == "diverged"
