"""``partita fit``: plan, train, save, score; Ctrl-C saves, ``--resume`` continues bit for bit."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import typer

from partita.cli import output
from partita.core.checks import check_count
from partita.core.quantity import Quantity
from partita.datasets.open import open_dataset
from partita.errors import RunError
from partita.experiment.experiment import Experiment
from partita.experiment.saved import DataRecord, free_path, short_name
from partita.experiment.settings import sort_settings
from partita.families import family_named
from partita.families.table_kind import settings_by_table, table_kind
from partita.report.format import latent_use, meaning, verdict
from partita.runtime import processes
from partita.runtime.untrusted import check_like, read_record
from partita.tables.column_kinds import kinds_in_words
from partita.tables.encoding import Encoding
from partita.tables.frames import TABLES
from partita.training import Run
from partita.training.budget import Plan
from partita.training.run import read_config
from partita.training.run_folder import is_begun

if TYPE_CHECKING:
    from lightning_fabric import Fabric

KINDS_IN_WORDS = {
    "real": "real, standardized",
    "scaled": "real, scaled",
    "spin": "spins",
    "signs": "binary, read as spins",
    "median": "real, cut at their medians",
    "median-signs": "real, cut at their medians and read as spins",
    "quantile": "real, cut at their quartiles",
    "count": "counts",
    "category": "categories",
    "steps": "sequences",
}
# the part of a config that `partita fit` writes and resumes from
PLANNED = {
    "encoding": {"kind": str},
    "seed": int,
    "family": {"name": str, "settings": dict},
    "command": str,
    "steps": int,
    "fit": dict,
    "objective": dict,
    "data": {"source": str, "rows": [int]},
}


def requested(
    model: str,
    source: str,
    out: Path | None,
    pairs: list[str],
    budget: dict[str, Any],
    seed: int,
    columns: dict[str, str] | None = None,
) -> Experiment:
    """The experiment that the command line describes."""
    family = family_named(model)
    settings = sort_settings(family, pairs)
    binarize = settings.data.get("binarize", "auto")
    dataset = open_dataset(
        source,
        binarize="none" if binarize is None else binarize,
        words=family.takes_words(settings.family) or Path(source).suffix.lower() in TABLES,
        missing=bool(family.missing),
        reading=family.reading(settings.family),
        columns=columns,
    )
    check_count("fit", "seed", seed, 0)
    by_table = settings_by_table(family.name, table_kind(dataset), dataset.train)
    default = Path("runs") / f"{family.name}-{short_name(source)}"
    return Experiment(
        dataset,
        family,
        {**by_table, **settings.family},
        {**settings.fit, **budget},
        torch.Generator().manual_seed(seed),
        free_path(default) if out is None else out,
        {
            "data": DataRecord.of(source, dataset).as_json(),
            "command": shlex.join(["partita", *sys.argv[1:]]),
        },
    )


def resumed(folder: Path) -> Experiment:
    """The experiment that a run's config describes."""
    config = read_config(folder)
    if config.get("data") is None or not PLANNED.keys() <= config.keys():
        raise RunError(
            f"fit: --resume needs a run that `partita fit` made; {folder} does not say its data "
            "and settings. Resume it in Python, with partita.fit(..., resume=True)."
        )
    check_like(config, PLANNED, "config.json", whole=True)
    family = family_named(config["family"]["name"])
    data = read_record(DataRecord, config["data"], "config.json: data")
    dataset = data.opened(
        config["data"]["source"],
        words=config["encoding"].get("kind") in ("category", "mixed"),
        missing=bool(family.missing),
    )
    if (len(dataset.train), dataset.train.width) != data.rows:
        now = f"{len(dataset.train)} x {dataset.train.width}"
        then = " x ".join(map(str, data.rows))
        raise RunError(
            f"fit: {data.source!r} must be the data that {folder} was fitted to, {then}; got "
            f"{now}. Restore the file."
        )
    seed = check_count("fit", "the seed of the run", config["seed"], 0)
    return Experiment(
        dataset,
        family,
        config["family"]["settings"],
        {},
        torch.Generator().manual_seed(seed),
        folder,
        {name: config[name] for name in ("data", "command")},
        fitted_encoding=Encoding.from_json(config["encoding"], dataset.train.width),
    )


