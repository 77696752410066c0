"""What a fit recorded: one JSON object per line, rewound to the checkpoint when a run is
resumed.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from partita.runtime import atomic_files
from partita.runtime.untrusted import LARGEST, parse, read_text

Record = dict[str, Any]
MOST = 1 << 28  # bytes of a metrics file: more than a million records


class History:
    """Records of a fit, in memory and, with a folder, in ``metrics.jsonl``."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.records: list[Record] = []

    def add(self, record: Record) -> None:
        """Append a record."""
        self.records.append(record)
        if self.path is not None:
            with atomic_files.naming(self.path), self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")

    def rewind(self, step: int) -> None:
        """Drop what was recorded after a step that the fit goes back to."""
        self.records = [
            record
            for record in (read(self.path) if self.path else self.records)
            if record["step"] <= step
        ]
        if self.path is not None:
            atomic_files.write_whole(
                self.path, "".join(json.dumps(record) + "\n" for record in self.records)
            )

    def digest(self, step: int) -> str:
        """Of the records of steps up to one, without clocks, and without events, which may come
        after the save that they led to.
        """
        told = (
            record
            for record in self.records
            if 0 < record["step"] <= step and "event" not in record
        )
        timeless = [
            {name: value for name, value in record.items() if name != "seconds" and _plain(value)}
            for record in told
        ]
        return hashlib.blake2b(json.dumps(timeless).encode(), digest_size=16).hexdigest()

    def series(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of one number."""
        return [(record["step"], record[name]) for record in self.records if name in record]


def seconds_of(records: list[Record]) -> float:
    """How long a fit has taken up to its last record.

    >>> seconds_of([{"step": 1, "seconds": 2.5}, {"step": 1, "validation": -3.0}])
    2.5
    """
    return max(
        (seconds for record in records if isinstance(seconds := record.get("seconds"), float)),
        default=0.0,
    )


def read(path: Path | None) -> list[Record]:
    """The whole lines of a metrics file; a last line cut by a kill is left out."""
    if path is None or not path.exists():
        return []
    records = []
    for line in read_text(path, MOST, "replace").splitlines():
        try:
            records.append(parse(line))
        except (ValueError, RecursionError):
            break
    plain = [
        {name: value for name, value in record.items() if _plain(value)}
        for record in records
        if isinstance(record, dict)
    ]
    return [record for record in plain if type(record.get("step")) is int]


def _plain(value: Any) -> bool:
    """Whether a value is what a fit records: a text, nothing, or a number that a machine holds."""
    return (
        value is None
        or isinstance(value, str | float)
        or (isinstance(value, int) and abs(value) < LARGEST)
    )
