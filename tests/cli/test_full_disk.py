"""A disk that fills up: whatever is being written, the command ends with one sentence, nothing is
half there, and the work goes on later.

The tests let no file of this process grow beyond some bytes; the system then refuses to write as it
does on a full disk.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from partita import estimators
from partita.cli.app import app
from partita.estimators import BayesianLinearRegression, RBMDensity
from partita.experiment import leaderboard as on_disk
from partita.training import checkpoint, loop
from partita.training.session import Session

pytestmark = pytest.mark.skipif(
    not hasattr(resource, "RLIMIT_FSIZE"), reason="files have no limit here"
)
FIT = (
    "fit",
    "rbm",
    "bars-and-stripes",
    "--set",
    "n_hidden=3",
    "--set",
    "steps=60",
    "--quiet",
    "--out",
)
COMPARE = (
    "compare",
    "bars-and-stripes",
    "--models",
    "mixture,rbm",
    "--set",
    "mixture.n_components=2",
    "--set",
    "rbm.n_hidden=3",
    "--epochs",
    "20",
    "--no-report",
    "--quiet",
    "--out",
)


class Disk:
    """``fill(room)``: no file grows beyond so many bytes; ``empty()``: there is room again."""

    def __init__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self, room: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, self.before[1]))

    def empty(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


@pytest.fixture
def disk() -> Iterator[Disk]:
    found = Disk()
    yield found
    found.empty()


def fills_at(step: int, room: int, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a step of a fit of an RBM on there is no more room."""
    advance = Session.advance

    def filled(self: Session) -> Any:
        if self.step == step and type(self.bare).__name__ == "RBM":
            disk.fill(room)
        return advance(self)

    monkeypatch.setattr(Session, "advance", filled)


def message(result: Any) -> str:
    """The one sentence of an error."""
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
    return result.stderr


def content(folder: str) -> dict[str, Any]:
    """What two runs have alike, to the last digit."""
    saved = {
        name: plain(checkpoint.load_tree(Path(folder, "checkpoints", f"{name}.safetensors")))
        for name in ("last", "model")
    }
    lines = [
        {**json.loads(line), "seconds": 0}
        for line in Path(folder, "metrics.jsonl").read_text().splitlines()
    ]
    return {**saved, "metrics": lines}


def plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    return (
        [plain(value) for value in tree]
        if isinstance(tree, list)
        else tree.tolist()
        if hasattr(tree, "tolist")
        else tree
    )


