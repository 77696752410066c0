"""What a fit needs before its first step: rows that were checked, a model initialized from the
data, an optimizer, a number of steps.
"""

from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from partita.core import rng
from partita.core.protocols import Capability, Model, Objective, Update
from partita.errors import Unsupported, invalid
from partita.runtime import memory_limit, processes
from partita.tables import Rows
from partita.tables.arrays import row_ranges
from partita.training.optimizers import make_optimizer
from partita.training.session import Session, State
from partita.training.settings import Learner, Settings

if TYPE_CHECKING:
    from lightning_fabric import Fabric

UNTIMED = 1 << 40  # steps of a fit by minutes, until they are timed


def start_session(
    model: Model,
    rows: Rows,
    objective: Learner,
    settings: Settings,
    *,
    fabric: "Fabric | None" = None,
    generator: torch.Generator,
) -> Session:
    """Initialize the model from the data, the objective's state, the optimizer, and the number of
    steps; :mod:`partita.training.budget` turns minutes into steps.
    """
    fabric, team = fabric or one_process(), processes.current()
    key = team.broadcast(rng.seed(generator))
    if settings.initialize:
        model.initialize(rows, generator=generator)
    objective = _shared(objective, settings, len(rows), team)
    generator = team.generator(generator)
    # the first state of closed-form updates may be the best of many trials, and holds no chains
    closed_form = isinstance(objective, Update)
    with nullcontext() if closed_form else memory_limit.within_machine("fit"):
        state = objective.init(model, rows, generator=generator)
    wrapped, optimizer = model, None
    if not closed_form:
        wrapped, state, optimizer = _wrapped(model, state, settings, fabric)
    session = Session(
        wrapped, rows, objective, state, optimizer, settings, UNTIMED, key, generator, fabric, team
    )
    if settings.minutes is None:
        session.set_total(settings.steps or (settings.epochs or 1) * session.steps_per_epoch)
    return session


def _shared(objective: Learner, settings: Settings, n: int, team: processes.Team) -> Learner:
    """The part of an objective that one of several processes minimizes; what cannot be shared out
    is refused.
    """
    if team.size == 1:
        return objective
    if (batch := min(n, settings.batch_size or n)) < team.size:
        allowed = f"have at least one row for each of the {team.size} processes"
        raise invalid("fit", "a batch", allowed, batch, "Raise batch_size.")
    if isinstance(objective, Update):
        raise Unsupported(
            f"fit: {type(objective).__name__} takes closed-form steps, which one process does. "
            "Leave out devices."
        )
    if settings.optimizer == "natural":
        raise Unsupported(
            "fit: optimizer 'natural' measures its metric in one process. Leave out devices, or "
            "use 'adam'."
        )
    return objective.shared(team.size)


def _wrapped(
    model: Model, state: State, settings: Settings, fabric: "Fabric"
) -> tuple[Model, State, torch.optim.Optimizer]:
    """The model, the objective's state and the optimizer, wrapped by Fabric; trainable extras are
    optimized beside the model.
    """
    module = getattr(state, "module", None)
    extras = [] if module is None else list(module.parameters())
    optimizer = make_optimizer([*model.parameters(), *extras], settings)
    wrapped, optimizer = fabric.setup(model, optimizer)
    _keep_buffers(wrapped)
    for method in dict.fromkeys(
        name for kind in type(model).__mro__ for name in vars(kind).get("forward_methods", ())
    ):
        wrapped.mark_forward_method(method)
    if module is not None and extras:
        module = fabric.setup_module(module)
        _keep_buffers(module)
        state = _with_module(state, module)
    return wrapped, state, optimizer


def _keep_buffers(wrapped: nn.Module) -> None:
    """Keep buffers from being broadcast in a forward pass: each step all-reduces them itself."""
    for module in wrapped.modules():
        if isinstance(module, DistributedDataParallel):
            module.broadcast_buffers = False


def _with_module(state: State, module: nn.Module) -> State:
    """A state with its module replaced by the wrapped one, wherever it is held: by itself, or by
    the state of an objective inside.
    """
    if "module" in state._fields:
        return state._replace(module=module)
    return state._replace(inner=_with_module(state.inner, module))


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


def check_lbfgs(settings: Settings, objective: Learner, model: Model) -> None:
    """Refuse L-BFGS for a loss that is not a function of the parameters alone."""
    if settings.optimizer != "lbfgs" or settings.exactly_minimizes(objective, model):
        return
    got = type(objective).__name__
    if not settings.batch_size and isinstance(objective, Objective):
        got += f", random on {model.title()}," if objective.deterministic else ""
    raise invalid(
        "fit",
        "optimizer='lbfgs'",
        "go with ExactLikelihood and batch_size=0, or another objective that is not random",
        f"{got} and batch_size={settings.batch_size}",
        "Use 'sgd' or 'adam'.",
    )


@cache
def one_process() -> "Fabric":
    """The Fabric of all fits that are given none: it keeps nothing of them, and making one takes
    long, for it looks for every package there is.
    """
    from lightning_fabric import Fabric

    return Fabric(accelerator="cpu", devices=1)
