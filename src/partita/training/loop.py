"""The one training loop, on Lightning Fabric: ``fit`` reads from top to bottom."""

import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.checks import check_role
from partita.core.errors import Diverged, invalid
from partita.core.protocols import Model, Objective, Update
from partita.data import Rows, as_rows
from partita.training import checkpoint, guard
from partita.training.budget import steps_within
from partita.training.interrupt import Interrupts
from partita.training.optimisers import WeightAverage, make_optimiser
from partita.training.progress import Display
from partita.training.recipes import resolve_settings
from partita.training.run import Run, check_new, check_resumable, make_config, open_history, prepare_folder, read_config
from partita.training.session import CAUTIONS, HELD_OUT, Session
from partita.training.settings import Settings
from partita.training.validation import pessimistic, quick_score

LEAST_MOVES = 20  # updates after which chains that stand still are stuck; after fewer they may be unlucky
SAVE_SECONDS = 20.0
RECORDS = 200  # about this many lines of metrics in a fit
VALIDATION_SHARE = 0.2  # of the time, where there is a limit
STALLED = 1e-12  # relative progress of a step below which rounding has the last word


class PartitaWarning(UserWarning):
    """Something a user should know about a fit that goes on."""


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
    generator: torch.Generator,
    **options: Any,
) -> Run:
    """Fit a model to data and leave in it the weights to use: the best validated, else the averaged ones.

    Arguments:
        model: Changed in place.
        data: Rows in the model's support: array, tensor, frame, or :class:`partita.data.Rows`.
        objective: What is minimised; chosen by the capability table if not given.
        validation: Held-out rows; the fit keeps the weights that score best on them.
        sample_weight: One weight per row.
        out: Folder of the run; nothing is written without it.
        resume: Go on with the run in ``out``, bit for bit.
        about: More to write into the run's config (data name, command).
        progress: Show a bar.
        fabric: A ``lightning_fabric.Fabric``, for other devices or many processes.
        log_jacobian: Added to validation scores, where rows were rescaled, so that they are in the data's own units.
        generator: Source of all randomness.
        options: Any field of :class:`partita.training.Settings`: epochs, steps or minutes, batch_size, optimizer, ...
    """
    if objective is not None:
        check_role("fit", "objective", objective, ("losses", "update"), "PCD()")
    missing = "missing" in model.offers
    rows = _checked_rows(model, as_rows(data, sample_weight, "fit", missing=missing))
    objective = capability.default("objective", model) if objective is None else objective
    settings = resolve_settings(model, objective, len(rows), options)
    _check_lbfgs(settings, objective, model)
    if resume and out is None:
        raise invalid("fit", "out", "be the folder of the run to resume", None)
    folder = None if out is None else Path(out)
    held_out = None if validation is None else _checked_rows(model, as_rows(validation, None, "fit", missing=missing), "validation", 1)
    config = make_config(model, objective, settings.as_json(), **(about or {}), rows=[len(rows), rows.width])
    if folder is not None:
        check_resumable(folder, config) if resume else check_new(folder)
    session = start_session(model, rows, objective, settings, held_out=held_out, fabric=fabric, generator=generator)
    history = open_history(folder)
    if folder is not None and resume:
        session.restore(checkpoint.load(folder / "checkpoints" / "last.safetensors"))
        history.rewind(session.step)
        made = read_config(folder)
        session.settings = replace(session.settings, validations=made["fit"].get("validations", settings.validations))
        config = {**made, **config}
    config |= {"steps": session.total, "key": session.key, "fit": session.settings.as_json()}
    if folder is not None:
        prepare_folder(folder, config)
        checkpoint.save(folder / "checkpoints" / "last.safetensors", session.tree())
    _note(session, _data_cautions(session))
    x_held_out = None if held_out is None else held_out.tensor(rng.keyed(session.key, HELD_OUT))
    try:
        stopped = _train(session, history, x_held_out, log_jacobian, folder, progress)
    except Diverged:
        session.roll_back()
        _finish(session, history.records, config, "diverged", folder)
        raise
    return _finish(session, history.records, config, stopped, folder)


