"""The one training loop, on Lightning Fabric: ``fit`` reads from top to bottom."""

import math
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.checks import check_flag, check_generator, check_role
from partita.core.protocols import Capability, Model, Objective, Update
from partita.errors import Diverged, PartitaWarning, invalid
from partita.runtime import deadline, memory_limit, processes
from partita.tables import as_rows
from partita.training import budget, guard
from partita.training.history import History, seconds_of
from partita.training.interrupt import Interrupts
from partita.training.progress import Display
from partita.training.recipes import resolve_settings
from partita.training.run import Run, make_config
from partita.training.run_folder import Saves, folder_of
from partita.training.schedules import ValidationSchedule, planned
from partita.training.session import CAUTIONS, DESCENTS, HELD_OUT, Session
from partita.training.start import check_lbfgs, checked_rows, one_process, start_session
from partita.training.validation import pessimistic, quick_score

SAVE_SECONDS = 20.0
RECORDS = 200  # about this many lines of metrics in a fit


@memory_limit.named("fit")
def fit(
    model: Model,
    data: Any,
    objective: Objective | Update | None = None,
    *,
    validation: Any = None,
    sample_weight: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    about: dict[str, Any] | None = None,
    progress: bool = False,
    fabric: Any = None,
    log_jacobian: float = 0.0,
    since: float | None = None,
    generator: torch.Generator,
    **options: Any,
) -> Run:
    """Fit a model to data and leave in it the weights to use: the best validated, else the averaged
    ones.

    Arguments:
        model: Changed in place.
        data: Rows in the model's support: array, tensor, frame, or :class:`partita.tables.Rows`.
        objective: What is minimized; chosen by the capability table if not given.
        validation: Held-out rows; the fit keeps the weights that score best on them.
        sample_weight: One weight per row.
        out: Folder of the run; nothing is written without it.
        resume: Go on with the run in ``out``, bit for bit.
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
    if objective is not None:
        for methods in (("losses", "update"), ("init",)):
            check_role("fit", "objective", objective, methods, "PCD()")
    check_generator("fit", generator)
    resume, progress = check_flag("fit", "resume", resume), check_flag("fit", "progress", progress)
    folder = folder_of(out)
    if resume and out is None:
        raise invalid("fit", "out", "be the folder of the run to resume", None)
    missing = Capability.MISSING in model.capabilities
    rows = checked_rows(model, as_rows(data, sample_weight, "fit", missing=missing))
    objective = capability.default("objective", model) if objective is None else objective
    settings = resolve_settings(model, objective, len(rows), options)
    check_lbfgs(settings, objective, model)
    held_out = (
        None
        if validation is None
        else checked_rows(model, as_rows(validation, None, "fit", missing=missing), "validation", 1)
    )
    config = make_config(
        model, objective, settings.as_json(), **(about or {}), rows=[len(rows), rows.width]
    )
    fabric = one_process() if fabric is None else fabric
    with processes.together(fabric):
        saves = Saves(folder)
        saves.check(config, resume)
        session = start_session(
            model, rows, objective, settings, held_out=held_out, fabric=fabric, generator=generator
        )
        history = saves.history()
        if resume:
            config = saves.take_up(session, history, config)
        config |= {"steps": session.total, "key": session.key, "fit": session.settings.as_json()}
        saves.begin(session, config, resume)
        if since is not None and not resume:
            history.add({"step": 0, "epoch": 0, "seconds": round(deadline.now() - since, 3)})
        _note(session, _data_cautions(session))
        x_held_out = None if held_out is None else held_out.tensor(rng.keyed(session.key, HELD_OUT))
        try:
            stopped = _train(session, history, x_held_out, log_jacobian, saves, progress, since)
        except Diverged as error:
            history.add(guard.ending(error, session.step))
            session.leave_finite()
            _finish(session, history, config, "diverged", saves)
            raise
        return _finish(session, history, config, stopped, saves)


def _train(
    session: Session,
    history: History,
    held_out: Tensor | None,
    log_jacobian: float,
    saves: Saves,
    progress: bool,
    since: float | None,
) -> str:
    """Step until the plan is done, the fit converges, stops early, runs out of time or is
    interrupted; returns which.
    """
    every, looks = _record_interval(session), planned(session)
    saved, begun = time.monotonic(), deadline.now()
    # the clock of a fit that is taken up goes on
    started = begun - seconds_of(history.records) if since is None else since
    session.watch.begin(session)
    with (
        Interrupts() as interrupts,
        Display(session.total, session.step, progress and saves.leads) as display,
    ):
        session.message.wishes = lambda: [
            interrupts.asked,
            time.monotonic() - saved > SAVE_SECONDS,
            budget.out_of_time(session, deadline.now() - begun),
        ]
        while (
            session.step < session.total and not session.settled and not _out_of_patience(session)
        ):
            try:
                with session.trying():
                    record = session.advance()
                    step, session.settled = session.step, _settled(session)
                    scores, watches = (
                        due or bool(session.settled)
                        for due in (looks.score(step), looks.health(step))
                    )
                    score = (
                        _validate(session, held_out, looks, log_jacobian)
                        if scores and held_out is not None
                        else None
                    )
                    events = session.watch.look(session) if watches else []
            except (Diverged, guard.Unwell) as error:
                _go_back(session, history, saves, error)
                continue
            for event in events:
                history.add(event)
            if step % every == 0 or step == session.total:
                history.add(
                    {
                        "step": step,
                        "epoch": session.epoch,
                        "seconds": round(deadline.now() - started, 3),
                        **record,
                    }
                )
            if score is not None:
                history.add(
                    {
                        "step": step,
                        "epoch": session.epoch,
                        "validation": score,
                        "best": session.best.score,
                    }
                )
                display.show(score, distance=Capability.GENERATES in session.bare.capabilities)
            if watches:
                session.watch.keep(session)
            display.advance(step, record)
            if session.settled:
                break
            asked, unsaved, late = session.message.wished(session.team)
            if asked or unsaved:
                saves.save(session)
                saved = time.monotonic()
            if asked:
                return "interrupted"
            if late and step < session.total:
                history.add(budget.ending(session))
                return budget.OUT_OF_TIME
    return session.settled or ("early stop" if _out_of_patience(session) else "finished")


def _go_back(
    session: Session, history: History, saves: Saves, error: Diverged | guard.Unwell
) -> None:
    """To the last good look. The save makes it so: whenever a kill comes, the records follow it,
    here or when the fit is taken up.
    """
    event = session.watch.go_back(session, error)
    saves.save(session)
    history.rewind(session.step)
    history.add(event)


def _out_of_patience(session: Session) -> bool:
    return 0 < session.settings.patience <= session.best.misses


def _settled(session: Session) -> str:
    """Why a deterministic fit has nothing left to do; empty while it has.

    A minimum is where no gradient is above the tolerance, or where the loss, whose rounding is eps
    |loss|, no longer falls and the gradient is what that rounding leaves of it, sqrt(eps) |loss|
    (Gill, Murray and Wright 1981, section 8.2.3). A fit that does not fall any more under a larger
    gradient has stalled.
    """
    if session.optimizer is None:
        falls = session.objective.converges and session.step > 1
        return "converged" if falls and abs(session.progress) <= session.settings.tolerance else ""
    if session.settings.optimizer not in DESCENTS or not session.settings.exactly_minimizes(
        session.objective, session.bare
    ):
        return ""
    if session.gradient <= session.settings.tolerance:
        return "converged"
    size, precision = max(1.0, abs(session.loss)), torch.finfo(session.bare.like.dtype).eps
    if session.progress > precision * size:
        return ""
    return "converged" if session.gradient <= math.sqrt(precision) * size else "stalled"


def _validate(
    session: Session, held_out: Tensor, looks: ValidationSchedule, log_jacobian: float
) -> float:
    """Score the averaged weights on held-out rows and remember them if they are the best."""
    model, best = session.bare, session.best
    own = {name: p.detach().clone() for name, p in model.named_parameters()}
    averaged = {name: p.clone() for name, p in session.average.weights(model).items()}
    _assign(model, averaged)
    q = quick_score(model, held_out, session.key, session.step)
    q = q if q.kind == "none" else q + log_jacobian
    _assign(model, own)
    score = pessimistic(q)
    if score > best.score:
        best.score, best.step, best.misses, best.weights = score, session.step, 0, averaged
    else:
        best.misses = looks.missed(session.step, best.step)
    return q.value


def _finish(
    session: Session, history: History, config: dict[str, Any], stopped: str, saves: Saves
) -> Run:
    """Leave the weights to use in the model, and save everything."""
    model = session.bare
    _note(session, model.fit_warnings())
    last = {name: value.clone() for name, value in model.state_dict().items()}
    average = {**last, **{name: p.clone() for name, p in session.average.weights(model).items()}}
    use = {**last, **session.best.weights} if session.best.weights else average
    weights = {"use": use, "last": last, "average": average}
    saves.finish(
        session,
        {
            "step": session.step,
            "stopped": stopped,
            "warnings": session.warnings,
            "weights": weights,
        },
    )
    model.load_state_dict(use)
    for text in session.warnings:
        warnings.warn(f"fit: {text}", PartitaWarning, stacklevel=3)
    return Run(
        model,
        history.records,
        config,
        session.step,
        stopped,
        [*saves.remarks, *session.warnings],
        saves.folder,
    )


@torch.no_grad()
def _assign(model: torch.nn.Module, values: dict[str, Tensor]) -> None:
    for name, p in model.named_parameters():
        p.copy_(values[name])


def _data_cautions(session: Session) -> list[str]:
    if session.settings.l1 or session.settings.l2:
        return []
    return session.bare.data_warnings(session.data, generator=rng.keyed(session.key, CAUTIONS))


def _note(session: Session, texts: list[str]) -> None:
    session.warnings += [text for text in texts if text not in session.warnings]


def _record_interval(session: Session) -> int:
    """Steps between records; a fit that may converge early records every one."""
    return (
        1
        if session.optimizer is None and session.objective.converges
        else max(1, session.total // RECORDS)
    )
