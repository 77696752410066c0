"""What two processes all-reduce in a step; each runs ``together.py``."""

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from tests.training.two_processes import FITS, fitted, seeded
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from partita.errors import Diverged
from partita.models.directed.latent import LatentModel
from partita.objectives import ELBO
from partita.runtime import processes
from partita.tables import as_rows
from partita.training import Interrupted, Settings, loop
from partita.training.run import RunFolder
from partita.training.session import Session, start_session

NAMES = ("pcd", "replay", "vae", "vrnn", "gan, spectral", "muprop")
NOT_FINITE = (0, 3)  # steps at which the second process cannot tell what its latent variables carry


@contextmanager
def before(owner: Any, method: str, first: Callable[..., None]) -> Iterator[None]:
    """A method that does something else first."""
    inner = getattr(owner, method)

    def changed(*inputs: Any, **more: Any) -> Any:
        first(*inputs)
        return inner(*inputs, **more)

    setattr(owner, method, changed)
    try:
        yield
    finally:
        setattr(owner, method, inner)


class Messages(TorchDispatchMode):
    """Counts collective operations, whatever code starts them."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.namespace == "c10d"
        return func(*args, **(kwargs or {}))


def messages(name: str, fabric: Any) -> list[int]:
    """How many there are from each step of a fit to the next; it is looked at when it is done."""
    marks = []
    with Messages() as sent, before(Session, "advance", lambda _: marks.append(sent.count)):
        fitted(name, fabric, validations=1)
    return [after - now for now, after in pairwise(marks)]


def statistics(fabric: Any) -> dict[str, list[Tensor]]:
    """What the latent variables of a batch carry in this process, and the running mean after each
    step.
    """
    make, x, objective = FITS["vae"]
    watch, seen = LatentModel.watch, {"own": [], "running": []}

    def watched(self: LatentModel, kl: Tensor) -> None:
        lost = fabric.global_rank == 1 and len(seen["own"]) in NOT_FINITE
        seen["own"].append(
            torch.where(torch.arange(len(kl)) == 0, torch.nan, kl.detach()) if lost else kl.detach()
        )
        watch(self, seen["own"][-1])

    LatentModel.watch = watched
    with processes.together(fabric):
        session = start_session(
            make(),
            as_rows(x),
            objective,
            Settings(steps=6, learning_rate=0.02),
            fabric=fabric,
            generator=seeded(3),
        )
        for _ in range(6):
            session.advance()
            seen["running"].append(session.bare.carried.clone())
    LatentModel.watch = watch
    return seen


def once(fabric: Any, step: int, act: Callable[[], Any]) -> Callable[..., None]:
    """Only in the second process, and only when it is called for the update of this number."""
    calls = []

    def first(*_: Any) -> None:
        calls.append(None)
        if len(calls) == step and fabric.global_rank == 1:
            act()

    return first


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def diverge() -> None:
    raise Diverged("Langevin: chains must stay finite; got nan.")


def interrupt_and_diverge() -> None:
    interrupt()
    diverge()


def ended(fit: Callable[[], Any]) -> dict[str, Any]:
    """The summary of a fit, also of one that a signal ends."""
    try:
        return summary(fit())
    except Interrupted as stop:
        return summary(stop.run)


def summary(run: Any) -> dict[str, Any]:
    events = [record["done"] for record in run.history if "event" in record]
    return {
        "stopped": run.stopped,
        "steps": run.steps,
        "events": events,
        "weights": dict(run.model.state_dict()),
    }


def interrupted(fabric: Any, out: Path) -> dict[str, Any]:
    """A fit that a signal to the second process ends, before the all-reduce of the fifth step or
    when that step is done.
    """
    seen = {}
    for when, owner, method in (("before", ELBO, "losses"), ("after", loop, "_settled")):
        with before(owner, method, once(fabric, 5, interrupt)):
            seen[when] = ended(lambda when=when: fitted("vae", fabric, out=out / when))
        seen[f"{when}, resumed"] = summary(fitted("vae", fabric, out=out / when, resume=True))
    return seen | {"whole": summary(fitted("vae", fabric))}


def diverged(fabric: Any) -> dict[str, Any]:
    """Fits whose second update, or sixth, only the second process cannot make; in one a signal
    ends it in the same step.
    """
    seen = {}
    for name, step, act in (
        ("second", 2, diverge),
        ("sixth", 6, diverge),
        ("interrupted", 6, interrupt_and_diverge),
    ):
        with before(ELBO, "losses", once(fabric, step, act)):
            seen[name] = ended(lambda: fitted("vae", fabric, guard="rollback", validations=6))
    return seen


def saved(fabric: Any, out: Path) -> list[int]:
    """The steps at which a fit is saved of which the second process alone thinks that it is
    time.
    """
    usual, loop.SAVE_SECONDS = loop.SAVE_SECONDS, (math.inf, -1.0)[fabric.global_rank]
    steps = []
    with before(RunFolder, "save", lambda _, session: steps.append(session.step)):
        fitted("vae", fabric, steps=4, out=out / "saved")
    loop.SAVE_SECONDS = usual
    return steps


def run(out: Path, fabric: Any) -> dict[str, Any]:
    return {
        "messages": {name: messages(name, fabric) for name in NAMES},
        "statistics": statistics(fabric),
        "interrupted": interrupted(fabric, out),
        "diverged": diverged(fabric),
        "saved": saved(fabric, out),
    }
