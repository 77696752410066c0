"""A comparison while it goes on: in a terminal a leaderboard that grows, elsewhere a line for each
contender.
"""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import typer

from partita.cli import leaderboard, show
from partita.training.entries import Contender, Entry
from partita.training.paired import ranking


class Watch:
    """What is shown while contenders are fitted: in a terminal a table that grows, elsewhere a line
    for each.

    Arguments:
        contenders: All of them.
        board: What the leaderboard is about.
        talk: Whether anything is shown at all.
    """

    def __init__(
        self, contenders: Sequence[Contender], board: leaderboard.Board, talk: bool
    ) -> None:
        from rich.live import Live

        self.names = [contender.name for contender in contenders]
        self.board = board
        self.talk = talk
        self.entries: list[Entry] = []
        self.running, self.since = "", 0.0
        screen = leaderboard.console()
        live = talk and screen.is_terminal
        self.live = (
            Live(get_renderable=self.table, console=screen, refresh_per_second=2, transient=True)
            if live
            else None
        )

    def __enter__(self) -> "Watch":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def begin(self, contender: Contender) -> bool:
        """A contender's turn; whether its fit is to show a bar of its own, which would go over the
        table.
        """
        self.running, self.since = contender.name, time.monotonic()
        if self.talk and self.live is None:
            typer.echo(
                f"{contender.name} ({1 + self.names.index(contender.name)} of {len(self.names)}) "
                "..."
            )
        return False

    def done(self, entry: Entry) -> None:
        """What a contender came to."""
        before = "" if self.running == entry.name else f"{entry.name}, as saved:"
        self.entries, self.running = [*self.entries, entry], ""
        if self.talk and self.live is None:
            cut = ", cut short by the clock" * self.board.cut_short(entry)
            typer.echo(f"{before}  {entry.problem or entry.score} ({entry.seconds:.0f} s{cut})")

    def table(self) -> Any:
        """Places so far, whose turn it is, and who waits."""
        entries, running = self.entries, self.running
        known = {entry.name for entry in entries}
        lines = leaderboard.lines_of(ranking(entries), self.board)
        for name in self.names:
            if name not in known:
                busy = name == running
                note = [f"{time.monotonic() - self.since:.0f}"] if busy else [""]
                lines.append(
                    ["…" if busy else "", name, "fitting" if busy else "waiting", *[""] * 7, *note]
                )
        return show.grid(
            *leaderboard.fitting(lines, self.board.what), whole=len(leaderboard.COLUMNS)
        )
