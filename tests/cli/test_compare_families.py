"""``partita compare DATA``: families on one leaderboard; what fails is a line, what is done is
kept.
"""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partita.cli.leaderboard import LiveBoard, fitting
from partita.core.quantity import Quantity
from partita.errors import Diverged
from partita.experiment import compare, experiment
from partita.experiment.compare import Candidate, Result
from partita.experiment.leaderboard import Board
from partita.families import FAMILIES
from partita.report.ranking import COLUMNS
from partita.training.budget import LEAST_STEPS
from partita.training.session import Session

SMALL = (
    "--set",
    "rbm.n_hidden=3",
    "--set",
    "mixture.n_components=2",
    "--set",
    "vae.n_hidden=8",
    "--epochs",
    "3",
    "--no-report",
)
QUICK = ("--models", "mixture,rbm,vae", *SMALL)


def scores(board: Any) -> dict[str, Any]:
    """What does not depend on the clock."""
    lines = (
        board
        if isinstance(board, dict)
        else json.loads(Path(board, "leaderboard.json").read_text())
    )["results"]
    return {
        line["name"]: (line["log_likelihood"], line["difference"], line["tied"], line["steps"])
        for line in lines
    }


def test_a_leaderboard_in_the_terminal_as_json_and_as_csv(call: Any, table: Path) -> None:
    result = call(
        "compare", table, "--models", "mixture,rbm,vae,flow", *SMALL, "--json", "--out", "board"
    )
    board = json.loads(result.stdout)
    assert result.exit_code == 0 and board["results"][0]["name"] == "mixture"
    assert {line["name"] for line in board["results"]} == {"mixture", "rbm", "vae"} and set(
        board["left_out"]
    ) == {"flow"}
    best, *others = board["results"]
    assert best["difference"] is None and best["tied"] is None
    for line in others:
        q, d = line["log_likelihood"], line["difference"]
        assert (
            d["value"] == pytest.approx(q["value"] - best["log_likelihood"]["value"])
            and d["low"] < d["value"] < d["high"]
        )
        assert (
            line["tied"] == (d["low"] <= 0 <= d["high"])
            and d["n"] == q["n"] == best["log_likelihood"]["n"]
        )
        assert (
            line["bits_per_dimension"]["value"] == pytest.approx(-q["value"] / 5 / np.log(2))
            and line["parameters"] > 0
        )
    saved = json.loads(Path("board/leaderboard.json").read_text())
    assert saved == {name: value for name, value in board.items() if name != "report"}
    rows = list(csv.DictReader(Path("board/leaderboard.csv").read_text().splitlines()))
    assert [row["name"] for row in rows] == [line["name"] for line in board["results"]]
    assert (
        float(rows[1]["difference_low"]) == others[0]["difference"]["low"]
        and rows[0]["difference"] == ""
    )
    text = call("compare", table, *QUICK, "--out", "board2", "--models", "mixture,rbm").output
    assert (
        "★" in text
        and "mixture (1 of 2) ..." in text
        and "bits/dim" in text
        and "Runs and leaderboard.json" in text
    )
    assert "Intervals cover: a difference's with 95 %, the spread over rows included." in text
    assert (
        "Models: mixture is Mixture(2, 5, bernoulli); rbm is RBM(5, 3)." in text
        and rows[0]["model"] == "Mixture(2, 5, bernoulli)"
    )


@pytest.mark.parametrize(
    ("name", "more"),
    [("mixture", ("component=bernoulli", "n_components=2")), ("vae", ("n_hidden=8", "patience=5"))],
)
def test_numbers_are_those_of_fit(call: Any, table: Path, name: str, more: tuple[str, ...]) -> None:
    board = json.loads(call("compare", table, *QUICK, "--seed", "3", "--json").stdout)
    words = [word for pair in more for word in ("--set", pair)]
    alone = json.loads(
        call("fit", name, table, *words, "--epochs", "3", "--seed", "3", "--json").stdout
    )
    assert scores(board)[name][0] == alone["log_likelihood"]


