"""The leaderboard of a comparison in the terminal, made from what is saved of it."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from partita.cli import output
from partita.experiment.board import SavedBoard
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
