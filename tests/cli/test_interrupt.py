"""Ctrl-C saves and says how to go on; a resumed run ends bit for bit like one never stopped;
``--help`` stays light.
"""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import partita
from partita.cli.app import app
from partita.training import checkpoint

PARTITA = [sys.executable, "-c", "from partita.cli import main; main()"]
STEPS, STOP = 60, 23
FIT = ["fit", "rbm", "digits", "--set", "n_hidden=8", "--set", f"steps={STEPS}", "--quiet", "--out"]
INTERRUPTED = f"""
import os, signal
from partita.cli import main
from partita.training.session import Session
advance = Session.advance
def interrupted(self):
    if self.step == {STOP}:
        os.kill(os.getpid(), signal.SIGINT)
    return advance(self)
Session.advance = interrupted
main()
"""


AT_ONCE = """
import sys
class Pressed:
    def find_spec(self, name, *where):
        if name == "partita.cli.app":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Pressed())
from partita.cli import main
main()
"""


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool((a == b).all()) if hasattr(a, "all") else a == b


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals are sent in another way there")
def test_ctrl_c_saves_and_resume_goes_on_bit_for_bit(tmp_path: Path, call: Any) -> None:
    # sums depend on it in their last bit
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-c", INTERRUPTED, *FIT, "stopped"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 130
    assert (
        "saved in stopped. Go on with: partita fit --resume stopped" in done.stderr
        and "Traceback" not in done.stderr
    )
    stopped = partita.load(tmp_path / "stopped")
    # the step that it met is finished
    assert stopped.steps == STOP + 1 and stopped.stopped == "interrupted"
    assert call("fit", "--resume", "stopped", "--quiet").exit_code == 0
    assert call(*FIT, "whole").exit_code == 0
    for name in ("last", "model"):
        a, b = (
            checkpoint.load_tree(tmp_path / run / "checkpoints" / f"{name}.safetensors")
            for run in ("stopped", "whole")
        )
        assert equal(a, b)
    assert partita.load(tmp_path / "stopped").stopped == "finished"


def test_ctrl_c_before_there_are_commands_is_named_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE, "models"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


def test_a_finished_run_is_scored_again_not_trained_again(call: Any) -> None:
    call("fit", "rbm", "bars-and-stripes", "--epochs", "2", "--quiet", "--out", "run")
    before = Path("run/checkpoints/last.safetensors").stat().st_mtime_ns
    result = call("fit", "--resume", "run")
    assert result.exit_code == 0 and "Finished after 4 steps." in result.output
    assert Path("run/checkpoints/last.safetensors").stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "fork") or not Path("/proc/self/task").exists(),
    reason="processes are forked in another way there",
)
def test_whatever_is_killed_ends_as_if_never_struck() -> None:
    """Three of the strikes of ``benchmarks/kills.py``, which has a hundred: the writing of saves, a
    comparison and an evaluation.
    """
    kills = Path(__file__).parents[2] / "benchmarks" / "kills.py"
    few = {**os.environ, "KILLS": "3"}
    done = subprocess.run(
        [sys.executable, str(kills)],
        env=few,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 3 and all(
        ": kills 1 " in line and line.endswith("identical 1 of 1") for line in lines
    ), done.stdout


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def test_a_damaged_checkpoint_warns_and_the_one_before_it_is_used(call: Any) -> None:
    assert call(*FIT, "whole").exit_code == call(*FIT, "run").exit_code == 0
    Path("run/checkpoints/model.safetensors").unlink()
    damaged(Path("run/checkpoints/last.safetensors"))
    result = call("fit", "--resume", "run", "--quiet")
    assert result.exit_code == 0
    assert (
        "Warning: load: run/checkpoints/last.safetensors must be a whole partita checkpoint"
        in result.stderr
    )
    assert "The save before it is used." in result.stderr
    for name in ("last", "model"):
        assert equal(
            *(
                checkpoint.load_tree(Path(run, "checkpoints", f"{name}.safetensors"))
                for run in ("run", "whole")
            )
        )


def test_damaged_weights_of_a_finished_run_are_made_again(call: Any) -> None:
    assert call(*FIT, "run").exit_code == 0
    model = Path("run/checkpoints/model.safetensors")
    before = copy.deepcopy(checkpoint.load_tree(model))  # what is loaded may still be the file
    damaged(model)
    result = call("fit", "--resume", "run", "--quiet")
    assert result.exit_code == 0 and "It is made again from the last checkpoint." in result.stderr
    assert equal(checkpoint.load_tree(model), before)


def test_a_comparison_makes_damaged_scores_and_weights_again(call: Any) -> None:
    sizes = ("--set", "mixture.n_components=2", "--set", "rbm.n_hidden=3", "--epochs", "5")
    words = ("compare", "bars-and-stripes", "--models", "mixture,rbm", *sizes)
    assert call(*words, "--quiet", "--no-report", "--out", "board").exit_code == 0
    before = json.loads(Path("board/leaderboard.json").read_text())["results"]
    damaged(Path("board/rbm/score.safetensors"))
    damaged(Path("board/rbm/checkpoints/model.safetensors"))
    again = call("compare", "--resume", "board", "--quiet", "--no-report")
    assert again.exit_code == 0 and "It is scored again." in again.stderr
    assert "It is made again from the last checkpoint." in again.stderr
    after = json.loads(Path("board/leaderboard.json").read_text())["results"]
    assert [(line["name"], line["log_likelihood"]) for line in after] == [
        (line["name"], line["log_likelihood"]) for line in before
    ]


HEAVY = ("torch", "numpy", "scipy", "sklearn", "pyarrow", "pandas", "numba", "plotly")
IMPORTED = f"""
import sys
from partita.cli.app import app
try:
    app(sys.argv[1:], prog_name="partita")
except SystemExit as end:
    assert end.code == int(sys.stdin.read()), end.code
print("imported:", *(name for name in {HEAVY} if name in sys.modules))
"""
VERBS = [command.name or command.callback.__name__ for command in app.registered_commands]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        *(((verb.replace("_", "-"), "--help"), 0) for verb in VERBS),
        (("--help",), 0),
        (("--version",), 0),
        (("models",), 0),
        (("fit", "--no-such-option"), 2),
        (("fit",), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_help_lists_and_wrong_usage_import_nothing_heavy(words: tuple[str, ...], code: int) -> None:
    command = [sys.executable, "-c", IMPORTED, *words]
    done = subprocess.run(command, input=str(code), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "imported:", done.stdout


def test_errors_of_the_installed_command_have_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PARTITA, "fit", "rbm", "nothing.csv"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("Error: ") and "Traceback" not in done.stderr
