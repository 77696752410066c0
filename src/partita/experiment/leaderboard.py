r"""Places on a leaderboard: scores of the same rows compared row by row, and ties called ties; and
the leaderboard on disk, from which the terminal and the page are made alike.

.. math:: \hat\delta = \frac1N \sum_i \bigl(\log p_a(x_i) - \log p_b(x_i)\bigr), \qquad
          [\, l_a - u_b - t s, \; u_a - l_b + t s \,], \quad s^2 = \frac{1}{N(N-1)} \sum_i (d_i -
          \hat\delta)^2
          (theory/scoring.md, eq. 5.13)

Rows that are hard for one model are hard for the other: their difference varies less than either
score. The intervals of both computations, log Z above all, are the same for all rows and are added
on top. The best of many is best by luck as well, for the rows that choose it are those it is scored
on: t then holds for all that it was chosen from, at 1 - alpha / 2m for m of them.

Letters: N rows, d_i the difference at row i, [l, u] the interval of a computation, t the quantile
of Student's distribution, m choices.
"""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NotRequired, Protocol, TypedDict, runtime_checkable

import torch

from partita.core.protocols import Model
from partita.core.quantity import Quantity, bits_per_dimension
from partita.errors import RunError
from partita.experiment.compare import Result
from partita.runtime.files import finite_json, inside, read_json, shape_of, write_whole
from partita.training.budget import OUT_OF_TIME

LEVEL = 0.95  # over the rows

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


def paired_difference(a: Quantity, b: Quantity, choices: int = 1) -> Quantity:
    """``a - b`` of mean log-likelihoods of the same rows: its interval holds the spread over rows
    and the computing error of both.

    It covers with at least the probability that remains when all errors are added up (Bonferroni),
    which is its ``level``; also where ``b`` is that of so many ``choices`` which scores best on
    these rows.

    >>> tables = torch.tensor([[-1.0, -5.0, -9.0], [-2.0, -6.1, -9.9]])
    >>> d = paired_difference(
    ...     *(Quantity(float(rows.mean()), n=3, details={"rows": rows}) for rows in tables)
    ... )
    >>> round(d.value, 3), d.low > 0, d.level
    (1.0, True, 0.95)
    """
    d = (
        torch.as_tensor(a.details["rows"]).double().cpu()
        - torch.as_tensor(b.details["rows"]).double().cpu()
    )
    se = float(d.std()) / math.sqrt(len(d)) if len(d) > 1 else math.inf
    computed = a - b
    half = _quantile(len(d), 1 - (1 - LEVEL) / choices) * se if len(d) > 1 else math.inf
    kind = "estimate" if computed.kind == "exact" else computed.kind
    covers = max(0.0, round(computed.level + LEVEL - 1.0, 12))
    return Quantity(
        computed.value,
        computed.low - half,
        computed.high + half,
        covers,
        kind,
        a.unit,
        "differences of paired rows",
        len(d),
        se,
        computed.verdict,
        computed.direction,
    )


def _quantile(n: int, level: float) -> float:
    from scipy.stats import t

    return float(t.ppf(0.5 + level / 2, n - 1))


@dataclass(frozen=True)
class Place:
    """A result where it stands.

    Arguments:
        result: What was fitted and scored.
        difference: To the best; None for the best itself and where there is no likelihood.
        tied: Whether the interval of the difference covers zero; None where there is nothing to
            tell.
    """

    result: Result
    difference: Quantity | None = None
    tied: bool | None = None

    @property
    def group(self) -> int:
        """0 for numbers to trust, 1 for those not to be published, 2 for no likelihood, 3 for
        failures.
        """
        q = self.result.score
        return 3 if q is None else 2 if q.kind == "none" else 0 if q.trusted else 1


def ranking(results: Sequence[Result]) -> list[Place]:
    """Best first; numbers that are not to be published come after those that are, then what has no
    likelihood, then what failed.

    The best is the first whose number can be trusted. Two numbers are a tie where the interval of
    their difference covers zero.
    """
    order = sorted(
        map(Place, results),
        key=lambda place: (
            place.group,
            0.0 if place.result.score is None else -place.result.score.value,
        ),
    )
    if not order or order[0].group > 1:
        return order
    best, rivals = order[0].result.score, sum(place.group == order[0].group for place in order)
    assert best is not None
    return [
        order[0],
        *(_against(place, best, rivals - (place.group == order[0].group)) for place in order[1:]),
    ]


def _against(place: Place, best: Quantity, choices: int) -> Place:
    """The place with its difference to the best, which is that of so many others."""
    q = place.result.score
    if place.group > 1 or q is None:
        return place
    difference = paired_difference(q, best, choices=choices)
    return replace(
        place,
        difference=difference,
        tied=difference.low <= 0 <= difference.high if place.group == 0 else None,
    )


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
