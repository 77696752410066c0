"""What takes part in a comparison and what each comes to; a result is kept beside its run, bit
for bit.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from partita.core.quantity import Quantity
from partita.errors import RunError
from partita.families import Family
from partita.runtime.untrusted import JsonObject, check_like, read_record
from partita.training import checkpoint
from partita.training.run import Run, load

NAME = "score.safetensors"  # of a finished candidate, in the folder of its run
PLAIN = (bool, int, float, str)
SHOWN = {"p_value": float, "coverage": float, "per_step": float, "steps": float}  # of the details


@dataclass(frozen=True)
class Candidate:
    """What is fitted: a family with its settings, under a name for the leaderboard."""

    name: str
    family: Family
    settings: JsonObject = field(default_factory=dict)


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


@dataclass(frozen=True)
class SavedResult:
    """A result as it is saved: the score as JSON, and the scores of its rows."""

    name: str
    seconds: float
    problem: str
    score: JsonObject | None = None
    rows: Tensor | None = None


def write_result(folder: Path, result: Result) -> None:
    """Score, rows and seconds of a candidate, bit for bit."""
    kept = SavedResult(result.name, result.seconds, result.problem)
    if result.score is not None:
        rows = result.score.details.get("rows")
        kept = replace(
            kept, score=result.score.as_json(), rows=None if rows is None else rows.cpu()
        )
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.save_tree(folder / NAME, vars(kept))


def read_result(folder: Path, name: str, n: int) -> Result:
    """What :func:`write_result` wrote of a candidate on n rows, with the run where there is one."""
    kept = read_record(SavedResult, checkpoint.load_tree(folder / NAME), NAME)
    if kept.score is None:
        score, run, paired = None, None, True
    else:
        score, run = _quantity(kept.score, kept.rows), load(folder)
        rows = kept.rows
        whole = rows is not None and rows.shape == (n,) and rows.is_floating_point()
        paired = score.kind == "none" or whole
    if kept.name != name or not paired:
        raise RunError(
            f"load: {folder / NAME} must hold the score of {name} on {n} rows; got another."
        )
    return Result(name, score, kept.seconds, run, kept.problem)


def _quantity(kept: JsonObject, rows: Tensor | None = None) -> Quantity:
    """The quantity that ``as_json`` wrote, with the scores of its rows."""
    q = read_record(Quantity, kept, f"{NAME}: score")
    check_like(q.details, SHOWN, f"{NAME}: score: details")
    details: JsonObject = {
        name: value
        for name, value in q.details.items()
        if isinstance(value, PLAIN) and name != "kl_per_dimension"
    }
    if kept.get("log_z") is not None:
        details["log_z"] = _quantity(kept["log_z"])
    return replace(q, details=details if rows is None else {**details, "rows": rows})
