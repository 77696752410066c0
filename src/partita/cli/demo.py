"""``python -m partita.cli.demo``: two families on the built-in digits, and a leaderboard on rows they have not seen."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
import typer
from torch.nn import functional

from partita.cli import fit, show
from partita.cli.runs import free_path
from partita.core.quantity import Quantity
from partita.core.support import Binary
from partita.data import load
from partita.evaluators import Sandwich, evaluate
from partita.models import MaxEnt

DATA = "digits"
MAXENT = ["chains=64", "batch_size=100", "learning_rate=0.02", "l2=1e-4", "steps=1500"]
RBM = ["hidden=64"]


@dataclass(frozen=True)
class Entry:
    """A line of the leaderboard."""

    name: str
    score: Quantity
    folder: Path | None


def main() -> None:
    """Fit, score, print the leaderboard and where the runs are."""
    torch.set_num_threads(1)  # the models are small: more threads would wait for one another
    typer.echo(f"Fitting two models to {DATA}: handwritten digits as 8 x 8 binary pixels.\n")
    entries = [
        baseline(),
        fitted("pairwise maximum entropy", "maxent", MAXENT, Sandwich(temperatures=300, chains=32), validate=False),
        fitted("RBM, 64 hidden units", "rbm", RBM, Sandwich(temperatures=2000)),
    ]
    leaderboard(entries)
    runs = [entry.folder for entry in entries if entry.folder is not None]
    typer.echo("\nRuns: " + ", ".join(map(str, runs)))
    typer.echo(f"Next: partita evaluate {runs[-1]}\n      partita sample {runs[-1]} -n 64\n      partita fit rbm {DATA} --minutes 5")


def baseline() -> Entry:
    """Independent pixels: maximum entropy given the means, whose optimum and normaliser have a closed form."""
    data = load(DATA)
    g = torch.Generator().manual_seed(0)
    model = MaxEnt("independent", Binary(data.train.width), generator=g)
    model.initialise(data.train, generator=g)
    log_z = Quantity(float(functional.softplus(model.theta.detach().double()).sum()), method="closed form")
    q = evaluate(model, data.test.tensor(), evaluator=log_z, generator=g) if data.test is not None else log_z
    return Entry("independent pixels", q, None)


def fitted(name: str, family: str, settings: list[str], evaluator: Sandwich, *, validate: bool = True) -> Entry:
    """One fit with its bar, saved under runs, and its score on the test rows."""
    plan = fit.planned(family, DATA, free_path(Path("runs") / f"demo-{family}"), settings, {}, 0)
    plan = plan if validate else replace(plan, train=plan.encoding.rows(plan.dataset.train), validation=None)
    typer.echo(f"{name}: {fit.data_card(plan)}")
    run = fit.train(plan, True)
    if run.stopped == "interrupted":
        typer.echo(f"Interrupted; go on with: partita fit --resume {plan.folder}", err=True)
        raise typer.Exit(130)
    for text in run.cautions:
        show.caution(text)
    return Entry(name, fit.score(plan, run, "test", evaluator), plan.folder)


def leaderboard(entries: list[Entry]) -> None:
    """Best first; all are log masses of the same rows, so they share a column."""
    typer.echo("\nMean log-likelihood per held-out row, in nats (higher is better; ± rows: standard error over them):")
    ordered = sorted(entries, key=lambda entry: -entry.score.value)
    show.table(["model", "nats", "interval", "± rows", "kind", "verdict"], [_line(entry.name, entry.score) for entry in ordered], whole=6)


def _line(name: str, q: Quantity) -> list[str]:
    exact = q.kind == "exact"
    interval = "" if exact else f"{q.low:.2f} to {q.high:.2f}"
    return [name, f"{q.value:.2f}", interval, f"{q.se_data:.2f}", q.kind, "" if exact else q.verdict]


if __name__ == "__main__":
    try:
        main()
    except typer.Exit as stop:  # Ctrl-C during a fit or a score, which has already said what was saved
        raise SystemExit(stop.exit_code) from None
