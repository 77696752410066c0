"""RBMs of the binary density-estimation sets, stopped early on the validation rows, beside the
published columns.

``nltcs`` is fitted by exact likelihood; the others by ``partita fit rbm debd/NAME`` with its
defaults and the hidden units below, and scored by a sandwich with enough temperatures to be
trusted. The last lines show a fit that diverges, and who says so.
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

import partita
from harness import show
from partita.core.quantity import Quantity
from partita.datasets import load
from partita.evaluators import Sandwich
from partita.training.run import Run

DATA = "debd"
TEMPERATURES = 10_000


@dataclass(frozen=True)
class Case:
    """How a set is fitted, and what it is held against, in nats per test row."""

    hidden: int
    steps: int
    published: str
    target: float | None = None
    k: int = 1


CASES = {
    "plants": Case(200, 10_000, "HCLT -14.26, ID-SPN -12.54"),
    "baudio": Case(200, 10_000, "HCLT -39.77, ID-SPN -39.79"),
    "bnetflix": Case(200, 10_000, "HCLT -56.28, ID-SPN -56.36"),
    "adult": Case(200, 25_000, "RBM -16.26, NADE -13.19", -15.2),
    "mushrooms": Case(200, 20_000, "RBM -15.15, NADE -9.81", -12.6),
    "connect4": Case(300, 20_000, "RBM -22.66, NADE -11.99", -14.5),
    "ocr_letters": Case(300, 17_000, "RBM -43.05, NADE -27.22", -31.0, k=3),
}


def run(*names: str) -> None:
    """One line for each set: all of them, or those named."""
    for name in names or (*CASES, "nltcs", "diverging"):
        if name == "nltcs":
            exact()
        elif name == "diverging":
            diverging()
        else:
            by_chains(name, CASES[name])


def by_chains(name: str, case: Case) -> None:
    """Fit by the command line, score the saved run."""
    fitted, spent = fit(
        name, case.hidden, "--set", f"steps={case.steps}", "--set", f"n_steps={case.k}"
    )
    q = score(fitted, name, TEMPERATURES)
    reached = (
        ""
        if case.target is None
        else f"{case.target} reached: {q.low >= case.target and q.verdict == 'tight'}"
    )
    report(
        name,
        q,
        hidden=case.hidden,
        steps=case.steps,
        fit_seconds=spent,
        published=case.published,
        target=reached,
    )


def exact() -> None:
    """Maximum likelihood by enumeration, 16 hidden units."""
    fitted, spent = fit("nltcs", 16, "--set", "objective=exact")
    q = partita.evaluate(
        fitted.model, load("debd/nltcs").test.tensor(), generator=torch.Generator().manual_seed(1)
    )
    report(
        "nltcs",
        q,
        hidden=16,
        fit_seconds=spent,
        published="HCLT -5.999, ID-SPN -6.02",
        target=f"-6.0 reached: {q.value >= -6.0}",
    )


def diverging() -> None:
    """A learning rate far too high: validation keeps the last good weights, and the verdict of the
    last ones says not to publish.
    """
    data, generator = load("debd/mushrooms"), torch.Generator().manual_seed(0)
    for keep_best in (True, False):
        model = partita.models.RBM(data.train.width, 200, generator=generator)
        options = {
            "validation": data.valid if keep_best else None,
            "learning_rate": 5.0,
            "schedule": "constant",
            "steps": 4000,
        }
        fitted = partita.fit(model, data.train, generator=generator, **options)
        q = score(fitted, "mushrooms", 1000)
        report(
            f"mushrooms at rate 5, {'validated' if keep_best else 'not validated'}",
            q,
            warnings="; ".join(fitted.warnings) or "none",
        )


def fit(name: str, hidden: int, *more: str) -> tuple[Run, float]:
    """``partita fit rbm`` in a scratch folder, and its seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        command = [
            sys.executable,
            "-m",
            "partita.cli",
            "fit",
            "rbm",
            f"debd/{name}",
            "--set",
            f"n_hidden={hidden}",
            "--out",
            str(out),
            *more,
        ]
        started = time.perf_counter()
        subprocess.run([*command, "--quiet"], check=True, capture_output=True, text=True)
        return partita.load(out), time.perf_counter() - started


def score(fitted: Run, name: str, temperatures: int) -> Quantity:
    """Mean log-likelihood of the test rows from both sides."""
    test, generator = load(f"debd/{name}").test.tensor(), torch.Generator().manual_seed(1)
    return partita.evaluate(
        fitted.model, test, evaluator=Sandwich(temperatures=temperatures), generator=generator
    )


def report(name: str, q: Quantity, **more: object) -> None:
    """One line."""
    trust = (
        {"kind": q.kind}
        if q.kind == "exact"
        else {"low": q.low, "high": q.high, "verdict": q.verdict, "ess": q.details["ess"]}
    )
    show(name, nats=q.value, se_over_rows=float(q.se_data or 0.0), **trust, **more)


if __name__ == "__main__":
    run(*sys.argv[1:])
