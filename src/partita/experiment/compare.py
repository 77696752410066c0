"""A comparison: candidates fitted to the same rows from the same seed within one time, and scored
by the same likelihood on the same rows.

Every candidate gets an even part of the time that is left, for all that it does: a search while it
is built, its fit, its score. A recipe that needs less is carried out as it is, and what it does not
use is left to those after it; one that needs more is cut to as many steps as fit, and stops sooner
where the machine is slower then than when they were planned. A candidate that fails is a result
that says why, and the others finish. What is done is kept beside its run, bit for bit, so that an
interrupted comparison goes on.
"""

import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.protocols import EnergyModel, Model, PartitionEvaluator
from partita.core.quantity import Quantity
from partita.datasets import Dataset
from partita.errors import PartitaError, PartitaWarning, RunError
from partita.evaluators import Sandwich
from partita.experiment.experiment import Experiment, fingerprint
from partita.families import Family
from partita.runtime import deadline, memory_limit
from partita.runtime.files import (
    JsonObject,
    check_like,
    inside,
    read_json,
    read_record,
    write_whole,
)
from partita.tables import Rows
from partita.training import checkpoint, history
from partita.training.budget import TIMING, annealing_cost
from partita.training.run import Interrupted, Run, load

NAME = "score.safetensors"  # of a finished candidate, in the folder of its run
PLAIN = (bool, int, float, str)
SHOWN = {"p_value": float, "coverage": float, "per_step": float, "steps": float}  # of the details

ROWS = "rows.json"  # which rows a comparison is about, in its folder
FIT_SHARE = 0.7  # of a candidate's time, to build and fit it; the rest is for its score
LATE = 1.3  # of the time to build and fit a candidate, after which it has to stop
LEAST_MINUTES = 0.02  # of a fit, where the time is already up
# temperatures, about, that an annealing takes by default, its pilot run included
USUAL = 2000
IMPORTED = (
    "torch._dynamo",
    "lightning_fabric",
    "sklearn.cluster",
    "arviz_stats.base.array",
    "partita.core.xoshiro",
)
LEAST = 30  # temperatures of an annealing that is cut to its time


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


