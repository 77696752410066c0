"""Several processes that work on one thing: what falls to each of them, and what they tell one another.

Fabric or torchrun starts them; here is only who we are among them. Code that shares out chains asks :func:`current`, which is
:data:`ALONE` unless a fit or an evaluation was told to work together, so that nobody waits for processes that do something else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from partita.core import rng
from partita.core.errors import RunError


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
        """A stream of this process's own, from one that all processes have alike; alone, that one itself."""
        if self.size == 1:
            return common
        own = rng.keyed(rng.seed(common), self.rank)
        return own if common.device.type == "cpu" else torch.Generator(common.device).manual_seed(rng.seed(own))

    def mean(self, x: Tensor) -> Tensor:
        """The average over processes, on each of them."""
        if self.size == 1:
            return x
        total = x.detach().clone()
        with _heard():
            dist.all_reduce(total)
        return total / self.size

    def average(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its average over processes, all in one message."""
        if self.size == 1 or not tensors:
            return
        flat = self.mean(torch.cat([x.reshape(-1) for x in tensors]))
        for x, part in zip(tensors, flat.split([x.numel() for x in tensors]), strict=True):
            x.copy_(part.view_as(x))

    def any(self, *flags: bool) -> list[bool]:
        """Each flag, raised where any process raised it."""
        return list(flags) if self.size == 1 else [bool(value > 0) for value in self.mean(torch.tensor([float(flag) for flag in flags]))]

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
    """Inside this block the processes of a Fabric work together: each must come to it, with the same arguments."""
    team = ALONE if fabric is None or fabric.world_size == 1 else Team(fabric.global_rank, fabric.world_size)
    token = _current.set(team)
    try:
        yield team
    finally:
        _current.reset(token)


BROKEN = ("closed by peer", "reset by peer", "timed out", "broken pipe", "refused", "no route")  # what backends say of a lost connection


class LostProcess(RunError):
    """A process of several ended while others waited for it."""


@contextmanager
def _heard() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not any(word in str(error).lower() for word in BROKEN):
            raise
        raise LostProcess("a process of several was lost while the others waited for it; what it said, if anything, is above") from error
