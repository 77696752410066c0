"""The leaderboard of a comparison: in the terminal, as JSON and as CSV."""

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import typer

from partita.cli import output
from partita.core.protocols import Model
from partita.core.quantity import bits_per_dimension
from partita.experiment.leaderboard import Place, ranking
from partita.experiment.results import Result
from partita.report.format import cut_short, fitted_models, left_out, percent
from partita.runtime.atomic_files import write_whole
from partita.training.budget import OUT_OF_TIME

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = [
    "",
    "family",
    "nats",
    "interval",
    "± rows",
    "bits/dim",
    "behind the best",
    "kind",
    "verdict",
    "parameters",
    "seconds",
]
# in this order, where a terminal is narrow
SPARED = ("± rows", "parameters", "verdict", "bits/dim", "interval")
WIDE = 180  # columns of text where there is no terminal
# of a score, in the CSV
FLAT = ("value", "low", "high", "level", "kind", "method", "se_data", "verdict")


@runtime_checkable
class _CountsParameters(Protocol):
    """A model that counts its free parameters itself."""

    def freedom(self) -> int: ...


@dataclass(frozen=True)
class Board:
    """What a leaderboard is about.

    Arguments:
        title: The data and how many rows of them are scored.
        what: What candidates are called: ``family`` or ``objective``.
        width: How many numbers a row has, on average where rows differ: what bits per dimension are
            counted by.
        left_out: Families that do not take part, with the reason.
        warnings: About the data, one sentence each.
        entropy: Of the distribution behind the data in nats, where it is known.
        timed: Whether fits share a time budget, and may be cut short by it.
        names: All candidates.
    """

    title: str
    what: str = "family"
    width: float = 1.0
    left_out: Mapping[str, str] = field(default_factory=dict)
    entropy: float | None = None
    timed: bool = False
    warnings: Sequence[str] = ()
    names: Sequence[str] = ()

    def cut_short(self, result: Result) -> bool:
        """Whether the time budget ended a search before the fit, or gave the fit fewer steps than
        its recipe has, and it took them all.
        """
        run = result.run
        if not self.timed or run is None:
            return False
        planned = (run.config.get("fit") or {}).get("steps") is not None
        fewer = run.stopped == "finished" and planned
        return fewer or run.stopped == OUT_OF_TIME or bool(run.config.get("cuts"))

    def as_json(self, folder: Path, places: Sequence[Place]) -> dict[str, Any]:
        """What ``leaderboard.json`` holds; candidates of ``names`` without a place are waiting."""
        lines = [
            {**place_json(place, self.width), "cut_short": self.cut_short(place.result)}
            for place in places
        ]
        return {
            "title": self.title,
            "folder": str(folder),
            "results": lines,
            "left_out": dict(self.left_out),
            "entropy": self.entropy,
            "warnings": list(self.warnings),
            "waiting": self.waiting([place.result for place in places]),
        }

    def waiting(self, results: Sequence[Result]) -> list[str]:
        """Candidates that are not fitted yet."""
        done = {result.name for result in results}
        return [name for name in self.names if name not in done]


def place_json(place: Place, width: float) -> dict[str, Any]:
    """One line of ``leaderboard.json``."""
    result = place.result
    q, run = result.score, result.run
    line: dict[str, Any] = {
        "name": result.name,
        "log_likelihood": None if q is None else q.as_json(),
        "bits_per_dimension": None,
        "difference": None if place.difference is None else place.difference.as_json(),
        "tied": place.tied,
        "seconds": round(result.seconds, 3),
        "parameters": None if run is None else _parameters(run.model),
        "problem": result.problem or None,
    }
    if q is not None and q.kind != "none":
        bits = bits_per_dimension(q, width)
        line["bits_per_dimension"] = {"value": bits.value, "low": bits.low, "high": bits.high}
    if run is not None:
        line |= {
            "run": str(run.folder),
            "model": run.model.title(),
            "steps": run.steps,
            "planned_steps": run.config["steps"],
            "stopped": run.stopped,
            "warnings": run.warnings,
        }
    return line


def _parameters(model: Model) -> int | None:
    """The number of free parameters; None where a model has posterior draws in their place."""
    if isinstance(model, _CountsParameters):
        return model.freedom()
    return sum(p.numel() for p in model.parameters()) or None


def save(folder: Path, board: Mapping[str, Any]) -> None:
    """Write ``leaderboard.json`` and ``leaderboard.csv``, each whole or not at all."""
    write_whole(folder / "leaderboard.json", output.json_text(board) + "\n")
    write_whole(folder / "leaderboard.csv", as_csv(board["results"]))


