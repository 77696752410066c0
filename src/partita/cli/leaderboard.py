"""The leaderboard of a comparison: in the terminal while it grows and when it is done, as JSON and as CSV."""

import csv
import io
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import typer

from partita.cli import show
from partita.core.files import write_whole
from partita.core.quantity import bits_per_dimension
from partita.training.entries import Contender, Entry
from partita.training.paired import Place, ranking

COLUMNS = ["", "family", "nats", "interval", "± rows", "bits/dim", "behind the best", "kind", "verdict", "parameters", "seconds"]
SPARED = ("± rows", "parameters", "verdict", "bits/dim", "interval")  # in this order, where a terminal is narrow
WIDE = 180  # columns of text where there is no terminal
FLAT = ("value", "low", "high", "level", "kind", "method", "se_data", "verdict")  # of a score, in the CSV


@dataclass(frozen=True)
class Board:
    """What a leaderboard is about.

    Arguments:
        title: The data and how many rows of them are scored.
        what: What contenders are called: ``family`` or ``objective``.
        width: How many numbers a row has, on average where rows differ: what bits per dimension are counted by.
        left_out: Who does not take part, with the reason.
        entropy: Of the law behind the data in nats, where it is known.
    """

    title: str
    what: str = "family"
    width: float = 1.0
    left_out: Mapping[str, str] = field(default_factory=dict)
    entropy: float | None = None

    def as_json(self, folder: Path, places: Sequence[Place]) -> dict[str, Any]:
        """What ``leaderboard.json`` holds."""
        lines = [place_json(place, self.width) for place in places]
        return {"title": self.title, "folder": str(folder), "entries": lines, "left_out": dict(self.left_out), "entropy": self.entropy}


def place_json(place: Place, width: float) -> dict[str, Any]:
    """One line of ``leaderboard.json``."""
    entry = place.entry
    q, run = entry.score, entry.run
    bits = None if q is None or q.kind == "none" else show.quantity_json(bits_per_dimension(q, width))
    made = {} if run is None else {"run": str(run.folder), "steps": run.steps, "stopped": run.stopped, "cautions": run.cautions}
    return {
        "name": entry.name,
        "log_likelihood": None if q is None else show.quantity_json(q),
        "bits_per_dimension": None if bits is None else {name: bits[name] for name in ("value", "low", "high")},
        "difference": None if place.difference is None else show.quantity_json(place.difference),
        "tied": place.tied,
        "seconds": round(entry.seconds, 3),
        "parameters": None if run is None else sum(p.numel() for p in run.model.parameters()) or None,
        "problem": entry.problem or None,
        **made,
    }


def save(folder: Path, board: Mapping[str, Any]) -> None:
    """Write ``leaderboard.json`` and ``leaderboard.csv``, each whole or not at all."""
    write_whole(folder / "leaderboard.json", show.as_json_text(board) + "\n")
    write_whole(folder / "leaderboard.csv", as_csv(board["entries"]))


def as_csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """One line for each contender; what is unknown is empty."""
    out = io.StringIO()
    head = ["name", *(f"log_likelihood_{name}" for name in FLAT), "bits_per_dimension", "difference", "difference_low", "difference_high",
            "difference_level", "tied", "parameters", "seconds", "problem"]  # fmt: skip
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for line in lines:
        q, d, bits = (line[name] or {} for name in ("log_likelihood", "difference", "bits_per_dimension"))
        behind = [d.get(name) for name in ("value", "low", "high", "level")]
        writer.writerow([line["name"], *(q.get(name) for name in FLAT), bits.get("value"), *behind, line["tied"], line["parameters"],
                         line["seconds"], line["problem"]])  # fmt: skip
    return out.getvalue()


def lines_of(places: Sequence[Place], width: float) -> list[list[str]]:
    """The cells of the table, for those that have a likelihood or failed."""
    shown = [place for place in places if place.group != 2]
    return [_cells(place, place_json(place, width), i == 0) for i, place in enumerate(shown)]


def _cells(place: Place, line: Mapping[str, Any], first: bool) -> list[str]:
    q, seconds = place.entry.score, f"{place.entry.seconds:.1f}"
    size = "" if line["parameters"] is None else f"{line['parameters']:,}"
    if q is None:
        return ["", place.entry.name, "", "", "", "", "", "failed", "", size, seconds]
    best = first and q.trusted
    d, mark = place.difference, "★" if best else "=" if place.tied else ""
    interval, verdict = ("", "") if q.kind == "exact" else (f"{_number(q.low)} to {_number(q.high)}", q.verdict)
    behind = "best" if best else "" if d is None else f"{d.value:.3f} ({_number(d.low)} to {_number(d.high)})"
    return [mark, place.entry.name, f"{q.value:.3f}", interval, f"{q.se_data:.3f}", f"{line['bits_per_dimension']['value']:.4f}", behind,
            q.kind, verdict, size, seconds]  # fmt: skip


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "?"


