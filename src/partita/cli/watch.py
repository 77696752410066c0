"""A comparison while it goes on: in a terminal a leaderboard that grows, elsewhere a line for each
candidate.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from partita.cli import leaderboard, output
from partita.experiment.board import Board
from partita.experiment.leaderboard import ranking
from partita.experiment.results import Candidate, Result

if TYPE_CHECKING:
    from rich.table import Table


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
        screen = leaderboard.wide_console()
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
        lines = leaderboard.lines_of(self.board.saved(ranking(results)))
        for name in self.names:
            if name == running:
                seconds = f"{time.monotonic() - self.since:.0f}"
                lines.append(["…", name, "fitting", *[""] * 7, seconds])
            elif name not in known:
                lines.append(["", name, "waiting", *[""] * 8])
        columns, cells = leaderboard.fitting(lines, self.board.what)
        return output.rich_table(columns, cells, whole=len(columns))