def as_csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """One line for each candidate; what is unknown is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "name",
            *(f"log_likelihood_{name}" for name in FLAT),
            "bits_per_dimension",
            "difference",
            *(f"difference_{name}" for name in ("low", "high", "level")),
            *("tied", "parameters", "seconds", "model", "problem"),
        ]
    )
    for line in lines:
        q, bits, d = (
            line[name] or {} for name in ("log_likelihood", "bits_per_dimension", "difference")
        )
        writer.writerow(
            [
                line["name"],
                *(q.get(name) for name in FLAT),
                bits.get("value"),
                *(d.get(name) for name in ("value", "low", "high", "level")),
                *(line.get(name) for name in ("tied", "parameters", "seconds", "model", "problem")),
            ]
        )
    return out.getvalue()


def lines_of(places: Sequence[Place], board: Board) -> list[list[str]]:
    """The cells of the table, for candidates that have a likelihood or failed."""
    shown = [place for place in places if place.group != 2]
    return [_cells(place, board, first=i == 0) for i, place in enumerate(shown)]


def _cells(place: Place, board: Board, first: bool) -> list[str]:
    result = place.result
    size = None if result.run is None else _parameters(result.run.model)
    seconds = f"{result.seconds:.1f}{' cut' * board.cut_short(result)}"
    last = ["" if size is None else f"{size:,}", seconds]
    q, d = result.score, place.difference
    if q is None:
        kind = "interrupted" if result.interrupted else "failed"
        return ["", result.name, *[""] * 5, kind, "", *last]
    mark, behind = "=" if place.tied else "", ""
    if first and q.trusted:
        mark, behind = "★", "best"
    elif d is not None:
        behind = f"{d.value:.3f} ({_number(d.low)} to {_number(d.high)})"
    return [
        mark,
        result.name,
        f"{q.value:.3f}",
        "" if q.kind == "exact" else f"{_number(q.low)} to {_number(q.high)}",
        f"{q.se_data:.3f}" if q.se_data else "",  # of one row there is none
        f"{bits_per_dimension(q, board.width).value:.4f}",
        behind,
        q.kind,
        q.verdict,
        *last,
    ]


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "?"


def fitting(
    lines: Sequence[Sequence[str]], what: str = "family"
) -> tuple[list[str], list[list[str]]]:
    """Columns and cells that fit the terminal, where ``what`` names the candidates; the CSV has all
    of them.
    """
    shown, room = list(range(len(COLUMNS))), wide_console().width
    widths = [2 + max(map(len, column)) for column in zip(COLUMNS, *lines, strict=True)]
    for name in SPARED:
        if sum(widths[i] for i in shown) <= room:
            break
        shown.remove(COLUMNS.index(name))
    head = [what if COLUMNS[i] == "family" else COLUMNS[i] for i in shown]
    return head, [[line[i] for i in shown] for line in lines]


def wide_console() -> "Console":
    """As wide as the terminal; a pipe or a file has room for all columns, unless COLUMNS sets
    another width.
    """
    from rich.console import Console

    found = Console(highlight=False)
    narrow = found.is_terminal or "COLUMNS" in os.environ
    return found if narrow else Console(highlight=False, width=WIDE)


def print_board(board: Board, results: Sequence[Result]) -> None:
    """Print the table and the notes below it."""
    places = ranking(results)
    columns, lines = fitting(lines_of(places, board), board.what)
    about = "; ± rows: standard error over them" if "± rows" in columns else ""
    typer.echo(f"\n{board.title}\nMean log-likelihood per row, in nats (higher is better{about}):")
    wide_console().print(output.rich_table(columns, lines, whole=len(COLUMNS)))
    _print_levels(places, shown=columns)
    _print_verdict(places)
    json_lines = [place_json(place, board.width) for place in places]
    cut = [
        line
        for place, line in zip(places, json_lines, strict=True)
        if board.cut_short(place.result)
    ]
    if cut:
        typer.echo(cut_short(cut))
    if board.entropy is not None:
        typer.echo(
            f"No model scores above {-board.entropy:.3f} on average: the data's negative entropy."
        )
    _print_apart([place.result for place in places if place.group == 2])
    if fitted := fitted_models(json_lines):
        typer.echo(fitted)
    for place in places:
        if place.result.problem:
            typer.echo(f"{place.result.name}: {place.result.problem}")
    if waiting := board.waiting(results):
        typer.echo(f"Not yet fitted: {', '.join(waiting)}.")
    for text in board.warnings:
        output.print_warning(text)
    for text in left_out(board.left_out):
        typer.echo(text)


def _print_levels(places: Sequence[Place], shown: Sequence[str]) -> None:
    """With which probability the intervals of the table cover."""
    scores = [
        place.result.score for place in places if place.group < 2 and place.result.score is not None
    ]
    computed = [q.level for q in scores if q.kind != "exact"]
    behind = [place.difference.level for place in places if place.difference is not None]
    levels = []
    if computed and "interval" in shown:
        levels.append(f"a score's with {percent(min(computed))}")
    if behind:
        least = f"{'at least ' * bool(computed)}{percent(min(behind))}"
        levels.append(f"a difference's with {least}, the spread over rows included")
    if levels:
        typer.echo(f"Intervals cover: {'; '.join(levels)}.")


def _print_verdict(places: Sequence[Place]) -> None:
    """Ties, numbers that are not to be trusted, and bounds that may hide more."""
    if tied := [place.result.name for place in places if place.tied]:
        typer.echo(
            f"= tied with {places[0].result.name}: the interval of the paired difference covers "
            f"zero ({', '.join(tied)})."
        )
    if doubtful := [place.result.name for place in places if place.group == 1]:
        typer.echo(f"Not to be published, and so below the others: {', '.join(doubtful)}.")
    scores = {place.result.name: place.result.score for place in places}
    if bounds := [name for name, q in scores.items() if q is not None and q.kind == "lower"]:
        typer.echo(f"Lower bounds, whose models may be better than shown: {', '.join(bounds)}.")


def _print_apart(results: Sequence[Result]) -> None:
    """What has no likelihood: how far draws are from the rows."""
    if not results:
        return
    typer.echo(
        "\nWithout a likelihood, and so apart (squared kernel distance of draws from these rows; "
        "zero on average where they agree):"
    )
    lines = []
    for result in results:
        q = result.score
        assert q is not None
        interval = f"{q.low:.5f} to {q.high:.5f}"
        more = [
            f"{q.details[name]:.3f}" if name in q.details else ""
            for name in ("p_value", "coverage")
        ]
        lines.append([result.name, f"{q.value:.5f}", interval, *more, f"{result.seconds:.1f}"])
    columns = ["family", "MMD^2", "interval", "p-value", "coverage", "seconds"]
    output.print_table(columns, lines, whole=6)
