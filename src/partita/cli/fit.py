"""``partita fit``: plan, train, save, score; Ctrl-C saves, ``--resume`` goes on bit for bit."""

import math
import shlex
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import typer

from partita.cli import show
from partita.core import descriptions, rng
from partita.core.checks import check_count
from partita.core.protocols import Model, Objective, Update
from partita.core.quantity import Quantity
from partita.datasets import Dataset
from partita.datasets.open import open_dataset
from partita.errors import RunError
from partita.experiment.saved import SavedRun, found_at, free_path, schema_of, short_name
from partita.experiment.settings import sort_settings
from partita.experiment.splits import encoded_parts
from partita.families import Family, family_named
from partita.families.table_kind import TOLD, check_held_out, settings_by_table, table_kind
from partita.runtime import deadline, processes
from partita.runtime.untrusted import check_like
from partita.tables import Rows
from partita.tables.column_kinds import in_words
from partita.tables.encoding import Encoding
from partita.tables.frames import TABLES
from partita.training import PartitaWarning, Run, fit, load
from partita.training.run import build_model, read_config
from partita.training.run_folder import begun, numbers

KINDS_IN_WORDS = {
    "real": "real, standardized",
    "scaled": "real, scaled",
    "spin": "spins",
    "signs": "binary, read as spins",
    "count": "counts",
    "category": "categories",
    "steps": "sequences",
}
PLANNED = {
    "encoding": {"kind": str},
    "seed": int,
    "family": {"name": str},
    "command": str,
    "steps": int,
    "fit": dict,
    "objective": dict,
    "data": {"source": str, "rows": [int]},
}  # of what a run is resumed from
LEAST_MINUTES = 0.01  # of a fit after a search that took all the time


@dataclass(frozen=True)
class Plan:
    """A fit that is ready to start, or to go on."""

    model: Model
    objective: Objective | Update
    dataset: Dataset
    train: Rows
    validation: Rows | None
    encoding: Encoding
    options: dict[str, Any]
    about: dict[str, Any]
    folder: Path
    generator: torch.Generator
    resume: bool = False


def planned(
    model: str,
    source: str,
    out: Path | None,
    pairs: list[str],
    budget: dict[str, Any],
    seed: int,
    asked: dict[str, str] | None = None,
) -> Plan:
    """A new fit from what was said on the command line."""
    family = family_named(model)
    said = sort_settings(family, pairs)
    binarize = said.data.get("binarize", "auto")
    words = family.takes_words(said.family) or Path(source).suffix.lower() in TABLES
    how = {
        "words": words,
        "missing": family.missing,
        "reading": family.reading(said.family),
        "asked": asked,
    }
    dataset = open_dataset(source, binarize="none" if binarize is None else binarize, **how)
    chosen = {**by_table(family, dataset), **said.family}
    encoding = Encoding.fit(dataset.train, family.encoding_kind(dataset.train, chosen))
    check_held_out(dataset, encoding, "fit")
    train, validation = encoded_parts(dataset, encoding, seed)
    generator = torch.Generator().manual_seed(seed)
    built, objective, options, cuts = _built(
        family, train, chosen, {**said.fit, **budget}, generator
    )
    about = {
        "family": {"name": family.name, "settings": family.resolve(chosen)},
        "data": describe_data(source, dataset),
        "encoding": encoding.as_json(),
        "seed": seed,
        "command": shlex.join(["partita", *sys.argv[1:]]),
        "cuts": cuts,
    }
    folder = free_path(Path("runs") / f"{family.name}-{short_name(source)}") if out is None else out
    return Plan(
        built, objective, dataset, train, validation, encoding, options, about, folder, generator
    )


def _built(
    family: Family,
    rows: Rows,
    chosen: dict[str, Any],
    options: dict[str, Any],
    generator: torch.Generator,
) -> tuple[Model, Any, dict[str, Any], list[str]]:
    """The model, its objective, the options of its fit, and what a search was cut short by; of
    minutes the fit has what a search leaves.
    """
    minutes = options.get("minutes")
    # others are refused with the options
    seconds = 60 * minutes if isinstance(minutes, int | float) and minutes > 0 else math.inf
    with deadline.ending_within(seconds) as limit:
        model, objective = family.build(rows, chosen, generator=generator)
        if seconds < math.inf and hasattr(objective, "update"):
            options = {**options, "minutes": max(LEAST_MINUTES, round(deadline.left() / 60, 2))}
    return model, objective, options, limit.cuts


