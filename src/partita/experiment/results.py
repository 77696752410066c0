"""Who takes part in a comparison and what each comes to; a result is kept beside its run, bit
for bit.
"""

from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

from torch import Tensor

from partita.core.quantity import Quantity
from partita.errors import RunError
from partita.families import Family
from partita.runtime.untrusted import check_like
from partita.training import checkpoint
from partita.training.run import Run, load

NAME = "score.safetensors"  # of a finished candidate, in the folder of its run
# of what is read
SHAPE = {
    "name": str,
    "seconds": float,
    "problem": str,
    "score": (dict, NoneType),
    "rows": (Tensor, NoneType),
}
FIELDS = {
    "value": float,
    "low": float,
    "high": float,
    "level": float,
    "kind": str,
    "unit": str,
    "method": str,
    "n": int,
    "se_data": float,
    "verdict": str,
    "direction": str,
}
PLAIN = (bool, int, float, str)
SCORE = {**FIELDS, "details": dict, "log_z": (dict, NoneType)}
SHOWN = {"p_value": float, "coverage": float, "per_step": float, "steps": float}  # of the details


@dataclass(frozen=True)
class Candidate:
    """What is fitted: a family with its settings, under a name for the leaderboard."""

    name: str
    family: Family
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """A line of the leaderboard.

    Arguments:
        name: The candidate's.
        score: Mean log-likelihood per held-out row in the units of the data; None where there is
            none.
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


def write_result(folder: Path, result: Result) -> None:
    """Score, rows and seconds of a candidate, bit for bit."""
    q = result.score
    rows = None if q is None or "rows" not in q.details else q.details["rows"].cpu()
    kept = {
        "name": result.name,
        "seconds": result.seconds,
        "problem": result.problem,
        "score": None if q is None else _plain(q),
        "rows": rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.save_tree(folder / NAME, kept)


def read_result(folder: Path, name: str, n: int) -> Result:
    """What :func:`write_result` wrote of a candidate on n rows, with the run where there is one."""
    kept = checkpoint.load_tree(folder / NAME)
    check_like(kept, SHAPE, NAME, whole=True)
    rows = kept["rows"]
    score = (
        None
        if kept["score"] is None
        else _quantity(kept["score"], {} if rows is None else {"rows": rows})
    )
    paired = (
        score is None
        or score.kind == "none"
        or (rows is not None and rows.shape == (n,) and rows.is_floating_point())
    )
    if kept["name"] != name or not paired:
        raise RunError(
            f"load: {folder / NAME} must hold the score of {name} on {n} rows; got another."
        )
    return Result(
        name, score, kept["seconds"], load(folder) if score is not None else None, kept["problem"]
    )


def _plain(q: Quantity) -> dict[str, Any]:
    details = {name: value for name, value in q.details.items() if isinstance(value, PLAIN)}
    log_z = q.details.get("log_z")
    return {
        **{name: getattr(q, name) for name in FIELDS},
        "details": details,
        "log_z": None if log_z is None else _plain(log_z),
    }


def _quantity(kept: dict[str, Any], more: dict[str, Any]) -> Quantity:
    check_like(kept, SCORE, f"{NAME}: score", whole=True)
    check_like(kept["details"], SHOWN, f"{NAME}: score: details")
    log_z = {} if kept["log_z"] is None else {"log_z": _quantity(kept["log_z"], {})}
    plain = {
        name: value
        for name, value in kept["details"].items()
        if isinstance(value, PLAIN) and name != "kl_per_dimension"
    }
    return Quantity(**{name: kept[name] for name in FIELDS}, details={**plain, **log_z, **more})
