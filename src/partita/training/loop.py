"""The one training loop, on Lightning Fabric: ``fit`` reads from top to bottom."""

import math
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.arguments import check_flag, check_generator, check_path, check_role
from partita.core.protocols import Capability, EnergyModel, Model, Objective, Update
from partita.errors import Diverged, PartitaWarning, invalid
from partita.runtime import deadline, memory_limit, processes
from partita.runtime.files import Json, JsonObject
from partita.tables import Rows, as_rows
from partita.tables.arrays import TableLike, row_ranges
from partita.tables.rows import Weight
from partita.training import budget, guard
from partita.training.distributed import one_process
from partita.training.history import Display, seconds_of
from partita.training.run import Interrupted, Run, RunFolder, make_config
from partita.training.session import DATA_WARNINGS, DESCENTS, HELD_OUT, Session, start_session
from partita.training.settings import Learner, check_lbfgs, resolve_settings
from partita.training.validation import (
    ValidationSchedule,
    pessimistic,
    quick_score,
    schedule_of,
)

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SAVE_SECONDS = 20.0
RECORDS = 200  # about this many lines of metrics in a fit


@memory_limit.named("fit")
def fit(
    model: Model,
    data: TableLike | Rows,
    objective: Learner | None = None,
    *,
    validation: TableLike | Rows | None = None,
    sample_weight: Weight | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    about: JsonObject | None = None,
    progress: bool = False,
    fabric: "Fabric | None" = None,
    log_jacobian: float = 0.0,
    since: float | None = None,
    generator: torch.Generator,
    **options: Json,
) -> Run:
    """Fit a model to data and leave in it the weights to use: the best validated, else the averaged
    ones.

    Ctrl-C and SIGTERM end it between two steps; it is then saved, where it has a folder, and
    :class:`partita.training.Interrupted`, a ``KeyboardInterrupt``, is raised.

    Arguments:
        model: Changed in place.
        data: Rows in the model's support: array, tensor, frame, or :class:`partita.tables.Rows`.
        objective: What is minimized; chosen by the capability table if not given.
        validation: Held-out rows; the fit keeps the weights that score best on them.
        sample_weight: One weight per row.
        out: Folder of the run; nothing is written without it.
        resume: Continue the run in ``out``, bit for bit.
        about: More to write into the run's config (data name, command).
        progress: Show a bar.
        fabric: A ``lightning_fabric.Fabric``, for other devices or many processes.
        log_jacobian: Added to validation scores, where rows were rescaled, so that they are in the
            data's own units.
        since: When the seconds of records begin (:func:`partita.runtime.deadline.now`): work before
            the fit may belong to it.
        generator: Source of all randomness.
        options: Any field of :class:`partita.training.Settings`: epochs, steps or minutes,
            batch_size, optimizer, ...
    """
    learner = _learner(objective, model)
    check_generator("fit", generator)
    resume, progress = check_flag("fit", "resume", resume), check_flag("fit", "progress", progress)
    path = None if out is None else check_path("fit", "out", out)
    if resume and path is None:
        raise invalid("fit", "out", "be the folder of the run to resume", None)
    missing = Capability.MISSING in model.capabilities
    rows = checked_rows(model, as_rows(data, sample_weight, "fit", missing=missing))
    settings = resolve_settings(model, learner, len(rows), options)
    check_lbfgs(settings, learner, model)
    held_out: Rows | None = None
    if validation is not None:
        held_out = as_rows(validation, None, "fit", missing=missing)
        held_out = checked_rows(model, held_out, "validation", 1)
    config = make_config(
        model, learner, settings.as_json(), **(about or {}), rows=[len(rows), rows.width]
    )
    fabric = one_process() if fabric is None else fabric
    with processes.together(fabric):
        folder = RunFolder(path)
        folder.check(config, resume)
        session = start_session(model, rows, learner, settings, fabric=fabric, generator=generator)
        given = options.get("validations") is not None
        config = _fixed(session, folder, config, held_out, resume, given)
        if since is not None and not resume:
            seconds = round(deadline.now() - since, 3)
            folder.history.add({"step": 0, "epoch": 0, "seconds": seconds})
        x = None if held_out is None else held_out.tensor(rng.keyed(session.key, HELD_OUT))
        with _saving_divergence(session, folder, config):
            stopped = _train(session, folder, x, log_jacobian, progress, since)
        run = _finish(session, folder, config, stopped)
    if run.stopped == "interrupted":
        raise Interrupted(run)
    return run