def fitting(lines: Sequence[Sequence[str]], what: str = "family") -> tuple[list[str], list[list[str]]]:
    """Columns, of which ``what`` names the contenders, and cells that fit the terminal; all of them are in the CSV."""
    shown, room = list(range(len(COLUMNS))), console().width
    for name in (*SPARED, None):
        widths = [max(len(text) for text in (COLUMNS[i], *(line[i] for line in lines))) + 2 for i in shown]
        if name is None or sum(widths) <= room:
            break
        shown.remove(COLUMNS.index(name))
    return [what if COLUMNS[i] == "family" else COLUMNS[i] for i in shown], [[line[i] for i in shown] for line in lines]


def console() -> Any:
    """As wide as the terminal; a pipe or a file has room for all columns, unless COLUMNS says otherwise."""
    from rich.console import Console

    found = Console(highlight=False)
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=WIDE)


def print_board(board: Board, entries: Sequence[Entry]) -> None:
    """The table and what is to be said about it."""
    places = ranking(entries)
    typer.echo(f"\n{board.title}\nMean log-likelihood per row, in nats (higher is better; ± rows: standard error over them):")
    console().print(show.grid(*fitting(lines_of(places, board.width), board.what), whole=len(COLUMNS)))
    _print_verdict(places)
    if board.entropy is not None:
        typer.echo(f"No model scores above {-board.entropy:.3f} on average: the data's negative entropy.")
    _print_apart([place.entry for place in places if place.group == 2])
    for place in places:
        if place.entry.problem:
            typer.echo(f"{place.entry.name}: {place.entry.problem}")
    for name, reason in board.left_out.items():
        typer.echo(f"Left out {name}: {reason}.")


def _print_verdict(places: Sequence[Place]) -> None:
    """Who is tied, what is not to be trusted, and which bounds may hide more."""
    tied = [place.entry.name for place in places if place.tied]
    if tied:
        typer.echo(f"= tied with {places[0].entry.name}: the interval of the paired difference covers zero ({', '.join(tied)}).")
    doubtful = [place.entry.name for place in places if place.group == 1]
    if doubtful:
        typer.echo(f"Not to be published, and so below the others: {', '.join(doubtful)}.")
    bounds = [place.entry.name for place in places if place.entry.score is not None and place.entry.score.kind == "lower"]
    if bounds:
        typer.echo(f"Lower bounds, whose models may be better than shown: {', '.join(bounds)}.")


def _print_apart(entries: Sequence[Entry]) -> None:
    """What has no likelihood: how far draws are from the rows."""
    if not entries:
        return
    typer.echo("\nWithout a likelihood, and so apart (squared kernel distance of draws from these rows; zero on average where they agree):")
    lines = []
    for entry in entries:
        q = entry.score
        assert q is not None
        interval = f"{q.low:.5f} to {q.high:.5f}"
        more = [f"{q.details[name]:.3f}" if name in q.details else "" for name in ("p_value", "coverage")]
        lines.append([entry.name, f"{q.value:.5f}", interval, *more, f"{entry.seconds:.1f}"])
    show.table(["family", "MMD^2", "interval", "p-value", "coverage", "seconds"], lines, whole=6)


class Watch:
    """What is shown while contenders are fitted: in a terminal a table that grows, elsewhere a line for each.

    Arguments:
        contenders: All of them.
        board: What the leaderboard is about.
        talk: Whether anything is shown at all.
    """

    def __init__(self, contenders: Sequence[Contender], board: Board, talk: bool) -> None:
        from rich.live import Live

        self.names, self.board, self.talk = [contender.name for contender in contenders], board, talk
        self.entries: list[Entry] = []
        self.running, self.since = "", 0.0
        screen = console()
        live = talk and screen.is_terminal
        self.live = Live(get_renderable=self.table, console=screen, refresh_per_second=2, transient=True) if live else None

    def __enter__(self) -> "Watch":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def begin(self, contender: Contender) -> bool:
        """A contender's turn; whether its fit is to show a bar of its own, which would go over the table."""
        self.running, self.since = contender.name, time.monotonic()
        if self.talk and self.live is None:
            typer.echo(f"{contender.name} ({1 + self.names.index(contender.name)} of {len(self.names)}) ...")
        return False

    def done(self, entry: Entry) -> None:
        """What a contender came to."""
        self.entries, self.running = [*self.entries, entry], ""
        if self.talk and self.live is None:
            typer.echo(f"  {entry.problem or entry.score} ({entry.seconds:.0f} s)")

    def table(self) -> Any:
        """Places so far, whose turn it is, and who waits."""
        entries, running = self.entries, self.running
        known = {entry.name for entry in entries}
        lines = lines_of(ranking(entries), self.board.width)
        for name in self.names:
            if name not in known:
                busy = name == running
                note = [f"{time.monotonic() - self.since:.0f}"] if busy else [""]
                lines.append(["…" if busy else "", name, "fitting" if busy else "waiting", *[""] * 7, *note])
        return show.grid(*fitting(lines, self.board.what), whole=len(COLUMNS))
