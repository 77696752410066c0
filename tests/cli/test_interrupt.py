"""Ctrl-C saves and says how to go on; a resumed run ends bit for bit like one never stopped; ``--help`` stays light."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import partita
from partita.training import checkpoint

PARTITA = [sys.executable, "-c", "from partita.cli import main; main()"]
FIT = ["fit", "rbm", "digits", "--set", "hidden=8", "--set", "steps=3000", "--quiet", "--out"]


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
    process = subprocess.Popen([*PARTITA, *FIT, "stopped"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 60
    while not (tmp_path / "stopped" / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "saved in stopped. Go on with: partita fit --resume stopped" in errors and "Traceback" not in errors
    step = partita.load(tmp_path / "stopped").steps
    assert 0 < step < 3000
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
