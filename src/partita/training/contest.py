"""A contest of families: one time for all, shared evenly; what is done is kept, so that an interrupted contest goes on.

Every contender gets an even part of the time that is left. A recipe that needs less is carried out as it is, and what it does not use is
left to those after it; one that needs more is cut to as many steps as fit.
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from partita.core import capability, rng
from partita.core.protocols import EnergyModel
from partita.core.quantity import Quantity
from partita.data import Rows
from partita.evaluators import Sandwich
from partita.training import checkpoint
from partita.training.bake_off import TIMING, BakeOff, Contender, Entry, seconds_per_step
from partita.training.budget import LEAST_STEPS
from partita.training.encoding import Encoding
from partita.training.loop import start_session
from partita.training.recipes import resolve_settings
from partita.training.run import Run, load, read_config
from partita.training.session import Session
from partita.training.splits import VALIDATION_SHARE
from partita.training.validation import quick_score

FIT_SHARE = 0.7  # of a contender's time; the rest is for building and scoring it
LEAST_MINUTES = 0.02  # of a fit, where the time is already up
PATIENCE = 5  # validations without a better score before a fit by gradients stops
VALIDATION_TIME = 0.2  # of a fit that is cut to its time, at most; one validation there is in any case
TRIAL = 10  # temperatures of a trial that is timed
USUAL = 1000  # temperatures, about, that an annealing takes where nothing is said
LEAST = 30  # temperatures of an annealing that is cut to its time
LEAST_ROWS = 10  # of a validation that is timed
NAME = "score.safetensors"  # of a finished contender, in the folder of its run
FIELDS = ("value", "low", "high", "level", "kind", "unit", "method", "n", "se_data", "verdict", "direction")


@dataclass(frozen=True)
class Contest(BakeOff):
    """A bake-off of families in a folder.

    Arguments:
        total: Minutes for all together; None takes ``limit`` for each.
    """

    total: float | None = None

    def run(self, contenders: Sequence[Contender], progress: Callable[[Contender], bool] = lambda _: False) -> Iterator[Entry]:
        """One entry after the other: those that are done as they were saved, the others with an even part of the time that is left."""
        waiting = [contender for contender in contenders if self._saved(contender) is None]
        share = None if self.total is None else self.total / max(1, len(contenders))
        deadline = None if share is None else time.monotonic() + 60 * share * len(waiting)
        for contender in contenders:
            entry = self._saved(contender)
            if entry is None:
                timed = self if deadline is None else replace(self, limit=_share(deadline, len(waiting)))
                entry = timed.enter(contender, progress(contender))
                waiting.remove(contender)
                self._keep(entry)
            yield entry
            if entry.run is not None and entry.run.stopped == "interrupted":
                return

    def enter(self, contender: Contender, progress: bool = False) -> Entry:
        """Fit and score one contender; whatever its arithmetic or memory comes to is its own problem, and the others go on."""
        started = time.monotonic()
        try:
            return super().enter(contender, progress)
        except (ArithmeticError, RuntimeError, ValueError, MemoryError) as error:
            text = f"{type(error).__name__}: {error}".strip().split("\n")[0]
            return Entry(contender.name, None, time.monotonic() - started, None, text)

    def place(self, name: str) -> Path | None:
        """The folder of a contender's run."""
        return None if self.out is None else self.out / name

    def _fit(self, contender: Contender, encoding: Encoding, progress: bool) -> Run:
        """A fit, unless it is done and only waits for its score."""
        folder = self.place(contender.name)
        if folder is not None and (folder / "checkpoints" / "model.safetensors").exists():
            run = load(folder)
            if run.stopped != "interrupted":
                return run
        return super()._fit(contender, encoding, progress)

    def _taken_up(self, contender: Contender) -> dict[str, Any]:
        """The plan of a fit that was begun: as many steps as were fixed then."""
        folder = self.place(contender.name)
        if folder is None or not (folder / "checkpoints" / "last.safetensors").exists():
            return {}
        config = read_config(folder)
        return {**config["fit"], "epochs": None, "minutes": None, "steps": config["steps"], "resume": True}

    def _budget(self, model: Any, objective: Any, rows: Rows) -> dict[str, Any]:
        """The options of a new fit: as its recipe says where that takes no longer than there is time for, else cut to it.

        Gradients stop early; closed-form updates know themselves when they are done.
        """
        options = self.options if hasattr(objective, "update") else {"patience": PATIENCE, **self.options}
        if self.limit is None or any(options.get(name) is not None for name in ("epochs", "steps", "minutes")):
            return options
        settings = resolve_settings(model, objective, len(rows), options)
        session = start_session(copy.deepcopy(model), rows, objective, settings, generator=rng.keyed(self.seed, TIMING))
        each, look = seconds_per_step(session), 0.0 if session.optimiser is None else _seconds_to_validate(session, rows)
        if session.total * each + settings.validations * look <= 60 * self.limit:
            return options
        looks = max(1, min(settings.validations, int(VALIDATION_TIME * 60 * self.limit / look))) if look else settings.validations
        return {**options, "steps": max(LEAST_STEPS, int((60 * self.limit - looks * look) / each)), "validations": looks}

    def _evaluator(self, model: Any) -> Any:
        """The evaluator of the capability table; an annealing that would take longer than there is time for is cut to it."""
        if not isinstance(model, EnergyModel):
            return None  # what was asked for is about log Z
        if self.evaluator is not None or self.limit is None or not isinstance(capability.default("partition", model), Sandwich):
            return self.evaluator
        started = time.monotonic()
        Sandwich(temperatures=TRIAL, adaptive=False)(model, generator=rng.keyed(self.seed, TIMING, 1))
        each = (time.monotonic() - started) / TRIAL
        affordable = int(60 * self.limit * (1 / FIT_SHARE - 1) / each)
        return None if affordable >= USUAL else Sandwich(temperatures=max(LEAST, affordable), adaptive=False)

    def _saved(self, contender: Contender) -> Entry | None:
        folder = self.place(contender.name)
        return None if folder is None or not (folder / NAME).exists() else read_entry(folder)

    def _keep(self, entry: Entry) -> None:
        """Save what a contender came to; an interrupted one is not done."""
        folder = self.place(entry.name)
        if folder is not None and (entry.run is None or entry.run.stopped != "interrupted"):
            folder.mkdir(parents=True, exist_ok=True)
            write_entry(folder, entry)


