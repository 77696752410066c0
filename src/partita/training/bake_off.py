"""A bake-off: contenders fitted to the same rows from the same seed and scored by the same likelihood, one entry for each.

A contender that fails is an entry that says why; the others finish.
"""

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from partita.core import capability, rng
from partita.core.checks import check_choice
from partita.core.errors import PartitaError, invalid
from partita.core.quantity import Quantity
from partita.data import Dataset, Rows
from partita.training.encoded import evaluate_encoded
from partita.training.encoding import Encoding
from partita.training.families import Family
from partita.training.families.by_gradient import NAMED, OBJECTIVES
from partita.training.loop import PartitaWarning, fit, start_session
from partita.training.recipes import resolve_settings
from partita.training.run import Run
from partita.training.session import Session
from partita.training.splits import encoded_parts

EXACT_BITS = 16  # a bake-off of all objectives sums at most 2^16 states at every step; more where exact is asked for by name
SCORING, TIMING = 1, 3  # what a stream of random numbers is for; scores draw as those of `partita fit` do
TIMING_SECONDS = 0.3


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
        seconds: Of the fit alone.
        run: What the fit left; None where it failed.
        problem: Why there is no score, in one sentence.
    """

    name: str
    score: Quantity | None
    seconds: float
    run: Run | None = None
    problem: str = ""

    @property
    def curve(self) -> list[tuple[float, float]]:
        """(seconds, log-likelihood of the validation rows) along the fit."""
        records, clock, points = [] if self.run is None else self.run.history, 0.0, []
        for record in records:
            clock = record.get("seconds", clock)
            if "validation" in record:
                points.append((clock, record["validation"]))
        return points


@dataclass(frozen=True)
class BakeOff:
    """What all contenders share.

    Arguments:
        dataset: Rows to learn from, to validate on and to score on.
        options: Of every fit: minutes, epochs, learning_rate, ...; what is not said is left to each contender's recipe.
        limit: Minutes that each contender may take at most, where options do not say how long; a recipe that would take longer is cut
            to as many steps as fit, so that no contender is given more time than another.
        evaluator: Of log Z or of the likelihood; chosen by the capability table if not given.
        seed: Of every contender alike: same first parameters, same order of rows, same draws.
        out: Folder in which every contender leaves a run; nothing is written without it.
        about: More to write into every run's config.
    """

    dataset: Dataset
    options: dict[str, Any] = field(default_factory=dict)
    limit: float | None = None
    evaluator: Any = None
    seed: int = 0
    out: Path | None = None
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def scored(self) -> Rows:
        """The rows that everyone is scored on: held out where there are such."""
        return self.dataset.train if self.dataset.test is None else self.dataset.test

    def run(self, contenders: Sequence[Contender], progress: Callable[[Contender], bool] = lambda _: False) -> Iterator[Entry]:
        """One entry after the other; ``progress`` is asked, and told, who comes next."""
        for contender in contenders:
            entry = self.enter(contender, progress(contender))
            yield entry
            if entry.run is not None and entry.run.stopped == "interrupted":
                return

    def enter(self, contender: Contender, progress: bool = False) -> Entry:
        """Fit and score one contender; what partita refuses or gives up on becomes the entry's problem."""
        started, seconds, run = time.monotonic(), 0.0, None
        try:
            encoding = Encoding.fit(self.dataset.train, contender.family.encoding_kind(self.dataset.train, contender.settings))
            run = self._fit(contender, encoding, progress)
            seconds = time.monotonic() - started
            if run.stopped == "interrupted":
                return Entry(contender.name, None, seconds, run, "the fit was interrupted")
            score = evaluate_encoded(run.model, encoding, self._table(), evaluator=self._evaluator(run.model), owner="compare",
                                     generator=rng.keyed(self.seed, SCORING))  # fmt: skip
        except PartitaError as error:
            return Entry(contender.name, None, seconds or time.monotonic() - started, run, str(error))
        return Entry(contender.name, score, seconds, run)

    def _fit(self, contender: Contender, encoding: Encoding, progress: bool) -> Run:
        train, validation = encoded_parts(self.dataset, encoding, self.seed)
        generator = torch.Generator().manual_seed(self.seed)
        model, objective = contender.family.build(train, contender.settings, generator=generator)
        options = self._taken_up(contender) or self._budget(model, objective, train)
        family = {"name": contender.family.name, "settings": contender.family.resolve(contender.settings)}
        about = {**self.about, "family": family, "encoding": encoding.as_json(), "seed": self.seed}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartitaWarning)  # the run keeps them as its cautions
            return fit(model, train, objective, validation=validation, out=None if self.out is None else self.out / contender.name,
                       about=about, progress=progress, log_jacobian=encoding.mean_log_jacobian(validation), generator=generator,
                       **options)  # fmt: skip

    def _taken_up(self, contender: Contender) -> dict[str, Any]:
        """The options with which a fit that was begun goes on; empty for a new one."""
        return {}

    def _evaluator(self, model: Any) -> Any:
        """How a fitted model is scored; None leaves it to the capability table."""
        return self.evaluator

    def _budget(self, model: Any, objective: Any, rows: Rows) -> dict[str, Any]:
        """The options of one fit: as they are, or with the shared limit where its recipe would take longer."""
        settings = resolve_settings(model, objective, len(rows), self.options)
        by_itself = hasattr(objective, "update") or settings.optimizer == "lbfgs"  # these stop when they are done
        if self.limit is None or by_itself or any(self.options.get(name) is not None for name in ("epochs", "steps", "minutes")):
            return self.options
        session = start_session(copy.deepcopy(model), rows, objective, settings, generator=rng.keyed(self.seed, TIMING))
        fits = seconds_per_step(session) * session.total <= 60 * self.limit
        return self.options if fits else {**self.options, "minutes": self.limit}

    def _table(self) -> np.ndarray:
        """The rows to score on, in float64; grey levels drawn in the same way for everyone."""
        return self.scored.tensor(rng.keyed(self.seed, SCORING, 1)).numpy().astype(np.float64)


