"""``partita fit``: plan, train, save, score; Ctrl-C saves, ``--resume`` continues bit for bit."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from partita.cli import output
from partita.cli.launch import launched
from partita.cli.options import (
    Data,
    Devices,
    Json,
    Kinds,
    Minutes,
    Nodes,
    Page,
    Quiet,
    Seed,
    Settings,
    Strategy,
    refuse_beside_resume,
)

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from partita.core.quantity import Quantity
    from partita.experiment import Experiment
    from partita.training import Run
    from partita.training.budget import FitPlan

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


def fit(
    context: typer.Context,
    model: Annotated[
        str | None, typer.Argument(help="A family: partita models lists them.", metavar="MODEL")
    ] = None,
    data: Data = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; runs/MODEL-DATA-N if not given.")
    ] = None,
    minutes: Minutes = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.")] = None,
    seed: Seed = 0,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this run, bit for bit; needs nothing else.")
    ] = None,
    settings: Settings = None,
    column: Kinds = None,
    guard: Annotated[
        str | None,
        typer.Option(
            help="Where the fit diverges: stop, or rollback (if not given), with half the rate."
        ),
    ] = None,
    devices: Devices = None,
    nodes: Nodes = 1,
    strategy: Strategy = "ddp",
    as_json: Json = False,
    quiet: Quiet = False,
    page: Page = True,
) -> None:
    """Fit a model to data, save the run, and score it on rows it has not seen."""
    if resume is not None:
        refuse_beside_resume(context)
    elif model is None or data is None:
        raise typer.BadParameter(
            "are needed, as in: partita fit rbm digits.", param_hint="MODEL and DATA"
        )
    from partita.experiment.requests import parse_columns, recorded_experiment, requested

    kinds = parse_columns(column or [], "fit")
    limits = {"minutes": minutes, "epochs": epochs, "guard": guard}
    budget = {name: value for name, value in limits.items() if value is not None}
    with launched(devices, nodes, strategy) as fabric:
        experiment = (
            requested(str(model), str(data), out, settings or [], budget, seed, kinds)
            if resume is None
            else recorded_experiment(resume)
        )
        _carry_out(experiment, fabric, resume is not None, as_json, quiet, page)


def _carry_out(
    experiment: "Experiment",
    fabric: "Fabric | None",
    resume: bool,
    as_json: bool,
    quiet: bool,
    page: bool,
) -> None:
    """Fit, report what was saved, score the held-out split and write the page; of several processes
    only rank 0 writes.
    """
    from partita.report.folder import write_after_fit
    from partita.runtime import processes

    talk, team = not (as_json or quiet), processes.current()
    experiment = replace(experiment, folder=team.broadcast(experiment.folder))
    run = experiment.finished() if resume else None
    plan = experiment.plan_to_resume() if resume else experiment.plan()
    if talk:
        typer.echo(_data_lines(experiment, plan))
    run = run or _train(experiment, plan, talk, fabric)
    for text in run.warnings:
        output.print_warning(text)
    folder, split = experiment.folder, experiment.scored
    q = _score(experiment, run)
    written = None
    if page and team.is_zero:
        written = write_after_fit(run, experiment.encoding, experiment.dataset, split, q)
    if not as_json:
        _print_result(experiment, run, q, written)
        return
    output.print_json(
        {
            "run": str(folder),
            "stopped": run.stopped,
            "steps": run.steps,
            "split": split,
            "warnings": run.warnings,
            "log_likelihood": q.as_json(),
            "report": None if written is None else str(written),
        }
    )


def _data_lines(experiment: "Experiment", plan: "FitPlan") -> str:
    """Two lines about the data and the model: rows of each split, columns, column kinds."""
    from partita.tables.schema import kinds_in_words

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


def _train(
    experiment: "Experiment", plan: "FitPlan", talk: bool, fabric: "Fabric | None" = None
) -> "Run":
    """The fit itself; Ctrl-C saves it, and a second one ends it at once and says where the last
    checkpoint is.
    """
    from partita.runtime.processes import LostProcess
    from partita.training import Interrupted

    try:
        return experiment.run(plan, progress=talk, fabric=fabric)
    except Interrupted as stop:
        for text in stop.run.warnings:
            output.print_warning(text)
        folder = experiment.folder
        typer.echo(
            f"Interrupted at step {stop.run.steps}; saved in {folder}. Go on with: partita fit "
            f"--resume {folder}",
            err=True,
        )
        raise typer.Exit(130) from None
    except LostProcess as error:
        error.args = (f"fit: {str(error).rstrip('.')}. {_way_on(experiment)}".rstrip(),)
        raise
    except OSError as error:
        if way := _way_on(experiment):
            error.add_note(way)
        raise
    except KeyboardInterrupt:
        typer.echo(f"Stopped at once. {_way_on(experiment)}".rstrip(), err=True)
        raise typer.Exit(130) from None


def _way_on(experiment: "Experiment") -> str:
    """How to resume a fit that ended too early; empty where there is nothing to resume."""
    folder = experiment.folder
    if not experiment.begun():
        return ""
    return f"The last save is in {folder}. Go on with: partita fit --resume {folder}"


def _score(experiment: "Experiment", run: "Run") -> "Quantity":
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


def _print_result(experiment: "Experiment", run: "Run", q: "Quantity", page: Path | None) -> None:
    from partita.report.format import latent_use_in_words, meaning, verdict

    split, folder = experiment.scored, experiment.folder
    typer.echo(f"{run.stopped.capitalize()} after {run.steps} steps.")
    distance = f"Two-sample distance from {split} rows"
    typer.echo(f"{distance if q.kind == 'none' else f'Log-likelihood per {split} row'}: {q}")
    if "per_step" in q.details:
        typer.echo(f"Per step: {q.details['per_step']:.4f} nats, over {q.details['steps']} steps")
    if use := latent_use_in_words(q):
        typer.echo(f"Latent dimensions: {use}.")
    typer.echo(meaning(q))
    if q.kind != "exact":
        typer.echo(f"Verdict {verdict(q)}.")
    typer.echo(f"Saved in {folder}" + ("" if page is None else f", with a report: {page}"))
    typer.echo(f"Next: partita evaluate {folder}\n      partita sample {folder} -n 64")
