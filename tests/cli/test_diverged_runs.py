"""A run that diverged is used only where that is allowed in so many words."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita
from partita.errors import RunError

REFUSAL = (
    "load: RUN must hold a fit that succeeded; got run, which diverged at step {step:,}. Fit it "
    "again, or give {word} to use what it left."
)
VERBS = {
    "sample": ("sample", "run", "-n", "5", "--out", "made.csv"),
    "evaluate": ("evaluate", "run"),
    "impute": ("impute", "run", "gaps.csv", "--out", "made.csv"),
    "anomalies": ("anomalies", "run", "table.csv", "--out", "made.csv"),
    "cluster": ("cluster", "run", "table.csv", "--out", "made.csv"),
    "report": ("report", "run", "--out", "made.html"),
}


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, one with gaps, and a run that diverged."""
    folder = tmp_path_factory.mktemp("diverged")
    x = np.random.default_rng(0).normal(size=(200, 3))
    np.savetxt(folder / "table.csv", x, delimiter=",", header="a,b,c", comments="")
    words = [["" if (i, j) == (4, 1) else f"{v}" for j, v in enumerate(r)] for i, r in enumerate(x)]
    lines = ["a,b,c", *(",".join(row) for row in words[:20])]
    (folder / "gaps.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def run(call: Any, diverged: Path, tmp_path: Path) -> partita.training.Run:
    """The run in the working directory, fitted once."""
    if not (diverged / "run").exists():
        table, out = str(diverged / "table.csv"), str(diverged / "run")
        rate = ("--set", "learning_rate=1e6", "--guard", "stop", "--set", "n_layers=1")
        done = call("fit", "vae", table, *rate, "--epochs", "5", "--out", out)
        assert done.exit_code == 1 and done.stderr.startswith("Error: ")
    shutil.copytree(diverged, tmp_path, dirs_exist_ok=True)
    return partita.load("run", allow_diverged=True)


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_uses_a_run_that_diverged(verb: str, run: partita.training.Run, call: Any) -> None:
    result = call(*VERBS[verb])
    refusal = REFUSAL.format(step=run.steps, word="--allow-diverged")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: {refusal}\n"
    assert not list(Path().glob("made.*"))


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"cluster"}))
def test_where_it_is_allowed_it_is_used_with_a_warning(
    verb: str, run: partita.training.Run, call: Any
) -> None:
    result = call(*VERBS[verb], "--allow-diverged")
    assert result.exit_code == 0
    assert "Warning: the fit in run diverged: what it left may be" in result.stderr
    assert verb == "evaluate" or list(Path().glob("made.*"))


def test_in_python_it_is_refused_too(run: partita.training.Run) -> None:
    with pytest.raises(RunError) as caught:
        partita.load("run")
    assert str(caught.value) == REFUSAL.format(step=run.steps, word="allow_diverged")
    assert run.stopped == "diverged"
