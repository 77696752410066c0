"""Validation: the best weights are kept, patience stops, looking changes nothing, and what failed
is no score.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.by_hand import score
from tests.training.small_fits import OBJECTIVES, STEPS, machine, rows, same, scenario

import partita
from partita.core.quantity import Quantity
from partita.objectives import ExactLikelihood
from partita.training.validation import pessimistic

# columns that agree, and rows unlike them
AGREEING = torch.cat([torch.zeros(30, 4), torch.ones(30, 4)])
DISAGREEING = torch.tensor([[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]]).repeat(5, 1)


def test_the_best_validated_weights_are_kept(tmp_path: Path) -> None:
    """Learning makes the held-out rows less likely, so an early look is the best."""
    held_out = DISAGREEING
    run = partita.fit(
        machine(),
        AGREEING,
        OBJECTIVES["pcd"],
        validation=held_out,
        validate_every=2,
        epochs=20,
        batch_size=20,
        average=0.0,
        learning_rate=0.3,
        out=tmp_path / "run",
        generator=torch.Generator().manual_seed(3),
    )
    scores = run.series("validation")
    best_step, best = max(scores, key=lambda pair: pair[1])
    assert [step for step, _ in scores] == list(range(6, 61, 6))
    assert best_step < 60
    assert score(run.model, held_out) == pytest.approx(best, abs=1e-4)  # type: ignore[arg-type]
    assert [record["best"] for record in run.history if "best" in record] == [
        max(s for _, s in scores[: i + 1]) for i in range(10)
    ]
    last = partita.load(tmp_path / "run", weights="last").model
    assert score(last, held_out) == pytest.approx(scores[-1][1], abs=1e-4)  # type: ignore[arg-type]
    assert best > scores[-1][1] + 0.01


def test_patience_stops_a_fit_that_does_not_improve() -> None:
    run = partita.fit(
        machine(),
        rows(),
        ExactLikelihood(),
        validation=1 - rows(20, seed=2),
        validate_every=5,
        patience=3,
        steps=400,
        optimizer="sgd",
        batch_size=0,
        learning_rate=0.5,
        average=0.0,
        generator=torch.Generator().manual_seed(3),
    )
    scores = [value for _, value in run.series("validation")]
    assert run.stopped == "early stop"
    best = int(np.argmax(scores))
    assert len(scores) == best + 1 + 3
    assert run.steps == 5 * len(scores)
    assert score(run.model, 1 - rows(20, seed=2)) == pytest.approx(scores[best], abs=1e-4)  # type: ignore[arg-type]


def test_a_long_fit_is_looked_at_closely_where_it_begins() -> None:
    """Four validations of 400 steps; patience is counted by the hundred steps that lie between two
    on average.
    """
    options = {
        "validations": 4,
        "steps": 400,
        "optimizer": "sgd",
        "batch_size": 0,
        "learning_rate": 0.5,
        "average": 0.0,
    }

    def seen(patience: int) -> list[int]:
        run = partita.fit(
            machine(),
            AGREEING,
            ExactLikelihood(),
            validation=DISAGREEING,
            patience=patience,
            **options,
            generator=torch.Generator().manual_seed(3),
        )
        return [int(step) for step, _ in run.series("validation")]

    assert seen(patience=0) == [25, 100, 225, 400]
    # 25 is the best, 100 less than one mean distance after it, 225 two
    assert seen(patience=2) == [25, 100, 225]


def test_a_small_set_is_kept_from_being_learned_by_heart() -> None:
    """Ten rows with a network far larger than they are: what evenly spread looks would first see is
    worse than what is kept.
    """
    x = (torch.rand(40, 8, generator=torch.Generator().manual_seed(5)) < 0.5).float()
    g = torch.Generator().manual_seed(6)
    model = partita.models.Autoregressive(
        8, "binary", backbone="lstm", width=32, layers=1, generator=g
    )
    run = partita.fit(model, x[:10], validation=x[10:], steps=300, batch_size=10, generator=g)
    scores = dict(run.series("validation"))
    assert min(scores) < 10
    assert max(scores.values()) > max(score for step, score in scores.items() if step >= 50) + 0.1  # type: ignore[operator]


def test_without_patience_it_goes_on() -> None:
    run = scenario("pcd", patience=0)
    assert (run.stopped, run.steps) == ("finished", STEPS)


def test_looking_at_held_out_rows_changes_nothing(tmp_path: Path) -> None:
    for folder, held_out in (("with", rows(20, seed=2)), ("without", None)):
        partita.fit(
            machine(),
            rows(),
            OBJECTIVES["pcd"],
            validation=held_out,
            steps=60,
            average=0.5,
            out=tmp_path / folder,
            generator=torch.Generator().manual_seed(3),
        )
    for weights in ("last", "average"):
        looked, blind = (
            dict(partita.load(tmp_path / folder, weights=weights).model.state_dict())
            for folder in ("with", "without")
        )
        assert same(looked, blind)


def test_validation_scores_the_averaged_weights() -> None:
    run = partita.fit(
        machine(),
        rows(),
        OBJECTIVES["pcd"],
        validation=rows(20, seed=2),
        steps=40,
        validate_every=100,
        average=0.5,
        generator=torch.Generator().manual_seed(3),
    )
    ((step, value),) = run.series("validation")
    assert step == 40
    assert score(run.model, rows(20, seed=2)) == pytest.approx(value, abs=1e-5)  # type: ignore[arg-type]


def test_a_failed_annealing_is_no_score() -> None:
    fine = Quantity(-2.0, -3.0, -1.0, level=0.95, kind="upper", details={"ess": 9.0})
    assert pessimistic(fine) == -3.0 and pessimistic(Quantity(-2.0)) == -2.0
    for details in ({"ess": 1.1}, {"ess": 9.0, "mass_of_rows": 1.5}):
        assert pessimistic(replace(fine, details=details)) == float("-inf")
