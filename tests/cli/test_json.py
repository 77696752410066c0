"""Every verb with ``--json``: one JSON document on stdout and nothing else; on an error nothing
there, one line on stderr, exit code 1.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from partita.cli.app import app
from partita.cli.lab import LABS

SMALL = {
    "memory": ["length=16", "width=8", "draws=2"],
    "partition": ["visible=4", "hidden=2", "temperatures=5", "chains=4"],
    "no-free-lunch": ["width=2", "height=2", "train=2"],
    "gradients": ["bits=2", "draws=1000"],
}
GOOD: dict[str, list[list[str]]] = {
    "fit": [
        ["mixture", "table.csv", "--epochs", "2", "--set", "n_components=2", "--no-report"],
        ["--resume", "run"],
    ],
    "evaluate": [["run"], ["run", "table.csv", "--split", "train", "--bits"]],
    "sample": [["run", "-n", "3"]],
    "impute": [["run", "table.csv", "--out", "filled.parquet"]],
    "anomalies": [["run", "table.csv", "--alpha", "0.5"]],
    "cluster": [["run", "table.csv", "--probabilities"]],
    "schema": [["table.csv"]],
    "compare": [
        [
            "table.csv",
            "--models",
            "mixture",
            "--epochs",
            "1",
            "--no-report",
            "--set",
            "mixture.n_components=1",
            "--out",
            "board",
        ],
        ["--resume", "board", "--no-report"],
    ],
    "report": [["run"]],
    "lab": [
        [],
        *([name, *(word for pair in SMALL[name] for word in ("--set", pair))] for name in LABS),
    ],
    "models": [[], ["--grid"]],
    "data": [[]],
    "log-z": [["target.py:bell", "--support", "real:1", "--out", "z.html", "--draws", "z.csv"]],
}
BAD = {
    "fit": ["mixture", "nowhere.csv"],
    "evaluate": ["nowhere"],
    "sample": ["nowhere"],
    "impute": ["run", "nowhere.csv"],
    "anomalies": ["run", "table.csv", "--alpha", "2"],
    "cluster": ["run", "other.csv"],
    "schema": ["nowhere.csv"],
    "compare": ["nowhere.csv"],
    "report": ["nowhere"],
    "lab": ["nothing"],
    "log-z": ["target.py:nothing", "--support", "real:1"],
    "models": ["rmb"],
}


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), prog_name="partita", catch_exceptions=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of several sorts of columns, and a run on it."""
    folder, g = tmp_path_factory.mktemp("json"), np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": g.normal(size=60), "n": g.poisson(3, 60), "w": g.choice(["x", "y"], 60)}
    )
    frame.loc[4, "a"] = np.nan
    frame.to_csv(folder / "table.csv", index=False)
    frame.drop(columns="n").to_csv(folder / "other.csv", index=False)
    (folder / "target.py").write_text("def bell(x):\n    return -0.5 * (x * x).sum(-1)\n")
    words = ("--set", "n_components=2", "--no-report", "--quiet", "--out", str(folder / "run"))
    assert invoke("fit", "mixture", str(folder / "table.csv"), *words).exit_code == 0
    return folder


@pytest.fixture(autouse=True)
def inside(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    monkeypatch.delenv("PARTITA_DATA", raising=False)


def test_every_verb_is_looked_at() -> None:
    import typer

    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    # which nothing can go wrong with
    assert commands == GOOD.keys() and commands - BAD.keys() == {"data"}
    assert LABS.keys() == SMALL.keys()


@pytest.mark.parametrize("verb", GOOD)
def test_what_is_printed_is_one_document(verb: str) -> None:
    for words in GOOD[verb]:
        result = invoke(verb, *words, "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout) and result.stdout.endswith("\n")


@pytest.mark.parametrize("verb", BAD)
def test_an_error_is_one_line_elsewhere(verb: str) -> None:
    result = invoke(verb, *BAD[verb], "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
