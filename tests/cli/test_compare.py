"""``partita compare``: every objective that the support allows, one table, one figure; what fails is a line that says why."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import partita
from partita.core.errors import Diverged
from partita.core.quantity import Quantity
from partita.report.bake_off import figure
from partita.training import bake_off
from partita.training.bake_off import Entry

DISCRETE = ["pcd", "cd", "exact", "tempered", "replay", "nce", "pseudo-likelihood", "ratio-matching"]
REAL = ["score-matching", "sliced-score-matching", "denoising-score-matching"]
QUICK = ("--epochs", "2", "--set", "chains=8", "--set", "hidden=3", "--set", "validations=2", "--quiet")


def names_of(result: Any) -> set[str]:
    return {entry["name"] for entry in json.loads(result.stdout)["entries"]}


def test_all_objectives_of_binary_rows(call: Any, table: Path) -> None:
    result = call("compare", table, "--model", "rbm", *QUICK, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert names_of(result) == set(DISCRETE)
    assert set(report["left_out"]) == set(REAL)
    scores = [entry["log_likelihood"] for entry in report["entries"]]
    assert all(score["kind"] == "exact" and score["n"] == scores[0]["n"] for score in scores)
    assert [score["value"] for score in scores] == sorted((score["value"] for score in scores), reverse=True)
    folder = Path(report["folder"])
    assert json.loads((folder / "compare.json").read_text()) == report
    page = (folder / "compare.html").read_text()
    assert "pseudo-likelihood" in page
    assert 'src="http' not in page  # self-contained
    for entry in report["entries"]:  # every contender is a run that scores as the table says
        run = json.loads(call("evaluate", entry["run"], "--json").stdout)
        assert run["value"] == pytest.approx(entry["log_likelihood"]["value"], abs=1e-6)


def test_all_objectives_of_real_rows(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "real.npy"
    np.save(path, np.random.default_rng(0).normal(size=(200, 3)) * [1.0, 5.0, 0.1] + 3.0)
    result = call("compare", path, "--model", "rbm", *QUICK, "--json")
    assert names_of(result) == {*set(DISCRETE) - {"pseudo-likelihood", "ratio-matching"}, *REAL}
    assert all(entry["log_likelihood"] is not None for entry in json.loads(result.stdout)["entries"])


def test_an_objective_that_fails_is_a_line_and_the_others_finish(call: Any, table: Path) -> None:
    named = ("--model", "maxent", "--objectives", "score-matching, exact,nce")
    result = call("compare", table, *named, "--epochs", "2", "--set", "l2=0.001", "--quiet")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    ranked = [line.split()[0] for line in lines if line.startswith(("exact ", "nce ", "score-matching "))]
    assert ranked == ["exact", "nce", "score-matching"]  # the one without a score is last
    assert any(line.startswith("score-matching ") and "failed" in line for line in lines)
    assert "score-matching: ScoreMatching cannot run on MaxEnt(pairwise, 5): its coordinates are not all real" in result.output


def test_a_fit_that_diverges_is_a_line_too(call: Any, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = bake_off.fit

    def fit(model: Any, rows: Any, objective: Any, **more: Any) -> Any:
        if type(objective).__name__ == "NCE":
            raise Diverged("fit: the loss of 'model' must stay finite.")
        return own(model, rows, objective, **more)

    monkeypatch.setattr(bake_off, "fit", fit)
    result = call("compare", table, "--objectives", "nce,cd", *QUICK)
    assert "nce: fit: the loss of 'model' must stay finite." in result.output
    assert "cd " in result.output


def test_where_all_fail_there_is_a_table_and_no_figure(call: Any, table: Path) -> None:
    result = call("compare", table, "--objectives", "score-matching", *QUICK, "--json")
    report = json.loads(result.stdout)
    assert report["entries"][0]["log_likelihood"] is None
    assert not (Path(report["folder"]) / "compare.html").exists()


def test_the_same_seed_gives_the_same_table(call: Any, table: Path) -> None:
    def scores(seed: str) -> list[float]:
        made = json.loads(call("compare", table, "--objectives", "nce,pcd", *QUICK, "--seed", seed, "--json").stdout)
        return [entry["log_likelihood"]["value"] for entry in made["entries"]]

    assert scores("1") == scores("1") != scores("2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--objectives", "ncee"], "compare: --objectives must be one of 'all', 'pcd', "),
        (["--model", "rbmm"], "Did you mean 'rbm'?"),
        (["--model", "rbm", "--set", "hiden=3"], "Did you mean 'hidden'?"),
        (["--model", "rbm", "--evaluator", "magic"], "compare: evaluator must be one of 'auto', "),
    ],
)
def test_slips_are_named_before_any_work(call: Any, table: Path, arguments: list[str], words: str) -> None:
    result = call("compare", table, *arguments)
    assert result.exit_code == 1
    assert words in result.stderr
    assert not Path("runs").exists()


def test_exact_is_left_out_of_all_where_states_are_many() -> None:
    g = partita.core.rng.keyed(0)
    few, many, too_many = (partita.models.RBM(30, hidden, generator=g) for hidden in (16, 18, 24))
    assert bake_off.reason_left_out("exact", few) is None
    assert bake_off.reason_left_out("exact", many) == "2^18 states are many to sum at every step; ask for it by name"
    assert "neither side has at most 2^20 states" in str(bake_off.reason_left_out("exact", too_many))


def test_the_figure_has_best_on_top_and_a_cross_where_a_score_is_not_to_be_trusted() -> None:
    entries = [
        Entry("poor", Quantity(-9.0, -9.5, -8.5, 0.95, "estimate", verdict="do not publish"), 1.0),
        Entry("good", Quantity(-5.0), 1.0),
        Entry("failed", None, 0.1, problem="no"),
    ]
    drawn = figure(entries, "a title")
    assert list(drawn.layout.yaxis.categoryarray) == ["poor", "good"]
    assert {trace.name: trace.marker.symbol for trace in drawn.data} == {"good": "circle", "poor": "x"}
    assert {trace.name: (trace.error_x.array[0], trace.error_x.arrayminus[0]) for trace in drawn.data}["poor"] == (0.5, 0.5)


def test_recipes_that_would_take_longer_share_a_limit() -> None:
    """What was said counts; what stops by itself is left alone; the others get the limit only if their recipe is longer."""
    rows = partita.data.as_rows((np.random.default_rng(0).random((60, 5)) < 0.4).astype("float32"))
    model = partita.models.RBM(5, 2, generator=partita.core.rng.keyed(0))
    dataset = partita.data.Dataset("mine", rows)

    def budget(limit: float, objective: Any, **options: Any) -> dict[str, Any]:
        return bake_off.BakeOff(dataset, options, limit)._budget(model, objective, rows)

    assert budget(1e-4, partita.objectives.PCD()) == {"minutes": 1e-4}
    assert budget(1e4, partita.objectives.PCD()) == {}
    assert budget(1e-4, partita.objectives.PCD(), epochs=3) == {"epochs": 3}
    assert budget(1e-4, partita.objectives.ExactLikelihood()) == {}
    untouched = partita.models.RBM(5, 2, generator=partita.core.rng.keyed(0))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), untouched.parameters(), strict=True))


def test_a_pipe_shows_how_far_a_fit_is(call: Any, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partita.training.progress.SECONDS_BETWEEN_LINES", 0.0)
    result = call("compare", table, "--objectives", "nce,cd", *[word for word in QUICK if word != "--quiet"])
    assert "nce (1 of 2) ..." in result.output and " steps, " in result.output and " a second" in result.output
