"""A progress bar with rate, time left, loss and validation, or a line now and then where there is
no terminal.
"""

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

SECONDS_BETWEEN_LINES = 10.0  # in a file or a pipe, which show no bar that moves


class Display:
    """Shows where a fit is; without ``visible`` every call does nothing."""

    def __init__(self, total: int, start: int, visible: bool) -> None:
        self.bar = _make_bar() if visible else None
        self.total = total
        self.start = start
        self.shown = 0.0
        self.validation = ""

    def __enter__(self) -> "Display":
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task(
                "fit", total=self.total, completed=self.start, note="", rate=""
            )
            self.begun = self.printed = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self, step: int, record: dict[str, float]) -> None:
        """Move the bar, at most ten times a second."""
        now = time.monotonic()
        if self.bar is None or (now - self.shown < 0.1 and step < self.total):
            return
        self.shown = now
        rate = _rate((step - self.start) / max(now - self.begun, 1e-9))
        loss = f"loss {record['model']:.3g}" if "model" in record else ""
        note = f"{loss}{self.validation}"
        self.bar.update(self.task, completed=step, rate=f"{rate} steps/s", note=note)
        if not self.bar.console.is_terminal and now - self.printed > SECONDS_BETWEEN_LINES:
            self.printed = now
            self.bar.console.print(
                f"  {step} of {self.total} steps, {rate} a second  {note}", highlight=False
            )

    def show(self, validation: float, distance: bool = False) -> None:
        """Remember the latest validation: a log-likelihood, or minus a squared kernel distance for
        a model that has none.
        """
        number = f"{-validation:.4f} MMD^2" if distance else f"{validation:.2f} nats"
        self.validation = f"  validation {number}"


def _make_bar() -> "Progress":
    from rich import progress

    return progress.Progress(
        progress.TextColumn("[bold]{task.description}"),
        progress.BarColumn(bar_width=16),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[note]}"),
    )


def _rate(steps: float) -> str:
    """Steps a second, with a digit or two where they are few.

    >>> _rate(1234.5), _rate(0.031)
    ('1234', '0.031')
    """
    return f"{steps:.0f}" if steps >= 10 else f"{steps:.2g}"