def by_table(family: Family, dataset: Dataset) -> dict[str, Any]:
    """What a comparison would tell this family about the table, so that the same data are taken in
    the same way.
    """
    return (
        settings_by_table(family.name, table_kind(dataset), dataset.train)
        if family.name in TOLD
        else {}
    )


def resumed(folder: Path) -> Plan:
    """The fit that a run's config describes, to go on from its last checkpoint."""
    config = read_config(folder)
    data = config.get("data")
    if data is None or not PLANNED.keys() <= config.keys():
        remedy = "Resume it in Python, with partita.fit(..., resume=True)."
        raise RunError(
            f"fit: --resume needs a run that `partita fit` made; {folder} does not say its data "
            f"and settings. {remedy}"
        )
    check_like(config, PLANNED, "config.json", whole=True)
    words = config["encoding"].get("kind") in ("category", "mixed")
    how = {
        "words": words,
        "missing": family_named(config["family"]["name"]).missing,
        "reading": data.get("reading"),
        "asked": schema_of(data),
    }
    dataset = open_dataset(data["source"], binarize=data.get("binarize") or "none", **how)
    if (len(dataset.train), dataset.train.width) != tuple(data["rows"]):
        now = f"{len(dataset.train)} x {dataset.train.width}"
        then = " x ".join(map(str, data["rows"]))
        raise RunError(
            f"fit: {data['source']!r} must be the data that {folder} was fitted to, {then}; got "
            f"{now}. Restore the file."
        )
    encoding = Encoding.from_json(config["encoding"], dataset.train.width)
    seed = check_count("fit", "the seed of the run", config["seed"], 0)
    train, validation = encoded_parts(dataset, encoding, seed)
    options = {**config["fit"], "epochs": None, "minutes": None, "steps": config["steps"]}
    about = {
        "cuts": config.get("cuts", []),
        **{name: config[name] for name in ("family", "data", "encoding", "seed", "command")},
    }
    generator = torch.Generator().manual_seed(seed)
    model, objective = build_model(config, numbers(folder)), descriptions.build(config["objective"])
    return Plan(
        model,
        objective,
        dataset,
        train,
        validation,
        encoding,
        options,
        about,
        folder,
        generator,
        resume=True,
    )


def carry_out(
    plan: Plan, *, fabric: Any = None, as_json: bool, quiet: bool, page: bool = True
) -> None:
    """Train, say what was saved, score on held-out rows, write the page about it; of several
    processes only the one that leads writes.
    """
    talk, team = not (as_json or quiet), processes.current()
    plan = replace(plan, folder=team.told(plan.folder))
    if talk:
        typer.echo(data_card(plan))
    run = _finished(plan) or train(plan, talk, fabric)
    for text in run.warnings:
        show.warning(text)
    if run.stopped == "interrupted":
        typer.echo(
            f"Interrupted at step {run.steps}; saved in {plan.folder}. Go on with: partita fit "
            f"--resume {plan.folder}",
            err=True,
        )
        raise typer.Exit(130)
    split = "train" if plan.dataset.test is None else "test"
    q = score(plan, run, split)
    written = _write_page(plan, run, split, q) if page and team.leads else None
    if as_json:
        result = {
            "run": str(plan.folder),
            "stopped": run.stopped,
            "steps": run.steps,
            "split": split,
            "warnings": run.warnings,
        }
        show.print_json(
            {
                **result,
                "log_likelihood": show.quantity_json(q),
                "report": None if written is None else str(written),
            }
        )
        return
    _print_result(plan, run, split, q, written)


def data_card(plan: Plan) -> str:
    """Two lines about the data and the model: rows for each purpose, columns, kind."""
    data, kind = plan.dataset, KINDS_IN_WORDS.get(plan.encoding.kind, plan.encoding.kind)
    kind = (
        f"{kind} ({data.train.binarize} binarization)" if data.train.binarize is not None else kind
    )
    kind = f"mixed ({in_words(plan.encoding.laws)})" if plan.encoding.laws else kind
    held_out = {"to validate": plan.validation, "to test": data.test}
    counts = [
        f"{len(plan.train)} rows to learn from",
        *(f"{len(rows)} {what}" for what, rows in held_out.items() if rows is not None),
    ]
    return (
        f"{data.name}: {', '.join(counts)}; {data.train.width} columns, {kind}.\nModel: "
        f"{plan.model.title()}."
    )