def seconds_per_step(session: Session) -> float:
    """Of a fit that is thrown away: the median of a few."""
    times, started = [], time.monotonic()
    while len(times) < 3 or time.monotonic() - started < TIMING_SECONDS:
        begun = time.monotonic()
        session.advance()
        times.append(time.monotonic() - begun)
    return sorted(times)[len(times) // 2]


def contenders_by_objective(
    family: Family, settings: dict[str, Any], names: Sequence[str], rows: Rows, owner: str = "compare"
) -> tuple[list[Contender], dict[str, str]]:
    """One contender for each objective, and the objectives left out with the reason.

    ``names`` ``["all"]`` takes every objective that the support of the family's model for these rows allows.
    """
    if "objective" not in family.settings:
        raise invalid(owner, "--model", "be a family with a choice of objectives", repr(family.name), "`partita models` lists them.")
    for name in names:
        check_choice(owner, "--objectives", name, ("all", *OBJECTIVES))
    encoding = Encoding.fit(rows, family.encoding_kind(rows, settings))
    start = {**settings, "objective": "pcd"}
    model, _ = family.build(encoding.rows(rows), start, generator=torch.Generator().manual_seed(0))
    against = {name: reason_left_out(name, model) for name in OBJECTIVES} if "all" in names else {}
    chosen = [name for name, reason in against.items() if reason is None] if "all" in names else list(dict.fromkeys(names))
    left_out = {name: reason for name, reason in against.items() if reason is not None}
    return [Contender(name, family, {**settings, "objective": name}) for name in chosen], left_out


def reason_left_out(name: str, model: Any) -> str | None:
    """Why an objective has no place in a bake-off of all of them on this model; None if it has one."""
    reason = capability.reason_against(NAMED[name].part, model)
    bits = capability.smallest_bits(model)
    if reason is None and name == "exact" and EXACT_BITS < bits < float("inf"):
        return f"2^{bits:g} states are many to sum at every step; ask for it by name"
    return reason
