"""The records of a fit: one JSON object per line, rewound to the checkpoint when a run is
resumed.
"""

import json
from pathlib import Path
from typing import TypeAlias

from partita.runtime import atomic_files
from partita.runtime.untrusted import LARGEST, Json, JsonObject, json_digest, parse, read_text

Record: TypeAlias = JsonObject
MOST = 1 << 28  # bytes of a metrics file: more than a million records


class History:
    """Records of a fit, in memory and, with a path, in ``metrics.jsonl``."""

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
        """Drop the records after a step that the fit goes back to."""
        records = read_records(self.path) if self.path else self.records
        self.records = [record for record in records if record["step"] <= step]
        if self.path is not None:
            lines = (json.dumps(record) + "\n" for record in self.records)
            atomic_files.write_whole(self.path, "".join(lines))

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
