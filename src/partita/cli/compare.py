"""``partita compare DATA``: every family that the data allow, or one by several objectives, in one
time, on one leaderboard.

What is done is kept, and an interrupted comparison goes on.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from partita.cli import output
from partita.cli.options import (
    SETTING_OF_ONE,
    Data,
    Json,
    Kinds,
    Page,
    Quiet,
    Seed,
    refuse_beside_resume,
)

if TYPE_CHECKING:
    from partita.experiment import Candidate, Comparison, Result
    from partita.experiment.compare_settings import CompareSettings
    from partita.experiment.leaderboard import Board

WITHIN = "goes without --model and --objectives, which"


def compare(
    context: typer.Context,
    data: Data = None,
    models: Annotated[
        str | None,
        typer.Option(help="Families with commas between; by default all that the data allow."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="One family, fitted by several objectives; rbm if only those are named."),
    ] = None,
    objectives: Annotated[
        str | None,
        typer.Option(
            help="With --model: all that its support allows, or names with commas between."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of runs and tables; runs/compare-DATA-N if not given."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Time for all together; half a minute for each if not given."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the data, for each, in place of minutes.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help=SETTING_OF_ONE, metavar="KEY=VALUE")
    ] = None,
    column: Kinds = None,
    evaluator: Annotated[
        str,
        typer.Option(help="How log Z is computed, the same way for all; as in partita evaluate."),
    ] = "auto",
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with the comparison in this folder; needs nothing else."),
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    page: Page = True,
) -> None:
    """Fit families of models, or one by several objectives, and score all on the same rows: one
    leaderboard.
    """
    if resume is not None:
        refuse_beside_resume(context)
    elif data is None:
        raise typer.BadParameter("is needed, as in: partita compare digits.", param_hint="DATA")
    within = model is not None or objectives is not None
    if within and models is not None:
        raise typer.BadParameter(f"{WITHIN} compare within one family.", param_hint="--models")
    if within and column is not None:
        raise typer.BadParameter(f"{WITHIN} are about columns of one sort.", param_hint="--column")
    from partita.experiment.compare_settings import CompareSettings, read_settings
    from partita.experiment.requests import split_names

    request = CompareSettings(str(data), evaluator=evaluator, seed=seed)
    if resume is not None:
        request = read_settings(resume)
    else:
        length = {"minutes": minutes, "epochs": epochs}
        pairs = {"settings": settings or [], "columns": column or []}
        request = replace(request, models=split_names(models), **length, **pairs)
    if within:
        request = replace(
            request, model=model or "rbm", objectives=split_names(objectives or "all")
        )
    carry_out(request, out or resume, page=page, as_json=as_json, quiet=quiet)


def carry_out(
    request: "CompareSettings",
    out: Path | None,
    *,
    page: bool = True,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Fit all, score all on the same rows, show and save the leaderboard and the page about it."""
    from partita.evaluators.likelihood import named_evaluator
    from partita.experiment.candidates import degenerate_columns
    from partita.experiment.compare import Comparison
    from partita.experiment.compare_settings import entrants, keep
    from partita.experiment.leaderboard import Board, ranking
    from partita.experiment.saved import DataRecord, free_path, short_name
    from partita.report.folder import write_after_comparison
    from partita.runtime import deadline

    request.check_time()
    still = deadline.PAUSES.seconds
    evaluator, found = named_evaluator(request.evaluator, "compare"), entrants(request)
    of = f"{request.model}-" if request.model else ""
    folder = out or free_path(Path("runs") / f"compare-{of}{short_name(request.data)}")
    data = DataRecord.of(request.data, found.dataset)
    about = {"data": data.as_json(), "command": request.command}
    options, total = found.timed(request)
    keep(folder, replace(request, data=data.source))
    comparison = Comparison(
        found.dataset, options, None, evaluator, request.seed, folder, about, total
    )
    board = Board(
        _title(request, comparison),
        "objective" if request.model else "family",
        comparison.scored.numbers_per_row(),
        found.left_out,
        found.dataset.entropy,
        timed=total is not None,
        warnings=degenerate_columns(found.dataset),
        names=[candidate.name for candidate in found.candidates],
        folder=folder,
    )
    results = _run(comparison, found.candidates, board, talk=not (as_json or quiet))
    interrupted = any(result.interrupted for result in results)
    written = write_after_comparison(folder) if page and not interrupted else None
    if as_json:
        path = None if written is None else str(written)
        output.print_json({**board.saved(ranking(results)), "report": path})
    else:
        _print(board, results, written, deadline.PAUSES.seconds - still)
    if interrupted:
        _stop("Interrupted", folder)
    if all(result.score is None for result in results):
        typer.echo("Error: compare: no candidate was scored; the leaderboard says why.", err=True)
        raise typer.Exit(1)


def _title(request: "CompareSettings", comparison: "Comparison") -> str:
    from partita.datasets import Sequences

    rows, part = comparison.scored, "training" if comparison.dataset.test is None else "test"
    each = f"rows, {rows.width} columns"
    if isinstance(rows, Sequences):
        each = f"sequences of at most {rows.longest} steps"
    model = f"{request.model} on " if request.model else ""
    return f"{model}{comparison.dataset.name}: {len(rows)} {part} {each}"


def _run(
    comparison: "Comparison", candidates: "Sequence[Candidate]", board: "Board", talk: bool
) -> "list[Result]":
    """Every candidate in turn; the leaderboard so far is saved after each."""
    from partita.cli.leaderboard import LiveBoard
    from partita.experiment import leaderboard as on_disk
    from partita.experiment.leaderboard import ranking

    if talk:
        total, time = comparison.total, "as long as their steps take"
        if total is not None:
            time = f"about {total:g} minute{'s' * (total != 1)} for all"
        several = "objectives" if board.what == "objective" else "families"
        typer.echo(f"{board.title}. {len(candidates)} {several}, {time}.")
    try:
        with LiveBoard(candidates, board, talk) as watch:
            for result in comparison.run(candidates, watch.begin):
                watch.done(result)
                on_disk.write_board(board.folder, board.saved(ranking(watch.results)))
    except KeyboardInterrupt:
        _stop("Stopped at once", board.folder)
    except OSError as error:
        error.add_note(_way_on("What is done", board.folder))
        raise
    return watch.results


def _way_on(done: str, folder: Path) -> str:
    return f"{done} is saved. Go on with: partita compare --resume {folder}"


def _stop(how: str, folder: Path) -> NoReturn:
    typer.echo(_way_on(f"{how}; what is done", folder), err=True)
    raise typer.Exit(130) from None


def _print(board: "Board", results: "Sequence[Result]", page: Path | None, compiled: float) -> None:
    from partita.cli.leaderboard import print_board
    from partita.experiment.leaderboard import ranking

    print_board(board.saved(ranking(results)), board.what)
    for result in results:
        for text in [] if result.run is None else result.run.warnings:
            output.print_warning(f"{result.name}: {text}")
    if compiled >= 1:
        typer.echo(
            f"Beside these seconds, {compiled:.0f} went into compiling machine code, which is kept "
            "for the next time."
        )
    typer.echo(f"Runs and leaderboard.json, leaderboard.csv are in {board.folder}")
    if page is not None:
        typer.echo(f"Report: {page}")