def _train(
    session: Session, history: Any, held_out: Tensor | None, log_jacobian: float, folder: Path | None, progress: bool
) -> str:
    """Step until the plan is done, the fit converges, stops early or is interrupted; returns which."""
    every, validate_every = _record_interval(session), _validation_interval(session)
    saved = started = time.monotonic()
    chains, looked = _chains(session), session.step
    with Interrupts() as interrupts, Display(session.total, session.step, progress) as display:
        while session.step < session.total and not _out_of_patience(session):
            record, step = session.advance(), session.step
            if step % every == 0 or step == session.total:
                history.add({"step": step, "epoch": session.epoch, "seconds": round(time.monotonic() - started, 3), **record})
            settled = _settled(session)
            if step % validate_every == 0 or step == session.total or settled:
                if held_out is not None:
                    score = _validate(session, held_out, log_jacobian)
                    history.add({"step": step, "epoch": session.epoch, "validation": score, "best": session.best.score})
                    display.show(score, distance="generates" in session.bare.offers)
                _note(session, guard.ailments(session.bare, chains if step - looked >= LEAST_MOVES else None, _chains(session)))
                chains, looked = _chains(session), step
            display.advance(step, record)
            if settled:
                return settled
            if folder is not None and (interrupts.asked or time.monotonic() - saved > SAVE_SECONDS):
                checkpoint.save(folder / "checkpoints" / "last.safetensors", session.tree())
                saved = time.monotonic()
            if interrupts.asked:
                return "interrupted"
    return "early stop" if _out_of_patience(session) else "finished"


def _out_of_patience(session: Session) -> bool:
    return 0 < session.settings.patience <= session.best.misses


def _settled(session: Session) -> str:
    """Why a deterministic fit has nothing left to do; empty while it has."""
    if session.optimiser is None:
        falls = session.objective.converges and session.step > 1
        return "converged" if falls and abs(session.progress) <= session.settings.tolerance else ""
    if session.settings.optimizer not in ("lbfgs", "natural") or not session.settings.exactly_minimises(session.objective, session.bare):
        return ""
    if session.gradient_size() <= session.settings.tolerance:
        return "converged"
    return "stalled" if session.progress <= STALLED * max(1.0, abs(session.loss)) else ""


def start_session(
    model: Model, rows: Rows, objective: Any, settings: Settings, *, held_out: Rows | None = None, fabric: Any = None,
    generator: torch.Generator,
) -> Session:  # fmt: skip
    """Initialise the model from the data, the objective's state, the optimiser, and the number of steps."""
    fabric, key = _fabric(fabric), rng.seed(generator)
    if settings.initialise:
        model.initialise(rows, generator=generator)
    state = objective.init(model, rows, generator=generator)
    closed_form = hasattr(objective, "update")
    wrapped, state, optimiser = (model, state, None) if closed_form else _wrapped(model, state, settings, fabric)

    def session(total: int) -> Session:
        window = settings.average * total
        return Session(wrapped, rows, objective, state, optimiser, WeightAverage(model, window), settings, total, key, generator, fabric)

    per_epoch = session(1).steps_per_epoch
    if settings.minutes is not None:
        validations, set_aside = _affordable_validations(model, held_out, key, settings)
        timed = session(steps_within(settings.minutes, session, set_aside))
        return replace(timed, settings=replace(settings, validations=validations))
    return session(settings.steps or (settings.epochs or 1) * per_epoch)


def _wrapped(model: Model, state: Any, settings: Settings, fabric: Any) -> tuple[Any, Any, Any]:
    """The model, the objective's state and the optimiser in Fabric's hands; trainable extras are optimised beside the model."""
    extras = list(state.module.parameters()) if hasattr(state, "module") else []
    wrapped, optimiser = fabric.setup(model, make_optimiser([*model.parameters(), *extras], settings))
    for method in dict.fromkeys(name for kind in type(model).__mro__ for name in vars(kind).get("forward_methods", ())):
        wrapped.mark_forward_method(method)
    return wrapped, state._replace(module=fabric.setup_module(state.module)) if extras else state, optimiser


def _affordable_validations(model: Model, held_out: Rows | None, key: int, settings: Settings) -> tuple[int, float]:
    """How many validations fit into a fifth of the time, judged by one, and the seconds they take."""
    if held_out is None or settings.minutes is None or "posterior_draws" in model.offers:  # none before the first sweep
        return settings.validations, 0.0
    x, started = held_out.tensor(rng.keyed(key, HELD_OUT)), time.monotonic()
    quick_score(model, x, key, 0)
    cost = time.monotonic() - started
    count = max(1, min(settings.validations, int(VALIDATION_SHARE * 60 * settings.minutes / max(cost, 1e-9))))
    return count, count * cost


