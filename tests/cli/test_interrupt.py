"""Ctrl-C saves and says how to go on; a resumed run ends bit for bit like one never stopped; ``--help`` stays light."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import partita
from partita.training import checkpoint

PARTITA = [sys.executable, "-c", "from partita.cli import main; main()"]
STEPS, STOP = 60, 23
FIT = ["fit", "rbm", "digits", "--set", "hidden=8", "--set", f"steps={STEPS}", "--quiet", "--out"]
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


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool((a == b).all()) if hasattr(a, "all") else a == b


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals are sent in another way there")
def test_ctrl_c_saves_and_resume_goes_on_bit_for_bit(tmp_path: Path, call: Any) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}  # sums depend on it in their last bit
    command = [sys.executable, "-c", INTERRUPTED, *FIT, "stopped"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 130
    assert "saved in stopped. Go on with: partita fit --resume stopped" in done.stderr and "Traceback" not in done.stderr
    stopped = partita.load(tmp_path / "stopped")
    assert stopped.steps == STOP + 1 and stopped.stopped == "interrupted"  # the step that it met is finished
    assert call("fit", "--resume", "stopped", "--quiet").exit_code == 0
    assert call(*FIT, "whole").exit_code == 0
    for name in ("last", "model"):
        a, b = (checkpoint.load(tmp_path / run / "checkpoints" / f"{name}.safetensors") for run in ("stopped", "whole"))
        assert equal(a, b)
    assert partita.load(tmp_path / "stopped").stopped == "finished"


def test_a_finished_run_is_scored_again_not_trained_again(call: Any) -> None:
    call("fit", "rbm", "bars-and-stripes", "--epochs", "2", "--quiet", "--out", "run")
    before = Path("run/checkpoints/last.safetensors").stat().st_mtime_ns
    result = call("fit", "--resume", "run")
    assert result.exit_code == 0 and "Finished after 4 steps." in result.output
    assert Path("run/checkpoints/last.safetensors").stat().st_mtime_ns == before


def test_help_and_version_do_not_import_torch() -> None:
    code = "import sys; from partita.cli.app import app; app(['--help'], standalone_mode=False); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")


def test_errors_of_the_installed_command_have_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run([*PARTITA, "fit", "rbm", "nothing.csv"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("Error: ") and "Traceback" not in done.stderr