def test_a_family_that_fails_is_a_line_and_the_others_finish(
    call: Any, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = experiment.fit

    def fit(model: Any, *more: Any, **options: Any) -> Any:
        if type(model).__name__ == "RBM":
            raise Diverged("fit: the loss of 'model' must stay finite.")
        if type(model).__name__ == "VAE":
            raise RuntimeError("linalg.cholesky: the input is not positive-definite\nmore")
        return own(model, *more, **options)

    monkeypatch.setattr(experiment, "fit", fit)
    result = call("compare", table, *QUICK, "--quiet", "--out", "board")
    assert result.exit_code == 0
    assert "rbm: fit: the loss of 'model' must stay finite." in result.output
    assert "vae: RuntimeError: linalg.cholesky: the input is not positive-definite" in result.output
    lines = {
        line["name"]: line
        for line in json.loads(Path("board/leaderboard.json").read_text())["results"]
    }
    assert (
        lines["mixture"]["log_likelihood"] is not None
        and lines["rbm"]["problem"]
        and lines["vae"]["log_likelihood"] is None
    )
    # where no candidate is left
    assert call("compare", table, "--models", "rbm,vae", *SMALL, "--quiet").exit_code == 1


def test_an_interrupted_comparison_goes_on_bit_for_bit(
    call: Any, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of the second of three: the first is not fitted again, the second goes
    on, and all ends as if never stopped.
    """
    advance, own, fitted = Session.advance, experiment.fit, []

    def interrupted(self: Session) -> Any:
        if self.step == 4 and type(self.bare).__name__ == "RBM":
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)
        return advance(self)

    def fit(model: Any, *more: Any, **options: Any) -> Any:
        fitted.append((type(model).__name__, options.get("resume", False)))
        return own(model, *more, **options)

    assert call("compare", table, *QUICK, "--quiet", "--out", "whole").exit_code == 0
    monkeypatch.setattr(experiment, "fit", fit)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "advance", interrupted)
        result = call("compare", table, *QUICK, "--quiet", "--out", "board")
    assert result.exit_code == 130 and "partita compare --resume board" in result.stderr
    line = next(line for line in result.output.splitlines() if line.split()[:1] == ["rbm"])
    assert (
        "interrupted" in line
        and "failed" not in result.output
        and "Not yet fitted: vae." in result.output
    )
    assert re.search(r"rbm: interrupted after 5 of \d+ steps, which are saved", result.output)
    stopped = json.loads(Path("board/leaderboard.json").read_text())
    assert stopped["waiting"] == ["vae"] and stopped["results"][-1]["stopped"] == "interrupted"
    assert call("report", "board").exit_code == 0
    page = Path("board/report.html").read_text()
    assert (
        ">interrupted<" in page
        and ">failed<" not in page
        and "Not yet fitted: vae. Go on with: partita compare --resume board" in page
    )
    assert call("compare", "--resume", "board", "--quiet", "--no-report").exit_code == 0
    assert fitted == [("Mixture", False), ("RBM", False), ("RBM", True), ("VAE", False)]
    assert (
        scores("board") == scores("whole")
        and json.loads(Path("board/leaderboard.json").read_text())["waiting"] == []
    )
    # the same again: nothing is left to do
    assert call("compare", table, *QUICK, "--quiet", "--out", "board").exit_code == 0
    assert len(fitted) == 4
    other = call("compare", table, *QUICK, "--quiet", "--out", "board", "--seed", "1")
    assert (
        other.exit_code == 1 and "seed must be that of the comparison in board, 0" in other.stderr
    )


def test_a_fit_that_the_clock_cuts_short_says_so(
    call: Any, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "LEAST_MINUTES", 1e-6)
    options = (
        "--models",
        "mixture,rbm",
        "--set",
        "mixture.n_components=2",
        "--no-report",
        "--quiet",
    )
    text = call("compare", table, *options, "--minutes", "0.0001", "--out", "board").output
    cut = {
        line["name"]: line["cut_short"]
        for line in json.loads(Path("board/leaderboard.json").read_text())["results"]
    }
    (message,) = [
        line
        for line in text.splitlines()
        if line.startswith("Cut short by the clock, and perhaps better with more minutes: ")
    ]
    assert (
        cut == {"mixture": True, "rbm": True}
        and f"rbm ({LEAST_STEPS} steps)" in message
        and "mixture (" in message
    )
    assert sum(line.rstrip().endswith(" cut") for line in text.splitlines()) == 2
    assert "Warning: mixture: 1 of 4 starts tried: there was no time for more." in text
    assert (
        "Cut short"
        not in call("compare", table, *options, "--set", "steps=10", "--out", "stepped").output
    )


def test_what_has_no_likelihood_stands_apart(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "real.npy"
    np.save(path, np.random.default_rng(0).normal(size=(200, 2)) * [1.0, 5.0])
    options = (
        "--models",
        "gan,ppca,mixture",
        "--set",
        "mixture.n_components=1",
        "--epochs",
        "2",
        "--quiet",
        "--out",
        "board",
    )
    text = call("compare", path, *options).output
    head, apart = text.split("Without a likelihood, and so apart")
    assert "gan" in apart and "gan" not in head and "mixture" in head
    line = next(
        line
        for line in json.loads(Path("board/leaderboard.json").read_text())["results"]
        if line["name"] == "gan"
    )
    assert (
        line["log_likelihood"]["kind"] == "none"
        and line["difference"] is None
        and line["bits_per_dimension"] is None
    )
    page = Path("board/report.html").read_text()
    assert (
        "Without a likelihood" in page
        and "Leaderboard" in page
        and f"Report: {Path('board/report.html')}" in text
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--models", "rbmm"], "Did you mean 'rbm'?"),
        (["--set", "rbm.hiden=3"], "Did you mean 'n_hidden'?"),
        (["--set", "batchsize=3"], "Did you mean 'batch_size'?"),
        (
            ["--set", "hidden"],
            "compare: --set must be key=value or family.key=value; got 'hidden'.",
        ),
        (["--evaluator", "magic"], "compare: --evaluator must be one of 'auto', "),
        (["--minutes", "0"], "compare: --minutes must"),
        (
            ["--minutes", "1", "--epochs", "1"],
            "compare: one of --minutes and --epochs must be given; got both.",
        ),
        (
            ["--models", "flow,gan"],
            "compare: DATA must be a table that at least one family can be compared on; got none "
            "(flow: ",
        ),
    ],
)
def test_slips_are_named_before_any_work(
    call: Any, table: Path, arguments: list[str], words: str
) -> None:
    result = call("compare", table, *arguments)
    assert result.exit_code == 1 and words in result.stderr
    assert not Path("runs").exists()


def test_options_that_do_not_go_together(call: Any, table: Path) -> None:
    assert (
        call("compare").exit_code
        == call("compare", table, "--models", "rbm", "--model", "rbm").exit_code
        == 2
    )
    assert call("compare", table, "--resume", "board").exit_code == 2
    assert call("compare", table, "--model", "rbm", "--column", "a=real").exit_code == 2
    result = call("compare", "--resume", "nowhere")
    assert result.exit_code == 1 and "found no comparison.json in nowhere" in result.stderr


def test_the_table_grows_and_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = [Candidate(name, FAMILIES[name]) for name in ("rbm", "vae", "belief")]
    watch = LiveBoard(candidates, Board("title", width=5), talk=False)
    watch.done(Result("rbm", Quantity(-3.0, n=2, details={"rows": np.array([-2.0, -4.0])}), 1.0))
    watch.begin(candidates[1])
    monkeypatch.setenv("COLUMNS", "200")
    cells = [[str(cell) for cell in column.cells] for column in watch.table().columns]
    assert cells[1] == ["rbm", "vae", "belief"] and cells[2] == ["-3.000", "fitting", "waiting"]
    lines = [
        [
            "★",
            "autoregressive",
            "-20.000",
            "-20.001 to -19.999",
            "0.200",
            "0.4500",
            "best",
            "estimate",
            "tight",
            "45,504",
            "12.0",
        ]
    ]
    assert fitting(lines, "candidate")[0] == COLUMNS
    monkeypatch.setenv("COLUMNS", "80")
    assert fitting(lines, "candidate")[0] == [
        name
        for name in COLUMNS
        if name not in ("± rows", "parameters", "verdict", "bits/dim", "interval")
    ]


def test_one_row_has_no_spread(call: Any) -> None:
    Path("three.csv").write_text("a,b\n0.5,1.5\n1.5,0.25\n-1.25,2.5\n")
    done = call("compare", "three.csv", "--models", "ppca", "--out", "board", "--epochs", "2")
    line = next(line for line in done.stdout.splitlines() if line.startswith("★"))
    assert (
        "1 test row" in done.stdout
        and "0.000" not in line
        and "0.000" not in call("evaluate", "board/ppca").stdout
    )


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    words = np.random.default_rng(0).choice(["abra", "cadabra", "hokus"], 300)
    # lines of different lengths
    path.write_text("\n".join(" ".join(line) for line in np.array_split(words, 47)))
    return path


TINY = [
    word
    for name in ("hyena", "lstm")
    for pair in ("width=8", "n_layers=1")
    for word in ("--set", f"{name}.{pair}")
]


def test_text_is_compared_by_the_models_of_sequences(call: Any, text: Path) -> None:
    """On the same windows of the same text, each as ``partita fit`` would; bits are counted by
    character.
    """
    words = (
        "compare",
        text,
        "--models",
        "hyena,lstm",
        *TINY,
        "--set",
        "length=16",
        "--set",
        "steps=6",
        "--out",
        "board",
    )
    board = json.loads(call(*words, "--json").stdout)
    assert {line["name"] for line in board["results"]} == {
        "hyena",
        "lstm",
    } and "test sequences of at most 16 steps" in board["title"]
    for line in board["results"]:
        q, name = line["log_likelihood"], line["name"]
        assert q["kind"] == "exact" and line["bits_per_dimension"]["value"] == pytest.approx(
            -q["details"]["per_step"] / np.log(2)
        )
        alone = call(
            "fit",
            name,
            text,
            "--set",
            "width=8",
            "--set",
            "n_layers=1",
            "--set",
            "length=16",
            "--set",
            "steps=6",
            "--set",
            "patience=5",
            "--json",
        )
        assert json.loads(alone.stdout)["log_likelihood"] == q
        assert json.loads(call("evaluate", f"board/{name}", "--json").stdout)["value"] == q["value"]
    page = Path("board/report.html").read_text()
    assert (
        "Leaderboard" in page
        and "Draws of lstm" in page
        and "This part could not be made" not in page
    )
    assert board["results"][1]["tied"] is not None


def test_a_table_with_an_ending_of_text_is_a_table(call: Any, tmp_path: Path) -> None:
    np.savetxt(tmp_path / "table.txt", np.random.default_rng(0).normal(size=(60, 2)))
    board = json.loads(
        call("compare", tmp_path / "table.txt", "--models", "ppca", "--json", "--no-report").stdout
    )
    assert "12 test rows, 2 columns" in board["title"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--models", "rbm"],
            "at least one family can be compared on; got none (rbm: it takes tables, and these are "
            "sequences).",
        ),
        (
            ["--set", "hyena.length=8"],
            "--set length must be the same for all families, which are scored on the same steps; "
            "got 'hyena.length=8'.",
        ),
        (["--set", "length=100000"], "must have at least 100000 steps to learn from"),
    ],
)
def test_slips_about_sequences_are_named(
    call: Any, text: Path, arguments: list[str], words: str
) -> None:
    result = call("compare", text, *arguments)
    assert result.exit_code == 1 and words in result.stderr
    assert not Path("runs").exists()


def test_how_text_is_read_is_no_setting_of_a_table(call: Any, table: Path) -> None:
    result = call("compare", table, "--set", "length=8")
    assert (
        result.exit_code == 1
        and "compare: --set length must go with text or other sequences; got the table"
        in result.stderr
    )


def test_a_column_of_numbers_is_a_series_where_models_of_sequences_are_named(
    call: Any, tmp_path: Path
) -> None:
    np.savetxt(tmp_path / "wave.csv", np.sin(np.arange(600) / 5), header="level", comments="")
    words = (
        "compare",
        tmp_path / "wave.csv",
        "--models",
        "hyena,vrnn",
        *TINY[:4],
        "--set",
        "vrnn.n_hidden=8",
        "--set",
        "length=16",
    )
    board = json.loads(call(*words, "--set", "steps=4", "--json", "--no-report").stdout)
    assert {line["log_likelihood"]["kind"] for line in board["results"]} == {"exact", "lower"}
    assert "test sequences of at most 16 steps" in board["title"]
