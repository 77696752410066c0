"""The records of a fit: one JSON object per line, rewound to the checkpoint when a run is resumed;
and on the way a bar with rate, time left, loss and validation, or a line now and then where there
is no terminal.
"""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from partita.runtime import files
from partita.runtime.files import LARGEST, Json, JsonObject, json_digest, parse, read_text

if TYPE_CHECKING:
    from rich.progress import Progress


Record: TypeAlias = JsonObject
MOST = 1 << 28  # bytes of a metrics file: more than a million records

SECONDS_BETWEEN_LINES = 10.0  # in a file or a pipe, which show no bar that moves


class History:
    """Records of a fit, in memory and, with a path, in ``metrics.jsonl``."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.records: list[Record] = []

    def add(self, record: Record) -> None:
        """Append a record."""
        self.records.append(record)
        if self.path is not None:
            with files.naming(self.path), self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")

    def rewind(self, step: int) -> None:
        """Drop the records after a step that the fit goes back to."""
        records = read_records(self.path) if self.path else self.records
        self.records = [record for record in records if record["step"] <= step]
        if self.path is not None:
            lines = (json.dumps(record) + "\n" for record in self.records)
            files.write_whole(self.path, "".join(lines))

    def digest(self, step: int) -> str:
        """Of the records of steps up to one, without clocks, and without events, which may come
        after the checkpoint that they led to.
        """
        timeless = [
            {name: value for name, value in record.items() if name != "seconds" and _plain(value)}
            for record in self.records
            if 0 < record["step"] <= step and "event" not in record
        ]
        return json_digest(timeless)


def recorded_series(records: list[Record], name: str) -> list[tuple[int, float]]:
    """(step, value) of one recorded number."""
    return [(record["step"], record[name]) for record in records if name in record]


def seconds_of(records: list[Record]) -> float:
    """How long a fit has taken up to its last record.

    >>> seconds_of([{"step": 1, "seconds": 2.5}, {"step": 1, "validation": -3.0}])
    2.5
    """
    found = (record.get("seconds") for record in records)
    return max((seconds for seconds in found if isinstance(seconds, float)), default=0.0)


def read_records(path: Path | None) -> list[Record]:
    """The whole lines of a metrics file; a last line cut by a kill is left out."""
    if path is None or not path.exists():
        return []
    records = []
    for line in read_text(path, MOST, "replace").splitlines():
        try:
            record = parse(line)
        except (ValueError, RecursionError):
            break
        if isinstance(record, dict):
            records.append({name: value for name, value in record.items() if _plain(value)})
    return [record for record in records if type(record.get("step")) is int]


def _plain(value: Json) -> bool:
    """Whether a value is one that a fit records: text, null, or a number that a machine holds."""
    if isinstance(value, int):
        return abs(value) < LARGEST
    return value is None or isinstance(value, str | float)


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
