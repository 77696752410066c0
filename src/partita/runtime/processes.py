"""Several processes that work on one thing: what falls to each of them, and what they tell one
another.

Fabric or torchrun starts them; here is only who we are among them. Code that shares out chains asks
:func:`current`, which is :data:`ALONE` unless a fit or an evaluation was told to work together, so
that nobody waits for processes that do something else.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from partita.errors import PartitaError, RunError
from partita.runtime.seeds import keyed, seed


@dataclass(frozen=True)
class Team:
    """One of ``size`` processes, the one numbered ``rank``; alone, it says and hears nothing.

    >>> Team(1, 3).share(8)
    slice(3, 6, None)
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes the files and says what there is to say."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """This process's part of ``n`` things; parts differ by one at most."""
        return slice(*(-(-n * r // self.size) for r in (self.rank, self.rank + 1)))

    def generator(self, common: torch.Generator) -> torch.Generator:
        """A stream of this process's own, from one that all processes have alike; alone, that one
        itself.
        """
        if self.size == 1:
            return common
        own = keyed(seed(common), self.rank)
        return (
            own
            if common.device.type == "cpu"
            else torch.Generator(common.device).manual_seed(seed(own))
        )

    def mean(self, x: Tensor) -> Tensor:
        """The average over processes, on each of them."""
        if self.size == 1:
            return x
        total = x.detach().clone()
        with _heard():
            dist.all_reduce(total)
        return total.div_(self.size)

    def means(self, tensors: list[Tensor]) -> list[Tensor]:
        """The average of each tensor over processes, all in one message."""
        if self.size == 1 or not tensors:
            return tensors
        flat = torch.cat([x.detach().reshape(-1) for x in tensors])
        with _heard():
            dist.all_reduce(flat)
        parts = flat.div_(self.size).split([x.numel() for x in tensors])
        return [part.view_as(x) for x, part in zip(tensors, parts, strict=True)]

    def any(self, *flags: bool) -> list[bool]:
        """Each flag, raised where any process raised it."""
        return (
            list(flags)
            if self.size == 1
            else [
                bool(value > 0)
                for value in self.mean(torch.tensor([float(flag) for flag in flags]))
            ]
        )

    def gather(self, value: Any) -> list[Any]:
        """Everybody's value, in order, on each process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with _heard():
            dist.all_gather_object(values, value)
        return values

    def told(self, value: Any) -> Any:
        """The leader's value, on each process."""
        if self.size == 1:
            return value
        held = [value]
        with _heard():
            dist.broadcast_object_list(held)
        return held[0]


ALONE = Team()
_current: ContextVar[Team] = ContextVar("team", default=ALONE)


def current() -> Team:
    """The processes that work together here."""
    return _current.get()


@contextmanager
def together(fabric: Any) -> Iterator[Team]:
    """Inside this block the processes of a Fabric work together: each must come to it, with the
    same arguments.

    One that leaves it by an error leaves word of it, for those who will miss it.
    """
    team = (
        ALONE
        if fabric is None or fabric.world_size == 1
        else Team(fabric.global_rank, fabric.world_size)
    )
    _leave_word(team, "")
    try:
        # wrappers of models wait for others too
        with _set(team), nullcontext() if team.size == 1 else _heard():
            yield team
    except (PartitaError, OSError) as error:
        # which others know themselves
        if not isinstance(error, LostProcess) and not isinstance(error.__context__, LostProcess):
            _leave_word(team, str(error))
        raise


@contextmanager
def _set(team: Team) -> Iterator[None]:
    token = _current.set(team)
    try:
        yield
    finally:
        _current.reset(token)


def shared_out(
    n: int, work: Callable[[slice, torch.Generator], Any], generator: torch.Generator
) -> list[Any]:
    """What ``work`` makes of each process's part of ``n`` things with random numbers of its own, in
    order, on each process.

    Alone it is the work on all of them, with the generator itself. What goes wrong in one process
    is raised in all of them.

    >>> shared_out(3, lambda part, generator: list(range(3))[part], torch.Generator())
    [[0, 1, 2]]
    """
    team, own = current(), current().generator(generator)
    if team.size == 1:
        return [work(slice(0, n), own)]
    part = team.share(n)
    with _set(ALONE):  # nothing inside waits for the others, whose parts may be of another length
        try:
            found = work(part, own) if part.stop > part.start else None
        except PartitaError as error:
            found = error
    parts = [value for value in team.gather(found) if value is not None]
    for value in parts:
        if isinstance(value, PartitaError):
            raise value
    return parts


# what backends say of a lost connection
BROKEN = ("closed by peer", "reset by peer", "timed out", "broken pipe", "refused", "no route")


PATIENCE = 0.5  # seconds in which the word of a process that ended may still arrive


class LostProcess(RunError):
    """A process of several ended while others waited for it; ``why`` is what it left word of."""

    def __init__(self, why: str = "") -> None:
        super().__init__(
            why
            or "a process of several was lost while the others waited for it; what it said, if "
            "anything, is above"
        )
        self.why = why


@contextmanager
def _heard() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, PartitaError) or not any(
            word in str(error).lower() for word in BROKEN
        ):
            raise
        raise LostProcess(_word(current())) from error


def _leave_word(team: Team, text: str) -> None:
    """Say why this process ends, in the store where all processes met; the one who keeps it may
    have gone before.
    """
    if team.size > 1:
        with suppress(RuntimeError):
            dist.distributed_c10d._get_default_store().set(f"partita/{team.rank}", text)


def _word(team: Team) -> str:
    """What another process left word of; empty where it had no time to."""
    until = time.monotonic() + PATIENCE
    with suppress(RuntimeError):
        store = dist.distributed_c10d._get_default_store()
        while time.monotonic() < until:
            for rank in range(team.size):
                text = (
                    store.get(f"partita/{rank}").decode()
                    if rank != team.rank and store.check([f"partita/{rank}"])
                    else ""
                )
                if text:
                    return f"process {rank} of {team.size} ended: {text}"
            time.sleep(PATIENCE / 10)
    return ""
