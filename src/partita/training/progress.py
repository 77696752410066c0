"""A progress bar with rate, time left, loss and validation, or a line now and then where there is
no terminal; silent unless asked for.
"""

import time
from types import TracebackType
from typing import Any

SECONDS_BETWEEN_LINES = 10.0  # in a file or a pipe, which show no bar that moves


class Display:
    """Shows where a fit is; without ``visible`` every call does nothing."""

    def __init__(self, total: int, start: int, visible: bool) -> None:
        self.bar = self._make_bar() if visible else None
        self.total, self.start = total, start
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self, step: int, record: dict[str, float]) -> None:
        """Move the bar, at most ten times a second."""
        now = time.monotonic()
        if self.bar is None or (now - self.shown < 0.1 and step < self.total):
            return
        self.shown = now
        rate = _rate((step - self.start) / max(now - self.begun, 1e-9))
        loss = "  ".join(f"{name} {value:.3g}" for name, value in record.items() if name == "model")
        note = f"{loss.replace('model', 'loss')}{self.validation}"
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
        self.validation = (
            f"  validation {-validation:.4f} MMD^2"
            if distance
            else f"  validation {validation:.2f} nats"
        )

    def _make_bar(self) -> Any:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        return Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )


def _rate(steps: float) -> str:
    """Steps a second, with a digit or two where they are few.

    >>> _rate(1234.5), _rate(0.031)
    ('1234', '0.031')
    """
    return f"{steps:.0f}" if steps >= 10 else f"{steps:.2g}"
