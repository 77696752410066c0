"""``partita compare``: one leaderboard over objectives, one figure, every contender a saved run."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from partita.cli import show
from partita.cli.fit import describe_data
from partita.cli.runs import free_path, short_name
from partita.cli.values import sort_settings
from partita.core.errors import InputError
from partita.core.quantity import Quantity
from partita.data import load as load_data
from partita.report import bake_off as picture
from partita.training.bake_off import BakeOff, Contender, Entry, contenders_by_objective
from partita.training.families import family_named, named_evaluator

LIMIT = 0.5  # minutes for each contender, where nothing is said


def report(
    source: str, model: str, objectives: str, pairs: list[str], budget: dict[str, Any], evaluator: str, out: Path | None, png: Path | None,
    *, seed: int, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Fit one model by several objectives, score each by the same likelihood, print, draw and save."""
    family = family_named(model)
    said = sort_settings(family, pairs)
    binarize = said.data.get("binarize", "auto")
    dataset = load_data(source, binarize="none" if binarize is None else binarize)
    names = [name.strip() for name in objectives.split(",") if name.strip()]
    contenders, left_out = contenders_by_objective(family, said.family, names, dataset.train)
    folder = free_path(Path("runs") / f"compare-{family.name}-{short_name(source)}") if out is None else out
    about = {"data": describe_data(source, dataset), "command": shlex.join(["partita", *sys.argv[1:]])}
    contest = BakeOff(dataset, {**said.fit, **budget}, LIMIT, named_evaluator(evaluator, "compare"), seed, folder, about)
    entries = _carry_out(contest, contenders, talk=not (as_json or quiet))
    title = f"{family.name} on {dataset.name}: {len(contest.scored)} {'training' if dataset.test is None else 'test'} rows"
    _save(folder, title, entries, left_out, png, dataset.entropy)
    if as_json:
        show.print_json(_json(folder, title, entries, left_out))
    else:
        _print(title, entries, left_out, folder, contest.dataset.entropy)
    if any(entry.run is not None and entry.run.stopped == "interrupted" for entry in entries):
        raise typer.Exit(130)


def _carry_out(contest: BakeOff, contenders: Sequence[Contender], talk: bool) -> list[Entry]:
    """Every contender in turn, with a line when it starts and one when it is done."""

    def announce(contender: Contender) -> bool:
        if talk:
            typer.echo(f"{contender.name} ({1 + contenders.index(contender)} of {len(contenders)}) ...")
        return talk

    if talk and not contest.options.keys() & {"minutes", "epochs", "steps"}:
        typer.echo(f"{len(contenders)} objectives, at most {60 * LIMIT:.0f} seconds each; --minutes or --epochs gives them more or less.")
    entries = []
    for entry in contest.run(contenders, announce):
        entries.append(entry)
        if talk:
            typer.echo(f"  {entry.problem or entry.score} ({entry.seconds:.0f} s)")
    return entries


def ordered(entries: Sequence[Entry]) -> list[Entry]:
    """Best score first; entries without one last."""
    return sorted(entries, key=lambda entry: float("inf") if entry.score is None else -entry.score.value)


def _print(title: str, entries: Sequence[Entry], left_out: dict[str, str], folder: Path, entropy: float | None) -> None:
    typer.echo(f"\n{title}\nMean log-likelihood per row, in nats (higher is better; ± rows: standard error over them):")
    columns = ["objective", "nats", "interval", "± rows", "kind", "verdict", "seconds"]
    show.table(columns, [_line(entry) for entry in ordered(entries)], whole=len(columns))
    if entropy is not None:
        typer.echo(f"No model scores above {-entropy:.3f} on average: the data's negative entropy.")
    for entry in entries:
        if entry.problem:
            typer.echo(f"{entry.name}: {entry.problem}")
        for text in [] if entry.run is None else entry.run.cautions:
            show.caution(f"{entry.name}: {text}")
    for name, reason in left_out.items():
        typer.echo(f"Left out {name}: {reason}.")
    typer.echo(f"Runs, table and figure are in {folder}")


def _line(entry: Entry) -> list[str]:
    q = entry.score
    if q is None:
        return [entry.name, "", "", "", "failed", "", f"{entry.seconds:.1f}"]
    interval, verdict = ("", "") if q.kind == "exact" else (f"{q.low:.3f} to {q.high:.3f}", q.verdict)
    return [entry.name, f"{q.value:.3f}", interval, f"{q.se_data:.3f}", q.kind, verdict, f"{entry.seconds:.1f}"]


def _save(folder: Path, title: str, entries: Sequence[Entry], left_out: dict[str, str], png: Path | None, entropy: float | None) -> None:
    """The table as JSON and the figure as HTML beside the runs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compare.json").write_text(show.as_json_text(_json(folder, title, entries, left_out)) + "\n")
    if any(entry.score is not None for entry in entries):
        try:
            picture.write(entries, title, folder / "compare.html", png, None if entropy is None else -entropy)
        except InputError as error:
            show.caution(str(error))


def _json(folder: Path, title: str, entries: Sequence[Entry], left_out: dict[str, str]) -> dict[str, Any]:
    return {"title": title, "folder": str(folder), "entries": [_entry_json(entry) for entry in ordered(entries)], "left_out": left_out}


def _entry_json(entry: Entry) -> dict[str, Any]:
    score: Quantity | None = entry.score
    run = {} if entry.run is None else {"run": str(entry.run.folder), "steps": entry.run.steps, "stopped": entry.run.stopped}
    likelihood = None if score is None else show.quantity_json(score)
    return {"name": entry.name, "log_likelihood": likelihood, "seconds": round(entry.seconds, 3), "problem": entry.problem or None, **run}
