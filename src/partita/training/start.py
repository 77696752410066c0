"""What a fit needs before its first step: rows that were checked, a model that begins at the data,
an optimizer, a number of steps.
"""

from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from partita.core import rng
from partita.core.protocols import Capability, Model
from partita.errors import Unsupported, invalid
from partita.runtime import deadline, memory_limit, processes
from partita.tables import Rows
from partita.tables.arrays import chunks
from partita.training.budget import steps_within
from partita.training.optimizers import WeightAverage, make_optimizer
from partita.training.session import HELD_OUT, Session
from partita.training.settings import Settings
from partita.training.validation import quick_score

VALIDATION_SHARE = 0.2  # of the time, where there is a limit


def start_session(
    model: Model,
    rows: Rows,
    objective: Any,
    settings: Settings,
    *,
    held_out: Rows | None = None,
    fabric: Any = None,
    generator: torch.Generator,
) -> Session:
    """Initialize the model from the data, the objective's state, the optimizer, and the number of
    steps.
    """
    fabric, team = one_process() if fabric is None else fabric, processes.current()
    key = team.told(rng.seed(generator))
    if settings.initialize:
        model.initialize(rows, generator=generator)
    objective, generator = _shared(objective, settings, len(rows), team), team.generator(generator)
    # whose first state may be the best of many trials, and holds no chains
    closed_form = hasattr(objective, "update")
    with nullcontext() if closed_form else memory_limit.within_machine("fit"):
        state = objective.init(model, rows, generator=generator)
    wrapped, state, optimizer = (
        (model, state, None) if closed_form else _wrapped(model, state, settings, fabric)
    )

    def session(total: int) -> Session:
        average = WeightAverage(model, settings.average * total)
        return Session(
            wrapped,
            rows,
            objective,
            state,
            optimizer,
            average,
            settings,
            total,
            key,
            generator,
            fabric,
            team,
        )

    per_epoch = session(1).steps_per_epoch
    if settings.minutes is not None:
        validations, set_aside = team.told(_affordable_validations(model, held_out, key, settings))
        timed = session(steps_within(settings.minutes, session, set_aside))
        return replace(timed, settings=replace(settings, validations=validations))
    return session(settings.steps or (settings.epochs or 1) * per_epoch)


def _shared(objective: Any, settings: Settings, n: int, team: processes.Team) -> Any:
    """What one of several processes minimizes; what cannot be shared out is refused."""
    if team.size == 1:
        return objective
    if (batch := min(n, settings.batch_size or n)) < team.size:
        raise invalid(
            "fit",
            "a batch",
            f"have at least one row for each of the {team.size} processes",
            batch,
            "Raise batch_size.",
        )
    if hasattr(objective, "update"):
        raise Unsupported(
            f"fit: {type(objective).__name__} takes closed-form steps, which one process does. "
            "Leave out devices."
        )
    if settings.optimizer == "natural":
        raise Unsupported(
            "fit: optimizer 'natural' measures its metric in one process. Leave out devices, or "
            "use 'adam'."
        )
    return objective.shared(team.size) if hasattr(objective, "shared") else objective


def _wrapped(model: Model, state: Any, settings: Settings, fabric: Any) -> tuple[Any, Any, Any]:
    """The model, the objective's state and the optimizer in Fabric's hands; trainable extras are
    optimized beside the model.
    """
    extras = list(state.module.parameters()) if hasattr(state, "module") else []
    wrapped, optimizer = fabric.setup(
        model, make_optimizer([*model.parameters(), *extras], settings)
    )
    for method in dict.fromkeys(
        name for kind in type(model).__mro__ for name in vars(kind).get("forward_methods", ())
    ):
        wrapped.mark_forward_method(method)
    return (
        wrapped,
        _with_module(state, fabric.setup_module(state.module)) if extras else state,
        optimizer,
    )


def _with_module(state: Any, module: Any) -> Any:
    """A state with its module in Fabric's hands, wherever it is held: by itself, or by the state of
    an objective inside.
    """
    held = "module" in state._fields
    return (
        state._replace(module=module)
        if held
        else state._replace(inner=_with_module(state.inner, module))
    )


def _affordable_validations(
    model: Model, held_out: Rows | None, key: int, settings: Settings
) -> tuple[int, float]:
    """How many validations fit into a fifth of the time, judged by one, and the seconds they
    take.
    """
    # none before the first sweep
    if (
        held_out is None
        or settings.minutes is None
        or Capability.POSTERIOR_DRAWS in model.capabilities
    ):
        return settings.validations, 0.0
    x, started = held_out.tensor(rng.keyed(key, HELD_OUT)), deadline.now()
    quick_score(model, x, key, 0)
    cost = deadline.now() - started
    count = max(
        1,
        min(settings.validations, int(VALIDATION_SHARE * 60 * settings.minutes / max(cost, 1e-9))),
    )
    return count, count * cost


def checked_rows(model: Model, rows: Rows, parameter: str = "x", least: int = 2) -> Rows:
    """Width, number of rows, and every value inside the model's support, read in chunks."""
    if rows.width != model.support.width:
        raise invalid(
            "fit",
            parameter,
            f"have shape (*, {model.support.width}) to match {model.title()}",
            (len(rows), rows.width),
        )
    if len(rows) < least:
        raise invalid("fit", parameter, f"have at least {least} rows", len(rows))
    generator = torch.Generator()
    for part in chunks(len(rows), rows.width):
        x = rows.batch(torch.arange(part.start, part.stop), generator=generator).x
        model.support.check(x, "fit", parameter, missing=Capability.MISSING in model.capabilities)
        if (nothing := x.isnan().all(1)).any():
            row = part.start + int(nothing.nonzero()[0])
            raise invalid(
                "fit",
                parameter,
                "have an observed value in every row",
                f"none in row {row}",
                "Leave such rows out.",
            )
    return rows


def check_lbfgs(settings: Settings, objective: Any, model: Model) -> None:
    if settings.optimizer != "lbfgs":
        return
    if settings.batch_size or not getattr(objective, "deterministic_on", lambda _: False)(model):
        random = (
            ""
            if settings.batch_size or not getattr(objective, "deterministic", False)
            else f", random on {model.title()},"
        )
        raise invalid(
            "fit",
            "optimizer='lbfgs'",
            "go with ExactLikelihood and batch_size=0, or another objective that is not random",
            f"{type(objective).__name__}{random} and batch_size={settings.batch_size}",
            "Use 'sgd' or 'adam'.",
        )


@cache
def one_process() -> Any:
    """The Fabric of all fits that were given none: it holds nothing of them, and to make one takes
    a look at every package there is.
    """
    from lightning_fabric import Fabric

    return Fabric(accelerator="cpu", devices=1)