def carry_out(
    experiment: Experiment,
    *,
    resume: bool = False,
    fabric: "Fabric | None" = None,
    as_json: bool,
    quiet: bool,
    page: bool = True,
) -> None:
    """Fit, report what was saved, score the held-out split and write the page; of several processes
    only rank 0 writes.
    """
    talk, team = not (as_json or quiet), processes.current()
    experiment = replace(experiment, folder=team.broadcast(experiment.folder))
    run = experiment.finished() if resume else None
    plan = experiment.plan_to_resume() if resume else experiment.plan()
    if talk:
        typer.echo(data_card(experiment, plan))
    run = run or train(experiment, plan, talk, fabric)
    for text in run.warnings:
        output.print_warning(text)
    folder = experiment.folder
    if run.stopped == "interrupted":
        typer.echo(
            f"Interrupted at step {run.steps}; saved in {folder}. Go on with: partita fit --resume "
            f"{folder}",
            err=True,
        )
        raise typer.Exit(130)
    q = score(experiment, run)
    written = _write_page(experiment, run, q) if page and team.is_zero else None
    if not as_json:
        _print_result(experiment, run, q, written)
        return
    output.print_json(
        {
            "run": str(folder),
            "stopped": run.stopped,
            "steps": run.steps,
            "split": experiment.scored,
            "warnings": run.warnings,
            "log_likelihood": q.as_json(),
            "report": None if written is None else str(written),
        }
    )


def data_card(experiment: Experiment, plan: Plan) -> str:
    """Two lines about the data and the model: rows of each split, columns, column kinds."""
    data, encoding = experiment.dataset, experiment.encoding
    kind = KINDS_IN_WORDS.get(encoding.kind, encoding.kind)
    if encoding.laws:
        kind = f"mixed ({kinds_in_words(encoding.laws)})"
    elif data.train.binarize is not None:
        kind = f"{kind} ({data.train.binarize} binarization)"
    counts = [f"{len(experiment.train)} training rows"]
    held_out = {"validation": experiment.validation, "test": data.test}
    counts += [f"{len(rows)} {name}" for name, rows in held_out.items() if rows is not None]
    columns = f"{data.train.width} columns, {kind}"
    return f"{data.name}: {', '.join(counts)}; {columns}.\nModel: {plan.model.title()}."


def train(experiment: Experiment, plan: Plan, talk: bool, fabric: "Fabric | None" = None) -> Run:
    """The fit itself; a second Ctrl-C ends it at once and says where the last checkpoint is."""
    folder = experiment.folder
    try:
        return experiment.run(plan, progress=talk, fabric=fabric)
    except processes.LostProcess as error:
        error.args = (f"fit: {str(error).rstrip('.')}. {_way_on(folder)}".rstrip(),)
        raise
    except OSError as error:
        if way := _way_on(folder):
            error.add_note(way)
        raise
    except KeyboardInterrupt:
        typer.echo(f"Stopped at once. {_way_on(folder)}".rstrip(), err=True)
        raise typer.Exit(130) from None


def _way_on(folder: Path | None) -> str:
    """How to resume a fit that ended too early; empty where there is nothing to resume."""
    if folder is None or not is_begun(folder):
        return ""
    return f"The last save is in {folder}. Go on with: partita fit --resume {folder}"


def score(experiment: Experiment, run: Run) -> Quantity:
    """Mean log-likelihood of the scored split."""
    try:
        return experiment.score(run)
    except KeyboardInterrupt:
        typer.echo(
            "Stopped while scoring; the run is saved. Score it with: partita evaluate "
            f"{experiment.folder}",
            err=True,
        )
        raise typer.Exit(130) from None


def _write_page(experiment: Experiment, run: Run, q: Quantity) -> Path | None:
    from partita.report.folder import write_after_fit

    return write_after_fit(run, experiment.encoding, experiment.dataset, experiment.scored, q)


def _print_result(experiment: Experiment, run: Run, q: Quantity, page: Path | None) -> None:
    split, folder = experiment.scored, experiment.folder
    typer.echo(f"{run.stopped.capitalize()} after {run.steps} steps.")
    distance = f"Two-sample distance from {split} rows"
    typer.echo(f"{distance if q.kind == 'none' else f'Log-likelihood per {split} row'}: {q}")
    if "per_step" in q.details:
        typer.echo(f"Per step: {q.details['per_step']:.4f} nats, over {q.details['steps']} steps")
    if use := latent_use(q):
        typer.echo(f"Latent dimensions: {use}.")
    typer.echo(meaning(q))
    if q.kind != "exact":
        typer.echo(f"Verdict {verdict(q)}.")
    typer.echo(f"Saved in {folder}" + ("" if page is None else f", with a report: {page}"))
    typer.echo(f"Next: partita evaluate {folder}\n      partita sample {folder} -n 64")
