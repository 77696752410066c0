"""``partita compare DATA``: every family that the data allow, or one by several objectives, in one
time, on one leaderboard.

What is done is kept, and an interrupted comparison goes on.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import typer

from partita.cli import leaderboard, show
from partita.cli.asked import Asked, keep, sort_pairs
from partita.cli.fit import describe_data
from partita.cli.runs import free_path, short_name
from partita.cli.values import parse_columns, sort_settings
from partita.cli.watch import Watch
from partita.data import Dataset, Sequences
from partita.data.corpus import Reading, holds_sequences, open_dataset
from partita.errors import PartitaError, invalid
from partita.runtime import deadline
from partita.training.contenders import (
    BY_NAME,
    contenders_by_family,
    contenders_by_objective,
    degenerate_columns,
)
from partita.training.contest import Contest
from partita.training.entries import Contender, Entry
from partita.training.families import FAMILIES, family_named, named_evaluator
from partita.training.paired import ranking

MINUTES = 0.5  # for each contender, where nothing is said


class Field(NamedTuple):
    """Who takes part, on what, and the options of every fit."""

    dataset: Dataset
    contenders: list[Contender]
    left_out: dict[str, str]
    options: dict[str, Any]


def report(
    asked: Asked, out: Path | None, *, page: bool = True, as_json: bool = False, quiet: bool = False
) -> list[Entry]:
    """Fit all, score all on the same rows, show and save the leaderboard and the page about it."""
    asked.check_time()
    still = deadline.PAUSES.seconds
    evaluator, field = named_evaluator(asked.evaluator, "compare"), opened(asked)
    if not field.contenders:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in field.left_out.items())
        raise invalid(
            "compare",
            "DATA",
            "be a table that at least one family can be compared on",
            f"none ({reasons})",
        )
    name = (
        f"compare-{asked.model}-{short_name(asked.data)}"
        if asked.model
        else f"compare-{short_name(asked.data)}"
    )
    folder = free_path(Path("runs") / name) if out is None else out
    about = {"data": describe_data(asked.data, field.dataset), "command": asked.command}
    options, total = _time(asked, field)
    keep(folder, replace(asked, data=about["data"]["source"]))
    contest = Contest(field.dataset, options, None, evaluator, asked.seed, folder, about, total)
    what = "objective" if asked.model else "family"
    board = leaderboard.Board(
        _title(asked, contest),
        what,
        contest.scored.numbers_per_row(),
        field.left_out,
        field.dataset.entropy,
        timed=total is not None,
        cautions=degenerate_columns(field.dataset),
        names=[contender.name for contender in field.contenders],
    )
    entries = _carry_out(contest, field.contenders, board, talk=not (as_json or quiet))
    interrupted = any(entry.interrupted for entry in entries)
    written = _write_page(folder) if page and not interrupted else None
    if as_json:
        show.print_json(
            {
                **board.as_json(folder, ranking(entries)),
                "report": None if written is None else str(written),
            }
        )
    else:
        _print(contest, board, entries, written, deadline.PAUSES.seconds - still)
    if interrupted:
        typer.echo(
            f"Interrupted; what is done is saved. Go on with: partita compare --resume {folder}",
            err=True,
        )
        raise typer.Exit(130)
    if all(entry.score is None for entry in entries):
        typer.echo("Error: compare: nobody came to a score; the leaderboard says why.", err=True)
        raise typer.Exit(1)
    return entries


def opened(asked: Asked) -> Field:
    """The data as all take them, and who takes part."""
    return _by_objective(asked) if asked.model else _by_family(asked)


def _by_family(asked: Asked) -> Field:
    said = sort_pairs(asked.settings)
    for name in asked.models:
        family_named(name)
    for_sequences = bool(asked.models) and all(name in BY_NAME for name in asked.models)
    reading = (
        Reading(**said.reading).as_json() if for_sequences or holds_sequences(asked.data) else None
    )
    dataset = open_dataset(
        asked.data,
        binarize=_binarize(said.data),
        words=True,
        missing=True,
        reading=reading,
        asked=parse_columns(asked.columns, "compare") or None,
    )
    if said.reading and dataset.reading is None:
        raise invalid(
            "compare",
            f"--set {next(iter(said.reading))}",
            "go with text or other sequences",
            f"the table {asked.data}",
        )
    read = {
        name: {key: value for key, value in said.reading.items() if key in family.settings}
        for name, family in FAMILIES.items()
    }
    settings = {name: {**read[name], **said.families.get(name, {})} for name in FAMILIES}
    return Field(dataset, *contenders_by_family(asked.models, settings, dataset), said.fit)


def _by_objective(asked: Asked) -> Field:
    family = family_named(asked.model)
    said = sort_settings(family, asked.settings)
    dataset = open_dataset(
        asked.data,
        binarize=_binarize(said.data),
        words=family.takes_words(said.family),
        missing=bool(family.missing),
    )
    return Field(
        dataset,
        *contenders_by_objective(family, said.family, asked.objectives, dataset.train),
        said.fit,
    )


def _binarize(of_data: dict[str, Any]) -> Any:
    said = of_data.get("binarize", "auto")
    return "none" if said is None else said


def _time(asked: Asked, field: Field) -> tuple[dict[str, Any], float | None]:
    """The options of every fit, and the minutes for all; None where the options say how long each
    is.
    """
    options = field.options | ({} if asked.epochs is None else {"epochs": asked.epochs})
    said = [name for name in ("epochs", "steps", "minutes") if options.get(name) is not None]
    if said and asked.minutes is not None:
        raise invalid("compare", f"one of --minutes and {said[0]}", "be given", "both")
    return options, None if said else asked.minutes or MINUTES * len(field.contenders)


def _title(asked: Asked, contest: Contest) -> str:
    rows, part = contest.scored, "training" if contest.dataset.test is None else "test"
    each = (
        f"sequences of at most {rows.longest} steps"
        if isinstance(rows, Sequences)
        else f"rows, {rows.width} columns"
    )
    return (
        f"{f'{asked.model} on ' if asked.model else ''}{contest.dataset.name}: {len(rows)} {part} "
        f"{each}"
    )


def _carry_out(
    contest: Contest, contenders: Sequence[Contender], board: leaderboard.Board, talk: bool
) -> list[Entry]:
    """Every contender in turn; the leaderboard so far is saved after each."""
    if talk:
        total = contest.total
        time = (
            "as long as their steps take"
            if total is None
            else f"about {total:g} minute{'s' * (total != 1)} for all"
        )
        several = "objectives" if board.what == "objective" else "families"
        typer.echo(f"{board.title}. {len(contenders)} {several}, {time}.")
    folder = contest.out
    assert folder is not None
    try:
        with Watch(contenders, board, talk) as watch:
            for entry in contest.run(contenders, watch.begin):
                watch.done(entry)
                leaderboard.save(folder, board.as_json(folder, ranking(watch.entries)))
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
    return watch.entries


def _write_page(folder: Path) -> Path | None:
    """The page about the comparison; what hinders it is a caution, for the leaderboard itself is
    whole.
    """
    from partita.cli.report import write

    try:
        return write(folder)
    except (PartitaError, OSError) as error:
        show.caution(f"no report was written: {error}")
    except KeyboardInterrupt:
        show.caution(f"no report was written: interrupted. Write it with: partita report {folder}")
    return None


def _print(
    contest: Contest,
    board: leaderboard.Board,
    entries: Sequence[Entry],
    page: Path | None,
    compiled: float,
) -> None:
    leaderboard.print_board(board, entries)
    for entry in entries:
        for text in [] if entry.run is None else entry.run.cautions:
            show.caution(f"{entry.name}: {text}")
    if compiled >= 1:
        typer.echo(
            f"Beside these seconds, {compiled:.0f} went into compiling machine code, which is kept "
            "for the next time."
        )
    typer.echo(
        f"Runs and leaderboard.json, leaderboard.csv are in {contest.out}"
        + ("" if page is None else f"\nReport: {page}")
    )