def _validate(session: Session, held_out: Tensor, log_jacobian: float = 0.0) -> float:
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
        best.misses += 1
    return q.value


def _finish(session: Session, records: list[dict[str, Any]], config: dict[str, Any], stopped: str, folder: Path | None) -> Run:
    """Leave the weights to use in the model, and save everything."""
    model = session.bare
    _note(session, model.ailments())
    last = {name: value.clone() for name, value in model.state_dict().items()}
    average = {**last, **{name: p.clone() for name, p in session.average.weights(model).items()}}
    use = {**last, **session.best.weights} if session.best.weights else average
    if folder is not None:
        if stopped != "diverged":  # the last good save stays
            checkpoint.save(folder / "checkpoints" / "last.safetensors", session.tree())
        weights = {"use": use, "last": last, "average": average}
        saved = {"step": session.step, "stopped": stopped, "cautions": session.cautions, "weights": weights}
        checkpoint.save(folder / "checkpoints" / "model.safetensors", saved)
    model.load_state_dict(use)
    for caution in session.cautions:
        warnings.warn(f"fit: {caution}", PartitaWarning, stacklevel=3)
    return Run(model, records, config, session.step, stopped, session.cautions, folder)


@torch.no_grad()
def _assign(model: torch.nn.Module, values: dict[str, Tensor]) -> None:
    for name, p in model.named_parameters():
        p.copy_(values[name])


def _data_cautions(session: Session) -> list[str]:
    if session.settings.l1 or session.settings.l2:
        return []
    return session.bare.cautions(session.data, generator=rng.keyed(session.key, CAUTIONS))


def _note(session: Session, cautions: list[str]) -> None:
    session.cautions += [caution for caution in cautions if caution not in session.cautions]


def _chains(session: Session) -> Tensor | None:
    chains = getattr(session.state, "chains", None)
    return None if chains is None else chains.x


def _record_interval(session: Session) -> int:
    """Steps between records; a fit that may converge early records every one."""
    return 1 if session.optimiser is None and session.objective.converges else max(1, session.total // RECORDS)


def _validation_interval(session: Session) -> int:
    if session.settings.validate_every is not None:
        return session.settings.validate_every * session.steps_per_epoch
    return max(1, session.total // session.settings.validations)


def _checked_rows(model: Model, rows: Rows, parameter: str = "x", least: int = 2) -> Rows:
    """Width, number of rows, and every value inside the model's support, read in chunks."""
    if rows.width != model.support.width:
        raise invalid("fit", parameter, f"have shape (*, {model.support.width}) to match {model.title()}", (len(rows), rows.width))
    if len(rows) < least:
        raise invalid("fit", parameter, f"have at least {least} rows", len(rows))
    generator = torch.Generator()
    for start in range(0, len(rows), 8192):
        index = torch.arange(start, min(start + 8192, len(rows)))
        x = rows.batch(index, generator=generator).x
        model.support.check(x, "fit", parameter, missing="missing" in model.offers)
        if (nothing := x.isnan().all(1)).any():
            row = start + int(nothing.nonzero()[0])
            raise invalid("fit", parameter, "have an observed value in every row", f"none in row {row}", "Leave such rows out.")
    return rows


def _check_lbfgs(settings: Settings, objective: Any, model: Model) -> None:
    if settings.optimizer != "lbfgs":
        return
    if settings.batch_size or not getattr(objective, "deterministic_on", lambda _: False)(model):
        random = "" if settings.batch_size or not getattr(objective, "deterministic", False) else f", random on {model.title()},"
        raise invalid("fit", "optimizer='lbfgs'", "go with ExactLikelihood and batch_size=0, or another objective that is not random",
                      f"{type(objective).__name__}{random} and batch_size={settings.batch_size}", "Use 'sgd' or 'adam'.")  # fmt: skip


def _fabric(fabric: Any) -> Any:
    if fabric is None:
        from lightning_fabric import Fabric

        fabric = Fabric(accelerator="cpu", devices=1)
    return fabric


