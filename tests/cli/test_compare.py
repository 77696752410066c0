"""``partita compare --model``: every objective that the support allows, on one leaderboard; what
fails is a line that says why.
"""

import json
from pathlib import Path
from signal import SIGINT, raise_signal
from typing import Any

import numpy as np
import pytest

import partita
from partita.errors import Diverged
from partita.experiment import experiment
from partita.experiment.candidates import reason_left_out
from partita.training.session import Session

DISCRETE = [
    "pcd",
    "cd",
    "exact",
    "tempered",
    "replay",
    "nce",
    "pseudo-likelihood",
    "ratio-matching",
]
REAL = ["score-matching", "sliced-score-matching", "denoising-score-matching"]
QUICK = (
    "--epochs",
    "2",
    "--set",
    "n_chains=8",
    "--set",
    "n_hidden=3",
    "--set",
    "validations=2",
    "--quiet",
    "--no-report",
)


def names_of(result: Any) -> set[str]:
    return {entry["name"] for entry in json.loads(result.stdout)["results"]}


def test_all_objectives_of_binary_rows(call: Any, table: Path) -> None:
    result = call("compare", table, "--model", "rbm", *QUICK, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert names_of(result) == set(DISCRETE)
    assert set(report["left_out"]) == set(REAL)
    scores = [entry["log_likelihood"] for entry in report["results"]]
    assert all(score["kind"] == "exact" and score["n"] == scores[0]["n"] for score in scores)
    assert [score["value"] for score in scores] == sorted(
        (score["value"] for score in scores), reverse=True
    )
    folder = Path(report["folder"])
    assert json.loads((folder / "leaderboard.json").read_text()) == {
        name: report[name] for name in report if name != "report"
    }
    assert folder.name == "compare-rbm-spikes-1" and report["title"].endswith(
        "spikes.csv: 60 test rows, 5 columns"
    )
    for entry in report["results"]:  # every candidate is a run that scores as the table says
        run = json.loads(call("evaluate", entry["run"], "--json").stdout)
        assert run["value"] == pytest.approx(entry["log_likelihood"]["value"], abs=1e-6)


def test_all_objectives_of_real_rows(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "real.npy"
    np.save(path, np.random.default_rng(0).normal(size=(200, 3)) * [1.0, 5.0, 0.1] + 3.0)
    result = call("compare", path, "--model", "rbm", *QUICK, "--json")
    assert names_of(result) == {*set(DISCRETE) - {"pseudo-likelihood", "ratio-matching"}, *REAL}
    assert all(
        entry["log_likelihood"] is not None for entry in json.loads(result.stdout)["results"]
    )


def test_an_objective_that_fails_is_a_line_and_the_others_finish(call: Any, table: Path) -> None:
    named = ("--model", "maxent", "--objectives", "score-matching, exact,nce")
    result = call(
        "compare", table, *named, "--epochs", "2", "--set", "l2=0.001", "--quiet", "--no-report"
    )
    assert result.exit_code == 0
    table_of = result.output[result.output.index("objective ") :].splitlines()[1:4]
    # the one without a score is last
    assert [line[3:].split()[0] for line in table_of] == ["exact", "nce", "score-matching"]
    assert "failed" in table_of[-1] and table_of[0].startswith("★")
    assert (
        "score-matching: ScoreMatching cannot run on MaxEnt(pairwise, 5): its coordinates are not "
        "all real" in result.output
    )


def test_a_fit_that_diverges_is_a_line_too(
    call: Any, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = experiment.fit

    def fit(model: Any, rows: Any, objective: Any, **more: Any) -> Any:
        if type(objective).__name__ == "NCE":
            raise Diverged("fit: the loss of 'model' must stay finite.")
        return own(model, rows, objective, **more)

    monkeypatch.setattr(experiment, "fit", fit)
    result = call("compare", table, "--objectives", "nce,cd", *QUICK)
    assert "nce: fit: the loss of 'model' must stay finite." in result.output
    assert "cd " in result.output


def test_where_all_fail_there_is_a_leaderboard_of_failures(call: Any, table: Path) -> None:
    result = call("compare", table, "--objectives", "score-matching", *QUICK, "--json")
    report = json.loads(result.stdout)
    assert (
        report["results"][0]["log_likelihood"] is None
        and "cannot run on RBM" in report["results"][0]["problem"]
    )


def test_an_interrupted_comparison_of_objectives_goes_on(
    call: Any, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two is stopped; both parts of its fit count among its seconds, and its curve
    goes on along the same clock.
    """
    advance = Session.advance

    def interrupted(self: Session) -> Any:
        if self.step == 4 and type(self.objective).__name__ == "NCE":
            raise_signal(SIGINT)
        return advance(self)

    words = ("compare", table, "--objectives", "cd,nce", *QUICK, "--out", "board")
    with monkeypatch.context() as patch:
        patch.setattr(Session, "advance", interrupted)
        assert call(*words).exit_code == 130
    metrics = Path("board/nce/metrics.jsonl")
    first = [{**json.loads(line), "seconds": 100.0} for line in metrics.read_text().splitlines()]
    metrics.write_text("".join(json.dumps(record) + "\n" for record in first))
    assert call("compare", "--resume", "board", "--quiet").exit_code == 0
    board = json.loads(Path("board/leaderboard.json").read_text())
    seconds = {line["name"]: line["seconds"] for line in board["results"]}
    assert seconds["cd"] < 60 and 100 < seconds["nce"] < 160
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert all(100 <= record["seconds"] < 160 for record in records if "seconds" in record) and len(
        records
    ) > len(first)
    assert "nce" in Path("board/report.html").read_text()


def test_the_same_seed_gives_the_same_table(call: Any, table: Path) -> None:
    def scores(seed: str) -> list[float]:
        made = json.loads(
            call(
                "compare", table, "--objectives", "nce,pcd", *QUICK, "--seed", seed, "--json"
            ).stdout
        )
        return [entry["log_likelihood"]["value"] for entry in made["results"]]

    assert scores("1") == scores("1") != scores("2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--objectives", "ncee"], "compare: --objectives must be one of 'all', 'pcd', "),
        (["--model", "rbmm"], "Did you mean 'rbm'?"),
        (
            ["--model", "vae"],
            "--model must be a family of energy models, which have a choice of objectives; got "
            "'vae'.",
        ),
        (["--model", "rbm", "--set", "hiden=3"], "Did you mean 'n_hidden'?"),
        (
            ["--model", "rbm", "--evaluator", "magic"],
            "compare: --evaluator must be one of 'auto', ",
        ),
    ],
)
def test_slips_are_named_before_any_work(
    call: Any, table: Path, arguments: list[str], words: str
) -> None:
    result = call("compare", table, *arguments)
    assert result.exit_code == 1
    assert words in result.stderr
    assert not Path("runs").exists()


def test_exact_is_left_out_of_all_where_states_are_many() -> None:
    g = partita.core.rng.keyed(0)
    few, many, too_many = (partita.models.RBM(30, hidden, generator=g) for hidden in (16, 18, 24))
    assert reason_left_out("exact", few) is None
    assert (
        reason_left_out("exact", many)
        == "2^18 states are many to sum at every step; ask for it by name"
    )
    assert "neither side has at most 2^20 states" in str(reason_left_out("exact", too_many))


def test_a_pipe_says_who_is_being_fitted(call: Any, table: Path) -> None:
    result = call(
        "compare", table, "--objectives", "nce,cd", *[word for word in QUICK if word != "--quiet"]
    )
    assert "2 objectives, as long as their steps take." in result.output
    assert (
        "nce (1 of 2) ..." in result.output
        and "cd (2 of 2) ..." in result.output
        and "exact by" in result.output
    )
