"""``partita compare DATA``: every family that the data allow, or one by several objectives, in one
time, on one leaderboard.

What is done is kept, and an interrupted comparison goes on.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import typer

from partita.cli import leaderboard, output
from partita.cli.watch import Watch
from partita.datasets import Dataset, Sequences
from partita.datasets.open import Reading, holds_sequences, open_dataset
from partita.errors import PartitaError, invalid
from partita.experiment.candidates import (
    BY_NAME,
    candidates_by_family,
    candidates_by_objective,
    degenerate_columns,
)
from partita.experiment.compare import Comparison
from partita.experiment.compare_settings import CompareSettings, keep
from partita.experiment.leaderboard import ranking
from partita.experiment.results import Candidate, Result
from partita.experiment.saved import DataRecord, free_path, short_name
from partita.experiment.settings import parse_columns, sort_pairs, sort_settings
from partita.families import FAMILIES, family_named, named_evaluator
from partita.runtime import deadline

MINUTES = 0.5  # for each candidate, by default


class Field(NamedTuple):
    """The data, the candidates, and the options of every fit."""

    dataset: Dataset
    candidates: list[Candidate]
    left_out: dict[str, str]
    options: dict[str, Any]


def report(
    request: CompareSettings,
    out: Path | None,
    *,
    page: bool = True,
    as_json: bool = False,
    quiet: bool = False,
) -> list[Result]:
    """Fit all, score all on the same rows, show and save the leaderboard and the page about it."""
    request.check_time()
    still = deadline.PAUSES.seconds
    evaluator, field = named_evaluator(request.evaluator, "compare"), opened(request)
    if not field.candidates:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in field.left_out.items())
        raise invalid(
            "compare",
            "DATA",
            "be a table that at least one family can be compared on",
            f"none ({reasons})",
        )
    name = (
        f"compare-{request.model}-{short_name(request.data)}"
        if request.model
        else f"compare-{short_name(request.data)}"
    )
    folder = free_path(Path("runs") / name) if out is None else out
    data = DataRecord.of(request.data, field.dataset)
    about = {"data": data.as_json(), "command": request.command}
    options, total = _time(request, field)
    keep(folder, replace(request, data=data.source))
    comparison = Comparison(
        field.dataset, options, None, evaluator, request.seed, folder, about, total
    )
    what = "objective" if request.model else "family"
    board = leaderboard.Board(
        _title(request, comparison),
        what,
        comparison.scored.numbers_per_row(),
        field.left_out,
        field.dataset.entropy,
        timed=total is not None,
        warnings=degenerate_columns(field.dataset),
        names=[candidate.name for candidate in field.candidates],
    )
    results = _carry_out(comparison, field.candidates, board, talk=not (as_json or quiet))
    interrupted = any(result.interrupted for result in results)
    written = _write_page(folder) if page and not interrupted else None
    if as_json:
        output.print_json(
            {
                **board.as_json(folder, ranking(results)),
                "report": None if written is None else str(written),
            }
        )
    else:
        _print(comparison, board, results, written, deadline.PAUSES.seconds - still)
    if interrupted:
        typer.echo(
            f"Interrupted; what is done is saved. Go on with: partita compare --resume {folder}",
            err=True,
        )
        raise typer.Exit(130)
    if all(result.score is None for result in results):
        typer.echo("Error: compare: no candidate was scored; the leaderboard says why.", err=True)
        raise typer.Exit(1)
    return results


def opened(request: CompareSettings) -> Field:
    """The data as all candidates take them, and the candidates."""
    return _by_objective(request) if request.model else _by_family(request)


def _by_family(request: CompareSettings) -> Field:
    pairs = sort_pairs(request.settings)
    for name in request.models:
        family_named(name)
    for_sequences = bool(request.models) and all(name in BY_NAME for name in request.models)
    reading = (
        Reading(**pairs.reading).as_json()
        if for_sequences or holds_sequences(request.data)
        else None
    )
    dataset = open_dataset(
        request.data,
        binarize=_binarize(pairs.data),
        words=True,
        missing=True,
        reading=reading,
        columns=parse_columns(request.columns, "compare") or None,
    )
    if pairs.reading and dataset.reading is None:
        raise invalid(
            "compare",
            f"--set {next(iter(pairs.reading))}",
            "go with text or other sequences",
            f"the table {request.data}",
        )
    read = {
        name: {key: value for key, value in pairs.reading.items() if key in family.settings}
        for name, family in FAMILIES.items()
    }
    settings = {name: {**read[name], **pairs.families.get(name, {})} for name in FAMILIES}
    return Field(dataset, *candidates_by_family(request.models, settings, dataset), pairs.fit)


def _by_objective(request: CompareSettings) -> Field:
    family = family_named(request.model)
    pairs = sort_settings(family, request.settings)
    dataset = open_dataset(
        request.data,
        binarize=_binarize(pairs.data),
        words=family.takes_words(pairs.family),
        missing=bool(family.missing),
    )
    return Field(
        dataset,
        *candidates_by_objective(family, pairs.family, request.objectives, dataset.train),
        pairs.fit,
    )


def _binarize(of_data: dict[str, Any]) -> Any:
    binarize = of_data.get("binarize", "auto")
    return "none" if binarize is None else binarize


def _time(request: CompareSettings, field: Field) -> tuple[dict[str, Any], float | None]:
    """The options of every fit, and the minutes for all; None where the options say how long each
    is.
    """
    options = field.options | ({} if request.epochs is None else {"epochs": request.epochs})
    given = [name for name in ("epochs", "steps", "minutes") if options.get(name) is not None]
    if given and request.minutes is not None:
        raise invalid("compare", f"one of --minutes and {given[0]}", "be given", "both")
    return options, None if given else request.minutes or MINUTES * len(field.candidates)


def _title(request: CompareSettings, comparison: Comparison) -> str:
    rows, part = comparison.scored, "training" if comparison.dataset.test is None else "test"
    each = (
        f"sequences of at most {rows.longest} steps"
        if isinstance(rows, Sequences)
        else f"rows, {rows.width} columns"
    )
    model = f"{request.model} on " if request.model else ""
    return f"{model}{comparison.dataset.name}: {len(rows)} {part} {each}"


def _carry_out(
    comparison: Comparison, candidates: Sequence[Candidate], board: leaderboard.Board, talk: bool
) -> list[Result]:
    """Every candidate in turn; the leaderboard so far is saved after each."""
    if talk:
        total = comparison.total
        time = (
            "as long as their steps take"
            if total is None
            else f"about {total:g} minute{'s' * (total != 1)} for all"
        )
        several = "objectives" if board.what == "objective" else "families"
        typer.echo(f"{board.title}. {len(candidates)} {several}, {time}.")
    folder = comparison.out
    assert folder is not None
    try:
        with Watch(candidates, board, talk) as watch:
            for result in comparison.run(candidates, watch.begin):
                watch.done(result)
                leaderboard.save(folder, board.as_json(folder, ranking(watch.results)))
    except KeyboardInterrupt:
        typer.echo(
            "Stopped at once; what is done is saved. Go on with: partita compare --resume "
            f"{folder}",
            err=True,
        )
        raise typer.Exit(130) from None
    except OSError as error:
        error.add_note(f"What is done is saved. Go on with: partita compare --resume {folder}")
        raise
    return watch.results


def _write_page(folder: Path) -> Path | None:
    """The page about the comparison; what hinders it is a warning, for the leaderboard itself is
    whole.
    """
    from partita.report.folder import write_report

    try:
        return write_report(folder)
    except (PartitaError, OSError) as error:
        output.print_warning(f"no report was written: {error}")
    except KeyboardInterrupt:
        output.print_warning(
            f"no report was written: interrupted. Write it with: partita report {folder}"
        )
    return None


def _print(
    comparison: Comparison,
    board: leaderboard.Board,
    results: Sequence[Result],
    page: Path | None,
    compiled: float,
) -> None:
    leaderboard.print_board(board, results)
    for result in results:
        for text in [] if result.run is None else result.run.warnings:
            output.print_warning(f"{result.name}: {text}")
    if compiled >= 1:
        typer.echo(
            f"Beside these seconds, {compiled:.0f} went into compiling machine code, which is kept "
            "for the next time."
        )
    typer.echo(
        f"Runs and leaderboard.json, leaderboard.csv are in {comparison.out}"
        + ("" if page is None else f"\nReport: {page}")
    )
