"""Several processes that work on one thing: the share of each, and their collective operations.

The command line (:mod:`partita.cli.launch`), torchrun or a caller's Fabric starts them; a
:class:`Team` is this process's rank among them. Code that shares out chains asks :func:`current`,
which is :data:`ALONE` unless a fit or an evaluation runs inside :func:`together`, so that no
process waits for others that do something else.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from partita.errors import PartitaError, RunError
from partita.runtime.seeds import keyed, seed

if TYPE_CHECKING:
    from lightning_fabric import Fabric

T = TypeVar("T")

# what backends say of a lost connection
BROKEN = ("closed by peer", "reset by peer", "timed out", "broken pipe", "refused", "no route")
PATIENCE = 0.5  # seconds in which the error of a process that ended may still arrive


@dataclass(frozen=True)
class Team:
    """The process of number ``rank`` among ``size``; alone, its collective operations do nothing.

    >>> Team(1, 3).share(8)
    slice(3, 6, None)
    """

    rank: int = 0
    size: int = 1

    @property
    def is_zero(self) -> bool:
        """Whether this is process rank 0, which writes the files and prints."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """This process's part of ``n`` things; parts differ by one at most."""
        return slice(*(-(-n * r // self.size) for r in (self.rank, self.rank + 1)))

    def generator(self, common: torch.Generator) -> torch.Generator:
        """A stream of this process's own, from one that is the same in all processes; alone, that
        one itself.
        """
        if self.size == 1:
            return common
        own = keyed(seed(common), self.rank)
        if common.device.type == "cpu":
            return own
        return torch.Generator(common.device).manual_seed(seed(own))

    def mean(self, x: Tensor) -> Tensor:
        """The all-reduced average over processes."""
        return self.means([x])[0]

    def means(self, tensors: list[Tensor]) -> list[Tensor]:
        """The average of each tensor over processes, in one all-reduce."""
        if self.size == 1 or not tensors:
            return tensors
        flat = torch.cat([x.detach().reshape(-1) for x in tensors])
        with _naming_lost():
            dist.all_reduce(flat)
        parts = flat.div_(self.size).split([x.numel() for x in tensors])
        return [part.view_as(x) for x, part in zip(tensors, parts, strict=True)]

    def any(self, flag: bool) -> bool:
        """Whether any process raised the flag."""
        return flag if self.size == 1 else bool(self.mean(torch.tensor(float(flag))) > 0)

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in order of rank, on each of them."""
        values = [value] * self.size
        if self.size > 1:
            with _naming_lost():
                dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: T) -> T:
        """The value of process rank 0, on each process."""
        held = [value]
        if self.size > 1:
            with _naming_lost():
                dist.broadcast_object_list(held)
        return held[0]


ALONE = Team()
_current: ContextVar[Team] = ContextVar("team", default=ALONE)


def current() -> Team:
    """The processes that work together here."""
    return _current.get()


@contextmanager
def together(fabric: "Fabric | None") -> Iterator[Team]:
    """Let the processes of a Fabric work together inside this block, which each of them must enter
    with the same arguments.

    A process that leaves it by an error posts it, for those that would wait for it.
    """
    team = ALONE if fabric is None else Team(fabric.global_rank, fabric.world_size)
    _post_error(team, "")
    try:
        # wrappers of models wait for others too
        with _set(team), nullcontext() if team.size == 1 else _naming_lost():
            yield team
    except (PartitaError, OSError) as error:
        if not isinstance(error, LostProcess) and not isinstance(error.__context__, LostProcess):
            _post_error(team, str(error))
        raise


@contextmanager
def _set(team: Team) -> Iterator[None]:
    token = _current.set(team)
    try:
        yield
    finally:
        _current.reset(token)


def shared_out(
    n: int, work: Callable[[slice, torch.Generator], T], generator: torch.Generator
) -> list[T]:
    """The results of ``work`` on each process's part of ``n`` things, with random numbers of its
    own, in order of rank, on each process.

    Alone it is the work on all of them, with the generator itself. An error in one process is
    raised in all of them.

    >>> shared_out(3, lambda part, generator: list(range(3))[part], torch.Generator())
    [[0, 1, 2]]
    """
    team = current()
    own = team.generator(generator)
    if team.size == 1:
        return [work(slice(0, n), own)]
    part = team.share(n)
    with _set(ALONE):  # nothing inside waits for the others, whose parts may be of another length
        try:
            found = work(part, own) if part.stop > part.start else None
        except PartitaError as error:
            found = error
    results: list[T] = []
    for value in team.gather(found):
        if isinstance(value, PartitaError):
            raise value
        if value is not None:
            results.append(value)
    return results


class LostProcess(RunError):
    """A process of several ended while others waited for it; ``why`` is the error that it posted,
    empty where it had no time to.
    """

    def __init__(self, why: str = "") -> None:
        super().__init__(
            why
            or "a process of several was lost while the others waited for it; its message, if it "
            "had one, is above"
        )
        self.why = why


@contextmanager
def _naming_lost() -> Iterator[None]:
    """Turn a broken connection into :class:`LostProcess`."""
    try:
        yield
    except RuntimeError as error:
        broken = any(word in str(error).lower() for word in BROKEN)
        if isinstance(error, PartitaError) or not broken:
            raise
        raise LostProcess(_posted_error(current())) from error


def _post_error(team: Team, text: str) -> None:
    """Write why this process ends into the store where all processes met, which may be gone."""
    if team.size > 1:
        with suppress(RuntimeError):
            dist.distributed_c10d._get_default_store().set(f"partita/{team.rank}", text)


def _posted_error(team: Team) -> str:
    """The error that another process posted; empty where there is none in time."""
    until = time.monotonic() + PATIENCE
    with suppress(RuntimeError):
        store = dist.distributed_c10d._get_default_store()
        while time.monotonic() < until:
            for rank in range(team.size):
                key = f"partita/{rank}"
                if rank != team.rank and store.check([key]) and (text := store.get(key).decode()):
                    return f"process {rank} of {team.size} ended: {text}"
            time.sleep(PATIENCE / 10)
    return ""
