"""The leaderboard of a comparison: in the terminal, as JSON and as CSV."""

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from partita.cli import show
from partita.core.quantity import bits_per_dimension
from partita.experiment.leaderboard import Place, ranking
from partita.experiment.results import Result
from partita.report.format import cut_short, left_out, models, percent
from partita.runtime.atomic_files import write_whole
from partita.training.budget import OUT_OF_TIME

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


@dataclass(frozen=True)
class Board:
    """What a leaderboard is about.

    Arguments:
        title: The data and how many rows of them are scored.
        what: What candidates are called: ``family`` or ``objective``.
        width: How many numbers a row has, on average where rows differ: what bits per dimension are
            counted by.
        left_out: Who does not take part, with the reason.
        warnings: About the data, one sentence each.
        entropy: Of the law behind the data in nats, where it is known.
        timed: Whether fits share a time, and may be cut to it.
        names: Who takes part.
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
        """Whether the clock ended a search before the fit, or gave the fit fewer steps than its
        recipe has, and it took them all.
        """
        if not self.timed or result.run is None:
            return False
        config = result.run.config
        fewer = (
            result.run.stopped == "finished" and (config.get("fit") or {}).get("steps") is not None
        )
        return fewer or result.run.stopped == OUT_OF_TIME or bool(config.get("cuts"))

    def as_json(self, folder: Path, places: Sequence[Place]) -> dict[str, Any]:
        """What ``leaderboard.json`` holds; who waits are those of ``names`` who have no place
        yet.
        """
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
        """Who has not had a turn."""
        done = {result.name for result in results}
        return [name for name in self.names if name not in done]


def place_json(place: Place, width: float) -> dict[str, Any]:
    """One line of ``leaderboard.json``."""
    result = place.result
    q, run = result.score, result.run
    bits = (
        None if q is None or q.kind == "none" else show.quantity_json(bits_per_dimension(q, width))
    )
    made = (
        {}
        if run is None
        else {
            "run": str(run.folder),
            "model": run.model.title(),
            "steps": run.steps,
            "planned_steps": run.config["steps"],
            "stopped": run.stopped,
            "warnings": run.warnings,
        }
    )
    return {
        "name": result.name,
        "log_likelihood": None if q is None else show.quantity_json(q),
        "bits_per_dimension": None
        if bits is None
        else {name: bits[name] for name in ("value", "low", "high")},
        "difference": None if place.difference is None else show.quantity_json(place.difference),
        "tied": place.tied,
        "seconds": round(result.seconds, 3),
        "parameters": None if run is None else _parameters(run.model),
        "problem": result.problem or None,
        **made,
    }


def _parameters(model: Any) -> int | None:
    """Those that are free, where a model counts them; None where it has draws in their place."""
    return (
        model.freedom()
        if hasattr(model, "freedom")
        else sum(p.numel() for p in model.parameters()) or None
    )


def save(folder: Path, board: Mapping[str, Any]) -> None:
    """Write ``leaderboard.json`` and ``leaderboard.csv``, each whole or not at all."""
    write_whole(folder / "leaderboard.json", show.as_json_text(board) + "\n")
    write_whole(folder / "leaderboard.csv", as_csv(board["results"]))


def as_csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """One line for each candidate; what is unknown is empty."""
    out = io.StringIO()
    head = [
        "name",
        *(f"log_likelihood_{name}" for name in FLAT),
        "bits_per_dimension",
        "difference",
        "difference_low",
        "difference_high",
        "difference_level",
        "tied",
        "parameters",
        "seconds",
        "model",
        "problem",
    ]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for line in lines:
        q, d, bits = (
            line[name] or {} for name in ("log_likelihood", "difference", "bits_per_dimension")
        )
        behind = [d.get(name) for name in ("value", "low", "high", "level")]
        writer.writerow(
            [
                line["name"],
                *(q.get(name) for name in FLAT),
                bits.get("value"),
                *behind,
                line["tied"],
                line["parameters"],
                line["seconds"],
                line.get("model"),
                line["problem"],
            ]
        )
    return out.getvalue()


def lines_of(places: Sequence[Place], board: Board) -> list[list[str]]:
    """The cells of the table, for those that have a likelihood or failed."""
    shown = [place for place in places if place.group != 2]
    return [
        _cells(place, place_json(place, board.width), i == 0, board.cut_short(place.result))
        for i, place in enumerate(shown)
    ]


def _cells(place: Place, line: Mapping[str, Any], first: bool, cut: bool) -> list[str]:
    q, seconds = place.result.score, f"{place.result.seconds:.1f}{' cut' * cut}"
    size = "" if line["parameters"] is None else f"{line['parameters']:,}"
    if q is None:
        return [
            "",
            place.result.name,
            "",
            "",
            "",
            "",
            "",
            "interrupted" if place.result.interrupted else "failed",
            "",
            size,
            seconds,
        ]
    best = first and q.trusted
    d, mark = place.difference, "★" if best else "=" if place.tied else ""
    interval = "" if q.kind == "exact" else f"{_number(q.low)} to {_number(q.high)}"
    behind = (
        "best"
        if best
        else ""
        if d is None
        else f"{d.value:.3f} ({_number(d.low)} to {_number(d.high)})"
    )
    spread = f"{q.se_data:.3f}" if q.se_data else ""  # of one row there is none
    return [
        mark,
        place.result.name,
        f"{q.value:.3f}",
        interval,
        spread,
        f"{line['bits_per_dimension']['value']:.4f}",
        behind,
        q.kind,
        q.verdict,
        size,
        seconds,
    ]


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "?"


def fitting(
    lines: Sequence[Sequence[str]], what: str = "family"
) -> tuple[list[str], list[list[str]]]:
    """Columns, of which ``what`` names the candidates, and cells that fit the terminal; all of them
    are in the CSV.
    """
    shown, room = list(range(len(COLUMNS))), console().width
    for name in (*SPARED, None):
        widths = [
            max(len(text) for text in (COLUMNS[i], *(line[i] for line in lines))) + 2 for i in shown
        ]
        if name is None or sum(widths) <= room:
            break
        shown.remove(COLUMNS.index(name))
    return [what if COLUMNS[i] == "family" else COLUMNS[i] for i in shown], [
        [line[i] for i in shown] for line in lines
    ]


def console() -> Any:
    """As wide as the terminal; a pipe or a file has room for all columns, unless COLUMNS says
    otherwise.
    """
    from rich.console import Console

    found = Console(highlight=False)
    return (
        found
        if found.is_terminal or "COLUMNS" in os.environ
        else Console(highlight=False, width=WIDE)
    )


def print_board(board: Board, results: Sequence[Result]) -> None:
    """The table and what is to be said about it."""
    places = ranking(results)
    columns, lines = fitting(lines_of(places, board), board.what)
    about = "; ± rows: standard error over them" if "± rows" in columns else ""
    typer.echo(f"\n{board.title}\nMean log-likelihood per row, in nats (higher is better{about}):")
    console().print(show.grid(columns, lines, whole=len(COLUMNS)))
    _print_levels(places, shown=columns)
    _print_verdict(places)
    if cut := [place_json(place, board.width) for place in places if board.cut_short(place.result)]:
        typer.echo(cut_short(cut))
    if board.entropy is not None:
        typer.echo(
            f"No model scores above {-board.entropy:.3f} on average: the data's negative entropy."
        )
    _print_apart([place.result for place in places if place.group == 2])
    if fitted := models([place_json(place, board.width) for place in places]):
        typer.echo(fitted)
    for place in places:
        if place.result.problem:
            typer.echo(f"{place.result.name}: {place.result.problem}")
    if waiting := board.waiting(results):
        typer.echo(f"Not yet fitted: {', '.join(waiting)}.")
    for text in board.warnings:
        show.warning(text)
    for text in left_out(board.left_out):
        typer.echo(text)


def _print_levels(places: Sequence[Place], shown: Sequence[str]) -> None:
    """With which probability the intervals of the table cover."""
    scores = [
        place.result.score for place in places if place.group < 2 and place.result.score is not None
    ]
    computed = [q.level for q in scores if q.kind != "exact"]
    behind = [place.difference.level for place in places if place.difference is not None]
    told = [f"a score's with {percent(min(computed))}"] if computed and "interval" in shown else []
    told += (
        [
            f"a difference's with {'at least ' * bool(computed)}{percent(min(behind))}, the spread "
            "over rows included"
        ]
        if behind
        else []
    )
    if told:
        typer.echo(f"Intervals cover: {'; '.join(told)}.")


def _print_verdict(places: Sequence[Place]) -> None:
    """Who is tied, what is not to be trusted, and which bounds may hide more."""
    tied = [place.result.name for place in places if place.tied]
    if tied:
        typer.echo(
            f"= tied with {places[0].result.name}: the interval of the paired difference covers "
            f"zero ({', '.join(tied)})."
        )
    doubtful = [place.result.name for place in places if place.group == 1]
    if doubtful:
        typer.echo(f"Not to be published, and so below the others: {', '.join(doubtful)}.")
    bounds = [
        place.result.name
        for place in places
        if place.result.score is not None and place.result.score.kind == "lower"
    ]
    if bounds:
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
    show.table(["family", "MMD^2", "interval", "p-value", "coverage", "seconds"], lines, whole=6)
