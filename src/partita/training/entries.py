"""Who takes part in a contest and what each comes to; an entry is kept beside its run, bit for bit."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from partita.core.foreign import check_like
from partita.core.quantity import Quantity
from partita.training import checkpoint
from partita.training.families import Family
from partita.training.run import Run, load

NAME = "score.safetensors"  # of a finished contender, in the folder of its run
FIELDS = ("value", "low", "high", "level", "kind", "unit", "method", "n", "se_data", "verdict", "direction")
SHAPE = {"name": str, "seconds": float, "problem": str, "score": dict}  # of what is read from a file


@dataclass(frozen=True)
class Contender:
    """What is fitted: a family with its settings, under a name for the leaderboard."""

    name: str
    family: Family
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """A line of the leaderboard.

    Arguments:
        name: The contender's.
        score: Mean log-likelihood per held-out row in the units of the data; None where there is none.
        seconds: Of the fit alone, all parts of one that was interrupted together.
        run: What the fit left; None where it failed.
        problem: Why there is no score, in one sentence.
    """

    name: str
    score: Quantity | None
    seconds: float
    run: Run | None = None
    problem: str = ""

    @property
    def interrupted(self) -> bool:
        """Whether the fit was stopped from outside, to be taken up again."""
        return self.run is not None and self.run.stopped == "interrupted"


def write_entry(folder: Path, entry: Entry) -> None:
    """Score, rows and seconds of a contender, bit for bit."""
    q = entry.score
    rows = None if q is None or "rows" not in q.details else q.details["rows"].cpu()
    kept = {"name": entry.name, "seconds": entry.seconds, "problem": entry.problem, "score": None if q is None else _plain(q), "rows": rows}
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.save(folder / NAME, kept)


def read_entry(folder: Path) -> Entry:
    """What :func:`write_entry` wrote, with the run where there is one."""
    kept = checkpoint.load(folder / NAME)
    checkpoint.expect(kept, folder / NAME, "name", "seconds", "problem", "score", "rows")
    check_like(kept, SHAPE, NAME)
    score = None if kept["score"] is None else _quantity(kept["score"], {} if kept["rows"] is None else {"rows": kept["rows"]})
    run = load(folder) if score is not None else None
    return Entry(kept["name"], score, kept["seconds"], run, kept["problem"])


def _plain(q: Quantity) -> dict[str, Any]:
    details = {name: value for name, value in q.details.items() if isinstance(value, bool | int | float | str)}
    log_z = q.details.get("log_z")
    return {**{name: getattr(q, name) for name in FIELDS}, "details": details, "log_z": None if log_z is None else _plain(log_z)}


def _quantity(kept: dict[str, Any], more: dict[str, Any]) -> Quantity:
    log_z = {} if kept["log_z"] is None else {"log_z": _quantity(kept["log_z"], {})}
    return Quantity(**{name: kept[name] for name in FIELDS}, details={**kept["details"], **log_z, **more})
