"""``partita fit rbm mnist --minutes 10`` with its defaults, then ``partita.evaluate``: 500 hidden
units, dynamic binarization.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import partita
from harness import show
from partita.datasets import load

DATA = "mnist"
MINUTES = 10.0


def run(minutes: float = MINUTES) -> None:
    """Fit by the command line, score the saved run, print what the score costs."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        command = [
            sys.executable,
            "-m",
            "partita.cli",
            "fit",
            "rbm",
            "mnist",
            "--minutes",
            str(minutes),
            "--out",
            str(out),
            "--json",
        ]
        started = time.perf_counter()
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        spent = time.perf_counter() - started
        print(json.dumps(json.loads(printed), indent=None)[:600])
        fitted = partita.load(out)
    show("fit", minutes=spent / 60, steps=fitted.steps)
    test = load("mnist").test.tensor(torch.Generator().manual_seed(0))
    started = time.perf_counter()
    q = partita.evaluate(fitted.model, test, generator=torch.Generator().manual_seed(1))
    spent = time.perf_counter() - started
    show(
        "test log-likelihood",
        nats=q.value,
        low=q.low,
        high=q.high,
        width=q.width,
        verdict=q.verdict,
        evaluate_seconds=spent,
    )
    show(
        "target",
        pessimistic_end="at least -85.5, width at most 1",
        reached=q.low >= -85.5 and q.width <= 1,
    )
    show("details", **{key: value for key, value in q.details.items() if isinstance(value, float)})


if __name__ == "__main__":
    run(float(sys.argv[1]) if len(sys.argv) > 1 else MINUTES)
