"""What benchmarks showed, as ``results.json`` keeps it: one record for each benchmark."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from partita.runtime.files import write_whole

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
QUICKLY = " --quick"  # ends the command of a record whose benchmark was told to be short

Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class Record:
    """One benchmark.

    Arguments:
        lines: What was shown, one dict of columns each; ``what`` is its name.
        curves: Costs against sizes, for figures.
        notes: What was left out, and why.
        about: Processor, threads and versions.
        title: The first sentence of the benchmark's file.
        date, command, seconds: When, how, and how long it ran.
    """

    lines: Lines
    curves: Lines = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)
    title: str = ""
    date: str = ""
    command: str = ""
    seconds: float = 0.0

    @property
    def fullness(self) -> tuple[bool, bool, bool]:
        """Something shown, nothing left out, nothing cut short; more is larger."""
        return bool(self.lines), not self.notes, not self.command.endswith(QUICKLY)


def read(path: Path = RESULTS) -> dict[str, Record]:
    """All records by the name of their benchmark; none where nothing is recorded. What a record
    does not know is left out.
    """
    known = {part.name for part in fields(Record)}
    saved = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        name: Record(**{key: value for key, value in parts.items() if key in known})
        for name, parts in saved.items()
    }


def write(records: dict[str, Record], path: Path = RESULTS) -> None:
    """Whole or not at all, benchmarks in the order of the alphabet: a line of a benchmark is a line
    of the file.
    """
    write_whole(path, as_text(records))


def as_text(records: dict[str, Record]) -> str:
    """JSON that a person can read and compare.

    >>> print(as_text({"a": Record([{"what": "x", "ratio": 1.5}])}).splitlines()[3])
       {"what": "x", "ratio": 1.5}
    """
    parts = (
        f" {json.dumps(name)}: {{\n"
        + ",\n".join(_field(key, value) for key, value in asdict(records[name]).items())
        + "\n }"
        for name in sorted(records)
    )
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _field(key: str, value: Any) -> str:
    if isinstance(value, list) and value:
        return (
            f"  {json.dumps(key)}: [\n"
            + ",\n".join(f"   {_json(part)}" for part in value)
            + "\n  ]"
        )
    return f"  {json.dumps(key)}: {_json(value)}"


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)