def train(plan: Plan, talk: bool, fabric: Any = None) -> Run:
    """The fit itself; a second Ctrl-C ends it at once, and says what the last save holds."""
    about = {"about": plan.about, "out": plan.folder, "resume": plan.resume}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartitaWarning)  # shown below, as plain lines
            run = fit(
                plan.model,
                plan.train,
                plan.objective,
                validation=plan.validation,
                progress=talk,
                generator=plan.generator,
                log_jacobian=plan.encoding.mean_log_jacobian(plan.validation),
                fabric=fabric,
                **about,
                **plan.options,
            )
            return replace(run, warnings=[*plan.about["cuts"], *run.warnings])
    except processes.LostProcess as error:
        error.args = (f"fit: {str(error).rstrip('.')}. {_way_on(plan.folder)}".rstrip(),)
        raise
    except OSError as error:
        if way := _way_on(plan.folder):
            error.add_note(way)
        raise
    except KeyboardInterrupt:
        typer.echo(f"Stopped at once. {_way_on(plan.folder)}".rstrip(), err=True)
        raise typer.Exit(130) from None


def _way_on(folder: Path) -> str:
    """How a fit that ended too early goes on; empty where it had not begun."""
    return (
        f"The last save is in {folder}. Go on with: partita fit --resume {folder}"
        if begun(folder)
        else ""
    )


def _finished(plan: Plan) -> Run | None:
    """The run to be resumed, if nothing of it is left to do."""
    path = plan.folder / "checkpoints" / "model.safetensors"
    if not plan.resume or not path.exists():
        return None
    try:
        run = load(plan.folder)
    except RunError as error:
        show.warning(f"{error} It is made again from the last save.")
        return None
    return None if run.stopped == "interrupted" else run


def score(plan: Plan, run: Run, split: str, evaluator: Any = None) -> Quantity:
    """Mean log-likelihood of a split of the plan's data."""
    opened = SavedRun(run, plan.encoding, plan.about["data"])
    try:
        return opened.score(
            getattr(plan.dataset, split), evaluator, rng.keyed(plan.about["seed"], 1)
        )
    except KeyboardInterrupt:
        typer.echo(
            "Stopped while scoring; the run is saved. Score it with: partita evaluate "
            f"{plan.folder}",
            err=True,
        )
        raise typer.Exit(130) from None


def _write_page(plan: Plan, run: Run, split: str, q: Quantity) -> Path | None:
    from partita.cli.report import write_after_fit

    return write_after_fit(run, plan.encoding, plan.dataset, split, q)


def _print_result(plan: Plan, run: Run, split: str, q: Quantity, page: Path | None) -> None:
    typer.echo(f"{run.stopped.capitalize()} after {run.steps} steps.")
    what = (
        f"Two-sample distance from {split} rows"
        if q.kind == "none"
        else f"Log-likelihood per {split} row"
    )
    typer.echo(f"{what}: {q}")
    if "per_step" in q.details:
        typer.echo(f"Per step: {q.details['per_step']:.4f} nats, over {q.details['steps']} steps")
    if use := show.latent_use(q):
        typer.echo(f"Latent dimensions: {use}.")
    typer.echo(
        show.meaning(q) if q.kind == "exact" else f"{show.meaning(q)}\nVerdict {show.verdict(q)}."
    )
    typer.echo(f"Saved in {plan.folder}" + ("" if page is None else f", with a report: {page}"))
    typer.echo(f"Next: partita evaluate {plan.folder}\n      partita sample {plan.folder} -n 64")


def describe_data(source: str, dataset: Dataset) -> dict[str, Any]:
    """What a run must know to find its data again, from any working directory."""
    schema = getattr(dataset.train, "schema", None)
    return {
        "name": dataset.name,
        "source": found_at(source),
        "binarize": dataset.train.binarize,
        "rows": [len(dataset.train), dataset.train.width],
        "shape": None if dataset.shape is None else list(dataset.shape),
        "columns": None if dataset.columns is None else list(dataset.columns),
        **({} if dataset.reading is None else {"reading": dataset.reading}),
        **({} if schema is None else {"schema": schema.as_json()}),
    }