@contextmanager
def _saving_divergence(session: Session, folder: RunFolder, config: JsonObject) -> Iterator[None]:
    """Inside it, a fit that diverges is saved as such."""
    try:
        yield
    except Diverged as error:
        folder.history.add(guard.divergence_record(error, session.step))
        session.leave_finite()
        _finish(session, folder, config, "diverged")
        raise


def _learner(objective: Learner | None, model: Model) -> Learner:
    """What is minimized, by default as the capability table says."""
    if objective is None:
        return capability.default("objective", model)
    if not isinstance(objective, Objective | Update):
        check_role("fit", "objective", objective, (), "PCD()")
    return objective


def _fixed(
    session: Session,
    folder: RunFolder,
    config: JsonObject,
    held_out: Rows | None,
    resume: bool,
    given: bool,
) -> JsonObject:
    """The config of the run that the folder now holds: of the fit that is resumed, or of a new one,
    whose length is fixed here.
    """
    if resume:
        config = folder.resume(session, config)
    else:
        budget.fix_length(session, held_out, given=given)
    config |= {"steps": session.total, "key": session.key, "fit": session.settings.as_json()}
    folder.begin(session, config, resume)
    if not session.settings.l1 and not session.settings.l2:
        own = rng.keyed(session.key, DATA_WARNINGS)
        session.add_warnings(session.bare.data_warnings(session.data, generator=own))
    return config


def _train(
    session: Session,
    folder: RunFolder,
    held_out: Tensor | None,
    log_jacobian: float,
    progress: bool,
    since: float | None,
) -> str:
    """Step until the plan is done, the fit converges, stops early, runs out of time or is
    interrupted; returns which.
    """
    history = folder.history
    every, schedule = _record_interval(session), schedule_of(session)
    saved, begun = time.monotonic(), deadline.now()
    # the clock of a resumed fit goes on
    started = begun - seconds_of(history.records) if since is None else since
    session.watch.begin(session)
    with (
        interruptible() as signals,
        Display(session.total, session.step, progress and folder.team.is_zero) as display,
    ):
        session.reduction.flags = lambda: [
            bool(signals),
            time.monotonic() - saved > SAVE_SECONDS,
            budget.out_of_time(session, deadline.now() - begun),
        ]
        while session.step < session.total:
            if session.settled or _out_of_patience(session):
                break
            try:
                with session.trying():
                    record = session.advance()
                    step, session.settled = session.step, _settled(session)
                    done = bool(session.settled)
                    score, events = None, []
                    if held_out is not None and (done or schedule.scores(step)):
                        score = _validate(session, held_out, schedule, log_jacobian)
                    if checked := done or schedule.checks_health(step):
                        events = session.watch.check(session)
            except (Diverged, guard.Unwell) as error:
                _go_back(session, folder, error)
                continue
            place = {"step": step, "epoch": session.epoch}
            for event in events:
                history.add(event)
            if step % every == 0 or step == session.total:
                seconds = round(deadline.now() - started, 3)
                history.add({**place, "seconds": seconds, **record, **session.tracked()})
            if score is not None:
                history.add({**place, "validation": score, "best": session.best.score})
                display.show(score, distance=Capability.GENERATES in session.bare.capabilities)
            if checked:
                session.watch.keep(session)
            display.advance(step, record)
            stop, unsaved, late = session.reduction.raised()
            if stop or unsaved:
                folder.save(session)
                saved = time.monotonic()
            if stop:
                return "interrupted"
            if session.settled:
                break
            if late and step < session.total:
                history.add(budget.timeout_record(session))
                return budget.OUT_OF_TIME
    return session.settled or ("early stop" if _out_of_patience(session) else "finished")


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """A list that receives the signal of Ctrl-C or SIGTERM inside the block, so that a fit ends
    between two steps and is saved; a second signal ends it at once.
    """
    received: list[int] = []

    def notice(number: int, _: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, notice)
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _go_back(session: Session, folder: RunFolder, error: Diverged | guard.Unwell) -> None:
    """Return to the last healthy state. The checkpoint comes first: whenever a kill comes, the
    records follow it, here or when the fit is resumed.
    """
    event = session.watch.go_back(session, error)
    folder.save(session)
    folder.history.rewind(session.step)
    folder.history.add(event)


def _out_of_patience(session: Session) -> bool:
    return 0 < session.settings.patience <= session.best.misses


