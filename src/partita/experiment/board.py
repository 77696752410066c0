"""The leaderboard of a comparison on disk: ``leaderboard.json``, from which the terminal and the
page are made alike, and ``leaderboard.csv``.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NotRequired, Protocol, TypedDict, runtime_checkable

from partita.core.protocols import Model
from partita.core.quantity import bits_per_dimension
from partita.errors import RunError
from partita.experiment.leaderboard import Place
from partita.experiment.results import Result
from partita.runtime.atomic_files import write_whole
from partita.runtime.untrusted import finite_json, inside, read_json, shape_of
from partita.training.budget import OUT_OF_TIME

NAME = "leaderboard.json"
# cells of the CSV: of a line, of its score, and of its difference to the best
FLAT = ("value", "low", "high", "level", "kind", "method", "se_data", "verdict")
INTERVAL = ("low", "high", "level")
LAST = ("tied", "parameters", "seconds", "model", "problem")
# what must be there of each quantity of a line that is read back
NEEDED = {
    "log_likelihood": {"value", "low", "high", "kind", "verdict"},
    "difference": {"value", "low", "high"},
    "bits_per_dimension": {"value"},
}


class SavedDetails(TypedDict, total=False):
    """What is shown of the diagnostics of a saved Quantity."""

    p_value: float
    coverage: float
    per_step: float


class SavedQuantity(TypedDict):
    """A Quantity as JSON; an end that is not finite is null."""

    value: float
    low: float | None
    high: float | None
    kind: str
    verdict: str
    level: NotRequired[float | None]
    se_data: NotRequired[float | None]
    details: NotRequired["SavedDetails"]


class Line(TypedDict):
    """A candidate on a saved leaderboard."""

    name: str
    log_likelihood: NotRequired[SavedQuantity | None]
    bits_per_dimension: NotRequired[SavedQuantity | None]
    difference: NotRequired[SavedQuantity | None]  # to the best
    tied: NotRequired[bool]  # with the best
    seconds: NotRequired[float]
    parameters: NotRequired[int | None]
    problem: NotRequired[str | None]
    model: NotRequired[str]
    steps: NotRequired[int]
    planned_steps: NotRequired[int]
    stopped: NotRequired[str]
    cut_short: NotRequired[bool]


class SavedBoard(TypedDict):
    """A saved leaderboard."""

    results: list[Line]
    title: NotRequired[str]
    folder: NotRequired[str]
    left_out: NotRequired[dict[str, str]]
    entropy: NotRequired[float | None]
    warnings: NotRequired[list[str]]
    waiting: NotRequired[list[str]]


@runtime_checkable
class _CountsParameters(Protocol):
    """A model that counts its free parameters itself."""

    def freedom(self) -> int: ...


@dataclass(frozen=True)
class Board:
    """What a leaderboard is about.

    Arguments:
        title: The data and how many rows of them are scored.
        what: What candidates are called: ``family`` or ``objective``.
        width: How many numbers a row has, on average where rows differ: what bits per dimension are
            counted by.
        left_out: Families that do not take part, with the reason.
        warnings: About the data, one sentence each.
        entropy: Of the distribution behind the data in nats, where it is known.
        timed: Whether fits share a time budget, and may be cut short by it.
        names: All candidates.
        folder: Of the comparison.
    """

    title: str
    what: str = "family"
    width: float = 1.0
    left_out: Mapping[str, str] = field(default_factory=dict)
    entropy: float | None = None
    timed: bool = False
    warnings: Sequence[str] = ()
    names: Sequence[str] = ()
    folder: Path = Path()

    def cut_short(self, result: Result) -> bool:
        """Whether the time budget ended a search before the fit, or gave the fit fewer steps than
        its recipe has, and it took them all.
        """
        run = result.run
        if not self.timed or run is None:
            return False
        planned = (run.config.get("fit") or {}).get("steps") is not None
        fewer = run.stopped == "finished" and planned
        return fewer or run.stopped == OUT_OF_TIME or bool(run.config.get("cuts"))

    def saved(self, places: Sequence[Place]) -> SavedBoard:
        """What ``leaderboard.json`` holds; candidates of ``names`` without a place are waiting."""
        done = {place.result.name for place in places}
        return finite_json(
            {
                "title": self.title,
                "folder": str(self.folder),
                "results": [self._line(place) for place in places],
                "left_out": dict(self.left_out),
                "entropy": self.entropy,
                "warnings": list(self.warnings),
                "waiting": [name for name in self.names if name not in done],
            }
        )

    def _line(self, place: Place) -> dict[str, Any]:
        result = place.result
        q, run = result.score, result.run
        line: dict[str, Any] = {
            "name": result.name,
            "log_likelihood": None if q is None else q.as_json(),
            "bits_per_dimension": None,
            "difference": None if place.difference is None else place.difference.as_json(),
            "tied": place.tied,
            "seconds": round(result.seconds, 3),
            "parameters": None if run is None else _parameters(run.model),
            "problem": result.problem or None,
            "cut_short": self.cut_short(result),
        }
        if q is not None and q.kind != "none":
            bits = bits_per_dimension(q, self.width)
            line["bits_per_dimension"] = {"value": bits.value, "low": bits.low, "high": bits.high}
        if run is not None:
            line |= {
                "run": str(run.folder),
                "model": run.model.title(),
                "steps": run.steps,
                "planned_steps": run.config["steps"],
                "stopped": run.stopped,
                "warnings": run.warnings,
            }
        return line


def _parameters(model: Model) -> int | None:
    """The number of free parameters; None where a model has posterior draws in their place."""
    if isinstance(model, _CountsParameters):
        return model.freedom()
    return sum(p.numel() for p in model.parameters()) or None


def write_board(folder: Path, board: SavedBoard) -> None:
    """Write ``leaderboard.json`` and ``leaderboard.csv``, each whole or not at all."""
    write_whole(folder / NAME, json.dumps(board, indent=2, default=str) + "\n")
    write_whole(folder / "leaderboard.csv", as_csv(board["results"]))


def as_csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """One line for each candidate; what is unknown is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    scores = (f"log_likelihood_{name}" for name in FLAT)
    ends = (f"difference_{name}" for name in INTERVAL)
    writer.writerow(["name", *scores, "bits_per_dimension", "difference", *ends, *LAST])
    for line in lines:
        q, behind, bits = (line[name] or {} for name in NEEDED)
        cells = [*(q.get(name) for name in FLAT), bits.get("value"), behind.get("value")]
        cells += [behind.get(name) for name in INTERVAL]
        writer.writerow([line["name"], *cells, *(line.get(name) for name in LAST)])
    return out.getvalue()


def read_board(folder: Path) -> SavedBoard | None:
    """The saved leaderboard of a comparison; None where there is none."""
    if not (folder / NAME).exists():
        return None
    board = read_json(inside(folder, NAME), shape_of(SavedBoard))
    lines = board.get("results")
    if not lines or not all(map(_whole, lines)):
        raise RunError(
            f"report: {folder / NAME} must be a leaderboard, as `partita compare` writes it; got a "
            "damaged file."
        )
    return board


def _whole(line: Line) -> bool:
    """Whether a line has a name and its quantities all that is shown of them."""
    return bool(line.get("name")) and all(
        keys <= line[name].keys() for name, keys in NEEDED.items() if line.get(name)
    )