@dataclass(frozen=True)
class Comparison:
    """What all candidates share.

    Arguments:
        dataset: Rows to learn from, to validate on and to score on.
        options: Of every fit: epochs, learning_rate, ...; what is not given is left to each
            candidate's defaults.
        limit: Minutes to build and fit one candidate, where options do not say how long.
        evaluator: Of log Z; chosen by the capability table if not given.
        seed: Of every candidate alike: same first parameters, same order of rows, same draws.
        out: Folder in which every candidate leaves a run; nothing is written without it.
        about: More to write into every run's config.
        total: Minutes for all together, from which :meth:`run` makes the limit of each; None leaves
            ``limit`` as it is.
    """

    dataset: Dataset
    options: JsonObject = field(default_factory=dict)
    limit: float | None = None
    evaluator: PartitionEvaluator | None = None
    seed: int = 0
    out: Path | None = None
    about: JsonObject = field(default_factory=dict)
    total: float | None = None

    @property
    def scored(self) -> Rows:
        """The rows that all candidates are scored on: held out where there are such."""
        return self.dataset.train if self.dataset.test is None else self.dataset.test

    @property
    def _seconds(self) -> float:
        """To build and fit one candidate."""
        return math.inf if self.limit is None else 60 * self.limit

    def run(
        self,
        candidates: Sequence[Candidate],
        progress: Callable[[Candidate], bool] = lambda _: False,
    ) -> Iterator[Result]:
        """One result after the other: those that are done as they were saved, the others with an
        even part of the time that is left.

        ``progress`` is called with the next candidate, and says whether to show a bar.
        """
        self._check_rows()
        waiting = [candidate for candidate in candidates if self._saved(candidate) is None]
        if self.total is not None:
            get_ready()
        share = None if self.total is None else self.total / max(1, len(candidates))
        end = None if share is None else deadline.now() + 60 * share * len(waiting)
        for candidate in candidates:
            result = self._saved(candidate)
            if result is None:
                timed = self if end is None else replace(self, limit=_share(end, len(waiting)))
                result = timed.enter(candidate, progress(candidate))
                waiting.remove(candidate)
                self._keep(result)
            yield result
            if result.interrupted:
                return

    def enter(self, candidate: Candidate, progress: bool = False) -> Result:
        """Fit and score one candidate; any error but a full disk becomes the result's problem."""
        started, seconds, run = deadline.now(), None, None
        try:
            experiment = self._experiment(candidate)
            started -= self._spent(candidate)
            with deadline.ending_within(LATE * self._seconds), memory_limit.named(candidate.name):
                run = self._fitted(experiment, progress, started)
            seconds = deadline.now() - started
            score, problem = experiment.score(run, self._evaluator(run.model)), ""
        except Interrupted as stop:
            score, run = None, stop.run
            made = f"{run.steps:,} of {run.config['steps']:,}"
            problem = f"interrupted after {made} steps, which are saved"
        except PartitaError as error:
            score, problem = None, str(error)
        except OSError:
            raise  # a disk that is full is so for all
        except Exception as error:  # the other candidates finish all the same
            score, problem = None, f"{type(error).__name__}: {error}".strip().split("\n")[0]
        seconds = deadline.now() - started if seconds is None else seconds
        return Result(candidate.name, score, seconds, run, problem)

    def _experiment(self, candidate: Candidate) -> Experiment:
        return Experiment(
            self.dataset,
            candidate.family,
            candidate.settings,
            self.options,
            torch.Generator().manual_seed(self.seed),
            self.place(candidate.name),
            self.about,
            owner="compare",
        )

    def _fitted(self, experiment: Experiment, progress: bool, started: float) -> Run:
        """A fit, unless it is done and only waits for its score; some time is kept for a slower
        machine.
        """
        run = experiment.finished()
        if run is not None:
            return run
        spare = 0.0 if self.limit is None else (LATE - 1) * self._seconds
        plan = (
            experiment.plan_to_resume()
            if experiment.begun()
            else experiment.plan_within(deadline.left() - spare)
        )
        return experiment.run(plan, progress=progress, since=started)

    def place(self, name: str) -> Path | None:
        """The folder of a candidate's run."""
        return None if self.out is None else self.out / name

    def _spent(self, candidate: Candidate) -> float:
        """Seconds of a fit that was begun before, and of the search before it, by its last
        record.
        """
        folder = self.place(candidate.name)
        if folder is None:
            return 0.0
        return history.seconds_of(history.read_records(inside(folder, "metrics.jsonl")))

    def _evaluator(self, model: Model) -> PartitionEvaluator | None:
        """The evaluator of the capability table; an annealing that would take longer than there is
        time for is cut to it.
        """
        if not isinstance(model, EnergyModel):
            return None  # the evaluator given is of log Z
        if (
            self.evaluator is not None
            or self.limit is None
            or not isinstance(capability.default("partition", model), Sandwich)
        ):
            return self.evaluator

        def annealed(temperatures: int) -> Sandwich:
            return Sandwich(temperatures=temperatures, adaptive=False)

        seconds = self._seconds * (1 / FIT_SHARE - 1)
        with deadline.ending_within(seconds):
            cost = annealing_cost(
                lambda temperatures: annealed(temperatures)(
                    model, generator=rng.keyed(self.seed, TIMING, 1)
                )
            )
            most = int((deadline.left() - cost.start) / cost.each)
        return None if most >= USUAL else annealed(max(LEAST, most))

    def _check_rows(self) -> None:
        """The rows of a comparison that goes on are those it was begun with: scores of others could
        not be paired.
        """
        if self.out is None:
            return
        path, here = inside(self.out, ROWS), {"rows": fingerprint(self.dataset)}
        if not path.exists():
            write_whole(path, json.dumps(here) + "\n")
        elif read_json(path) != here:
            raise RunError(
                f"compare: DATA must hold the rows that the comparison in {self.out} was begun "
                "with; they have changed. "
                "Choose another --out."
            )

    def _saved(self, candidate: Candidate) -> Result | None:
        folder = self.place(candidate.name)
        if folder is None or not (folder / NAME).exists():
            return None
        try:
            return read_result(folder, candidate.name, len(self.scored))
        except PartitaError as error:
            warnings.warn(f"{error} It is scored again.", PartitaWarning, stacklevel=2)
            return None

    def _keep(self, result: Result) -> None:
        """Save what a candidate came to; an interrupted one is not done."""
        folder = self.place(result.name)
        if folder is not None and not result.interrupted:
            write_result(folder, result)


def get_ready() -> None:
    """Import what fits import when they first run: a second or more, which is not the first
    candidate's time.
    """
    for name in IMPORTED:
        import_module(name)


def _share(end: float, waiting: int) -> float:
    """Minutes of the next fit: its part of an even part of what is left."""
    return max(LEAST_MINUTES, FIT_SHARE * (end - deadline.now()) / 60 / waiting)
