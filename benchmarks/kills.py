"""A run killed a hundred times at random moments, by SIGKILL, SIGTERM or Ctrl-C, against one that was left alone: every bit must agree.

The moment is drawn anew for each kill, so that it falls into steps, validations, saves and the first imports alike. ``KILLS=10`` is
shorter.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from harness import show
from partita.training import checkpoint

KILLS = int(os.environ.get("KILLS", "100"))
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SLOWEST = 2.5  # seconds after the first save within which a kill falls
FIT = ("fit", "rbm", "bars-and-stripes", "--epochs", "4000", "--quiet", "--no-report", "--set", "objective=pcd")
PROGRAM = "import partita.training.loop as loop; loop.SAVE_SECONDS = 0.05; from partita.cli import main; main()"


def run() -> None:
    """Kill and resume until the fit is done; then compare with the whole one."""
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as scratch:
        whole, killed = Path(scratch) / "whole", Path(scratch) / "killed"
        _command(*FIT, "--out", str(whole)).wait()
        counts = dict.fromkeys((s.name for s in SIGNALS), 0)
        kills = rounds = 0
        while kills < KILLS:
            target = killed.with_name(f"killed-{rounds}")
            kills += _one_run(target, chance, counts, KILLS - kills)
            rounds += 1
            _assert_same(target, whole)
        show("killed and resumed", kills=kills, runs=rounds, identical=True, **counts)


def _one_run(folder: Path, chance: random.Random, counts: dict[str, int], most: int) -> int:
    """One fit, killed at random moments and taken up again until it ends; how often it was killed."""
    kills, arguments = 0, (*FIT, "--out", str(folder))
    while True:
        process = _command(*arguments)
        if kills < most and _strike(process, folder, chance, counts):
            kills += 1
            arguments = ("fit", "--resume", str(folder), "--quiet", "--no-report") if (folder / "config.json").exists() else arguments
            continue
        process.wait()
        model = folder / "checkpoints" / "model.safetensors"
        if model.exists() and checkpoint.load(model)["stopped"] == "finished":
            return kills
        arguments = ("fit", "--resume", str(folder), "--quiet", "--no-report")


def _strike(process: Any, folder: Path, chance: random.Random, counts: dict[str, int]) -> bool:
    """Wait for the folder and a random time, then send a random signal; False if the fit was done before."""
    until = time.monotonic() + 60
    while not (folder / "checkpoints" / "last.safetensors").exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(chance.uniform(0, SLOWEST))
    if process.poll() is not None:
        return False
    number = chance.choice(SIGNALS)
    process.send_signal(number)
    process.wait()
    counts[number.name] += 1
    return True


def _command(*arguments: str) -> Any:
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], env={**os.environ, "OMP_NUM_THREADS": "1"}, **silent)


def _assert_same(folder: Path, whole: Path) -> None:
    for name in ("last.safetensors", "model.safetensors"):
        a, b = (checkpoint.load(path / "checkpoints" / name) for path in (folder, whole))
        if not _same(a, b):
            raise SystemExit(f"{name} differs after kills: {[key for key in b if not _same(a[key], b[key])]}")
    metrics = [[_timeless(line) for line in (path / "metrics.jsonl").read_text().splitlines()] for path in (folder, whole)]
    if metrics[0] != metrics[1]:
        raise SystemExit("metrics.jsonl differs after kills")


def _timeless(line: str) -> dict[str, Any]:
    return {**json.loads(line), "seconds": 0}


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return len(a) == len(b) and all(map(_same, a, b)) if isinstance(a, list) else a == b


if __name__ == "__main__":
    run()
