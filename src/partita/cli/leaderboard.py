"""The leaderboard of a comparison in the terminal, made from what is saved of it: as it grows, and
when all are done.
"""

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from partita.cli import output
from partita.experiment.compare import Candidate, Result
from partita.experiment.leaderboard import Board, SavedBoard, ranking
from partita.report.ranking import (
    COLUMNS,
    NO_BREAK,
    distance_rows,
    level,
    notes,
    standings,
    table_cells,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# in this order, where a terminal is narrow
SPARED = ("± rows", "parameters", "verdict", "bits/dim", "interval")
WIDE = 180  # columns of text where there is no terminal
APART = (
    "\nWithout a likelihood, and so apart (squared kernel distance of draws from these rows; zero "
    "on average where they agree):"
)


def print_board(board: SavedBoard, what: str) -> None:
    """Print the table and the notes below it; ``what`` names the candidates."""
    ranked = standings(board)
    columns, lines = fitting(lines_of(board), what)
    about = "; ± rows: standard error over them" if "± rows" in columns else ""
    title = board.get("title")
    typer.echo(f"\n{title}\nMean log-likelihood per row, in nats (higher is better{about}):")
    wide_console().print(output.rich_table(columns, lines, whole=len(COLUMNS)))
    covered = []
    if "interval" in columns and (share := level(s.score for s in ranked)):
        covered.append(f"a score's with {share}")
    if share := level(s.difference for s in ranked):
        covered.append(f"a difference's with {share}, the spread over rows included")
    if covered:
        typer.echo(f"Intervals cover: {'; '.join(covered)}.")
    if apart := distance_rows(ranked):
        typer.echo(APART)
        head = [what, "MMD^2", "interval", "p-value", "coverage", "seconds"]
        output.print_table(head, [[_plain(cell) for cell in line] for line in apart], whole=6)
    for note in notes(board, ranked):
        typer.echo(note.text)
    for text in board.get("warnings") or []:
        output.print_warning(text)


def lines_of(board: SavedBoard) -> list[list[str]]:
    """The cells of the table, for candidates that have a likelihood or failed."""
    ranked = standings(board)
    return [[_plain(cell) for cell in table_cells(s, ranked)] for s in ranked if not s.distance]


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
    head = [what if COLUMNS[i] == "candidate" else COLUMNS[i] for i in shown]
    return head, [[line[i] for i in shown] for line in lines]


def wide_console() -> "Console":
    """As wide as the terminal; a pipe or a file has room for all columns, unless COLUMNS sets
    another width.
    """
    from rich.console import Console

    found = Console(highlight=False)
    narrow = found.is_terminal or "COLUMNS" in os.environ
    return found if narrow else Console(highlight=False, width=WIDE)


def _plain(cell: str) -> str:
    return cell.replace(NO_BREAK, " ")


class LiveBoard:
    """What is shown while candidates are fitted: in a terminal a table that grows, elsewhere a line
    for each.

    Arguments:
        candidates: All of them.
        board: What the leaderboard is about.
        talk: Whether anything is shown at all.
    """

    def __init__(self, candidates: Sequence[Candidate], board: Board, talk: bool) -> None:
        from rich.live import Live

        self.names = [candidate.name for candidate in candidates]
        self.board = board
        self.talk = talk
        self.results: list[Result] = []
        self.running, self.since = "", 0.0
        screen = wide_console()
        self.live = None
        if talk and screen.is_terminal:
            self.live = Live(
                get_renderable=self.table, console=screen, refresh_per_second=2, transient=True
            )

    def __enter__(self) -> "LiveBoard":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.stop()

    def begin(self, candidate: Candidate) -> bool:
        """A candidate's turn; whether its fit is to show a bar of its own, which would go over the
        table.
        """
        self.running, self.since = candidate.name, time.monotonic()
        if self.talk and self.live is None:
            typer.echo(
                f"{candidate.name} ({1 + self.names.index(candidate.name)} of {len(self.names)}) "
                "..."
            )
        return False

    def done(self, result: Result) -> None:
        """What a candidate came to."""
        before = "" if self.running == result.name else f"{result.name}, as saved:"
        self.results, self.running = [*self.results, result], ""
        if self.talk and self.live is None:
            cut = ", cut short by the clock" * self.board.cut_short(result)
            typer.echo(f"{before}  {result.problem or result.score} ({result.seconds:.0f} s{cut})")

    def table(self) -> "Table":
        """Places so far, the candidate that is being fitted, and those that wait."""
        results, running = self.results, self.running
        known = {result.name for result in results}
        lines = lines_of(self.board.saved(ranking(results)))
        for name in self.names:
            if name == running:
                seconds = f"{time.monotonic() - self.since:.0f}"
                lines.append(["…", name, "fitting", *[""] * 7, seconds])
            elif name not in known:
                lines.append(["", name, "waiting", *[""] * 8])
        columns, cells = fitting(lines, self.board.what)
        return output.rich_table(columns, cells, whole=len(columns))