def _settled(session: Session) -> str:
    """Why a deterministic fit has nothing left to do; empty while it has.

    A minimum is where no gradient is above the tolerance, or where the loss, whose rounding is eps
    |loss|, no longer falls and the gradient is what that rounding leaves of it, sqrt(eps) |loss|
    (Gill, Murray and Wright 1981, section 8.2.3). A fit that does not fall any more under a larger
    gradient has stalled.
    """
    settings = session.settings
    if session.optimizer is None:
        falls = _converges(session) and session.step > 1
        return "converged" if falls and abs(session.progress) <= settings.tolerance else ""
    exact = settings.exactly_minimizes(session.objective, session.bare)
    if settings.optimizer not in DESCENTS or not exact:
        return ""
    if session.gradient <= settings.tolerance:
        return "converged"
    size, precision = max(1.0, abs(session.loss)), torch.finfo(session.bare.like.dtype).eps
    if session.progress > precision * size:
        return ""
    return "converged" if session.gradient <= math.sqrt(precision) * size else "stalled"


def _validate(
    session: Session, held_out: Tensor, schedule: ValidationSchedule, log_jacobian: float
) -> float:
    """Score the averaged weights on validation rows and remember them if they are the best."""
    model, best = session.bare, session.best
    own = {name: p.detach().clone() for name, p in model.named_parameters()}
    averaged = session.average.weights(model)
    _assign(model, averaged)
    q = quick_score(model, held_out, session.key, session.step)
    q = q if q.kind == "none" else q + log_jacobian
    _assign(model, own)
    score = pessimistic(q)
    if score > best.score:
        best.score, best.step, best.misses, best.weights = score, session.step, 0, averaged
    else:
        best.misses = schedule.missed(session.step, best.step)
    return q.value


def _finish(session: Session, folder: RunFolder, config: JsonObject, stopped: str) -> Run:
    """Leave the weights to use in the model, and save everything."""
    model = session.bare
    session.add_warnings([*model.fit_warnings(), *session.watch.last_warnings()])
    last = {name: value.clone() for name, value in model.state_dict().items()}
    average = {**last, **session.average.weights(model)}
    use = {**last, **session.best.weights} if session.best.weights else average
    saved = {
        "step": session.step,
        "stopped": stopped,
        "warnings": session.warnings,
        "weights": {"use": use, "last": last, "average": average},
        "trajectory": [kept.weights for kept in session.trajectory],
    }
    folder.finish(session, saved)
    model.load_state_dict(use)
    if isinstance(model, EnergyModel):
        model.trajectory = tuple(kept.weights for kept in session.trajectory)
    for text in session.warnings:
        warnings.warn(f"fit: {text}", PartitaWarning, stacklevel=3)
    return Run(
        model,
        folder.history.records,
        config,
        session.step,
        stopped,
        [*folder.warnings, *session.warnings],
        folder.folder,
    )


@torch.no_grad()
def _assign(model: torch.nn.Module, values: dict[str, Tensor]) -> None:
    for name, p in model.named_parameters():
        p.copy_(values[name])


def _converges(session: Session) -> bool:
    """Whether closed-form updates lower the recorded loss to a limit."""
    return isinstance(session.objective, Update) and session.objective.converges


def _record_interval(session: Session) -> int:
    """Steps between records; a fit that may converge early records every one."""
    return 1 if _converges(session) else max(1, session.total // RECORDS)


def checked_rows(model: Model, rows: Rows, parameter: str = "x", least: int = 2) -> Rows:
    """The rows, after their width, their number and every value were checked, in chunks."""
    width = model.support.width
    if rows.width != width:
        allowed = f"have shape (*, {width}) to match {model.title()}"
        raise invalid("fit", parameter, allowed, (len(rows), rows.width))
    if len(rows) < least:
        raise invalid("fit", parameter, f"have at least {least} rows", len(rows))
    generator = torch.Generator()
    for part in row_ranges(len(rows), width):
        x = rows.batch(torch.arange(part.start, part.stop), generator=generator).x
        model.support.check(x, "fit", parameter, missing=Capability.MISSING in model.capabilities)
        if (empty := x.isnan().all(1)).any():
            got = f"none in row {part.start + int(empty.nonzero()[0])}"
            allowed = "have an observed value in every row"
            raise invalid("fit", parameter, allowed, got, "Leave such rows out.")
    return rows
