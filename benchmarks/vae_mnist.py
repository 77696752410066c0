"""``partita fit vae mnist --minutes 10`` with its defaults (latent 50, two layers of 200), then
IWAE with 5,000 draws on test digits.

``python benchmarks/vae_mnist.py MINUTES ROWS`` is a shorter one; by default all 10,000 test digits
are scored, which takes longer than the fit.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import partita
from harness import show
from partita.datasets import load
from partita.evaluators import IWAE

DATA = "mnist"
MINUTES, ROWS, DRAWS = 10.0, 10_000, 5000


def run(minutes: float = MINUTES, rows: int = ROWS) -> None:
    """Fit by the command line, print the curve on validation rows, score the saved run."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        command = [
            sys.executable,
            "-m",
            "partita.cli",
            "fit",
            "vae",
            "mnist",
            "--minutes",
            str(minutes),
            "--out",
            str(out),
            "--quiet",
        ]
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, text=True)
        spent = time.perf_counter() - started
        fitted = partita.load(out)
    fit_seconds = max(record.get("seconds", 0.0) for record in fitted.history)
    show(
        "fit",
        minutes=fit_seconds / 60,
        with_its_score=spent / 60,
        steps=fitted.steps,
        epochs=float(fitted.history[-1]["epoch"]),
    )
    for step, value in fitted.series("validation"):
        show("validation, IWAE-16", step=step, nats=float(value))
    test = load("mnist").test.tensor(torch.Generator().manual_seed(0))[:rows]
    for draws, some in ((2, test), (50, test), (DRAWS, test[:1000]), (DRAWS, test)):
        started = time.perf_counter()
        q = partita.evaluate(
            fitted.model, some, evaluator=IWAE(draws), generator=torch.Generator().manual_seed(1)
        )
        show(
            f"test, IWAE-{draws}",
            nats=q.value,
            low=q.low,
            high=q.high,
            se_data=q.se_data,
            rows=len(some),
            verdict=q.verdict,
            active=q.details["active_units"],
            seconds=time.perf_counter() - started,
        )
        if draws == DRAWS:
            show(
                "target",
                at_least=-89.5,
                reached=q.value >= -89.5,
                published_after_3280_epochs=-86.76,
            )


if __name__ == "__main__":
    said = sys.argv[1:]
    run(float(said[0]) if said else MINUTES, int(said[1]) if len(said) > 1 else ROWS)