def _share(deadline: float, waiting: int) -> float:
    """Minutes of the next fit: its part of an even part of what is left."""
    return max(LEAST_MINUTES, FIT_SHARE * (deadline - time.monotonic()) / 60 / waiting)


def _seconds_to_validate(session: Session, rows: Rows) -> float:
    """Of one validation, on as many rows as are held out."""
    count = min(len(rows), max(LEAST_ROWS, int(VALIDATION_SHARE * len(rows))))
    x = rows.take(np.arange(count)).tensor(rng.keyed(0))
    started = time.monotonic()
    quick_score(session.bare, x, session.key, 0)
    return time.monotonic() - started


def write_entry(folder: Path, entry: Entry) -> None:
    """Score, rows and seconds of a contender, bit for bit."""
    q = entry.score
    rows = None if q is None or "rows" not in q.details else q.details["rows"].cpu()
    kept = {"name": entry.name, "seconds": entry.seconds, "problem": entry.problem, "score": None if q is None else _plain(q), "rows": rows}
    checkpoint.save(folder / NAME, kept)


def read_entry(folder: Path) -> Entry:
    """What :func:`write_entry` wrote, with the run where there is one."""
    kept = checkpoint.load(folder / NAME)
    checkpoint.expect(kept, folder / NAME, "name", "seconds", "problem", "score", "rows")
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