@pytest.mark.parametrize(
    ("name", "often"), [("checkpoints/last.safetensors", True), ("metrics.jsonl", False)]
)
def test_a_fit_ends_with_a_sentence_and_goes_on_when_there_is_room(
    name: str, often: bool, call: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # so that saves, or records, are what there is no room for
    monkeypatch.setattr(loop, "RECORDS", 1 if often else 200)
    assert call(*FIT, "whole").exit_code == 0
    with monkeypatch.context() as patch:
        # a save is larger than that, and so are the records of 20 steps
        fills_at(20, 2000 if often else 300, disk, patch)
        patch.setattr(loop, "SAVE_SECONDS", -1.0 if often else 1000.0)
        printed = message(call(*FIT, "run"))
    disk.empty()
    assert printed == (
        f"Error: File too large: run/{name}. Free some space, or choose another place. "
        "The last save is in run. Go on with: partita fit --resume run\n"
    )
    assert not list(Path("run").rglob(".*"))
    assert checkpoint.load_tree(Path("run/checkpoints/last.safetensors"))["step"] == (
        20 if often else 0
    )
    assert call("fit", "--resume", "run", "--quiet").exit_code == 0
    assert content("run") == content("whole")


def test_a_fit_without_room_for_its_first_save_is_no_run(call: Any, disk: Disk) -> None:
    disk.fill(500)
    printed = message(call(*FIT, "run"))
    disk.empty()
    assert (
        printed
        == "Error: File too large: run/checkpoints/last.safetensors. Free some space, or choose "
        "another place.\n"
    )
    assert call(*FIT, "run").exit_code == 0


def test_the_last_file_of_a_fit_can_be_made_later(
    call: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(*FIT, "whole").exit_code == 0
    save = checkpoint.save_tree

    def filled(path: Path, *more: Any, **how: Any) -> None:
        disk.fill(500 if path.name == "model.safetensors" else 10**9)
        save(path, *more, **how)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_tree", filled)
        assert "run/checkpoints/model.safetensors" in message(call(*FIT, "run"))
    disk.empty()
    assert call("fit", "--resume", "run", "--quiet").exit_code == 0
    assert content("run") == content("whole")


def test_a_page_without_room_is_a_caution_and_the_fit_is_whole(call: Any, disk: Disk) -> None:
    disk.fill(200_000)
    result = CliRunner().invoke(app, [*FIT, "run"], catch_exceptions=False)
    disk.empty()
    assert (
        result.exit_code == 0
        and "Warning: no report was written: " in result.stderr
        and "File too large" in result.stderr
    )
    assert not list(Path("run").rglob("*report.html*"))
    assert call("evaluate", "run").exit_code == 0
    disk.fill(200_000)
    assert "File too large: run/report.html" in message(call("report", "run"))
    disk.empty()
    assert call("report", "run").exit_code == 0


@pytest.mark.parametrize("ending", [".csv", ".npy", ".npz", ".parquet", ".arrow"])
def test_an_imputation_without_room_leaves_the_one_before(
    ending: str, call: Any, disk: Disk
) -> None:
    assert call(*FIT, "run").exit_code == 0
    chance = np.random.default_rng(0)
    for name, rows in (("few.csv", 20), ("many.csv", 4000)):
        x = np.where(chance.random((rows, 16)) < 0.01, np.nan, chance.integers(0, 2, (rows, 16)))
        np.savetxt(
            name,
            x,
            fmt="%g",
            delimiter=",",
            header=",".join(f"x{i}" for i in range(16)),
            comments="",
        )
    out = f"filled{ending}"
    assert call("impute", "run", "few.csv", "--out", out).exit_code == 0
    before = Path(out).read_bytes()
    disk.fill(len(before) + 500)
    printed = message(call("impute", "run", "many.csv", "--out", out))
    disk.empty()
    assert "File too large: " in printed and ". Free some space" in printed
    assert Path(out).read_bytes() == before and not list(Path().glob(".*"))


@pytest.mark.parametrize(
    "made",
    [RBMDensity(2, random_state=0, epochs=2), BayesianLinearRegression()],
    ids=["density", "regression"],
)
def test_an_estimator_without_room_is_saved_when_there_is_some(
    made: Any, disk: Disk, tmp_path: Path
) -> None:
    x = np.random.default_rng(0).integers(0, 2, (40, 3)).astype(float)
    made.fit(x, x[:, 0])
    disk.fill(300)
    with pytest.raises(OSError, match="File too large") as found:
        made.save(tmp_path / "saved")
    disk.empty()
    assert found.value.filename == str(tmp_path / "saved" / "checkpoints" / "model.safetensors")
    made.save(tmp_path / "saved")  # nothing there says that the folder is taken
    assert type(estimators.load(tmp_path / "saved")) is type(made)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_score_that_cannot_be_written_is_reported(call: Any) -> None:
    assert call(*FIT, "run").exit_code == 0
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "partita", "evaluate", "run"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (
        done.returncode == 1
        and done.stderr
        == "Error: No space left on device. Free some space, or choose another place.\n"
    )


@pytest.mark.parametrize(
    "what", ["leaderboard.json", "rbm/checkpoints/last.safetensors", "rbm/score.safetensors"]
)
def test_a_comparison_ends_with_a_sentence_and_goes_on_when_there_is_room(
    what: str, call: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scores(folder: str) -> list[Any]:
        board = json.loads(Path(folder, "leaderboard.json").read_text())
        return [(line["name"], line["log_likelihood"], line["steps"]) for line in board["results"]]

    save_board, save = on_disk.write_board, checkpoint.save_tree

    def full_board(*arguments: Any) -> None:
        disk.fill(100)
        save_board(*arguments)

    def full_score(path: Path, *more: Any, **how: Any) -> None:
        disk.fill(100 if path.name == "score.safetensors" and "rbm" in str(path) else 10**9)
        save(path, *more, **how)

    assert call(*COMPARE, "whole").exit_code == 0
    with monkeypatch.context() as patch:
        if what == "leaderboard.json":
            patch.setattr(on_disk, "write_board", full_board)
        elif what == "rbm/score.safetensors":
            patch.setattr(checkpoint, "save_tree", full_score)
        else:
            fills_at(7, 500, disk, patch)
            patch.setattr(loop, "SAVE_SECONDS", -1.0)
            patch.setattr(loop, "RECORDS", 1)
        printed = message(call(*COMPARE, "board"))
    disk.empty()
    assert (
        f"File too large: board/{what}." in printed
        and "What is done is saved. Go on with: partita compare --resume board" in printed
    )
    assert call("compare", "--resume", "board", "--quiet", "--no-report").exit_code == 0
    assert scores("board") == scores("whole")
