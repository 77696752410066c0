"""``--devices`` and ``--nodes``: the processes of one command, started by Fabric or by torchrun;
only process rank 0 prints.
"""

import contextlib
import logging
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from partita.cli import INTERRUPTED as PRESSED

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# Fabric's thread that kills all processes when one is lost; once all have met, broken connections
# show the loss, and rank 0 reports it
OBSERVER = "child-process-observer"
ENDING = 3.0  # seconds that a process which was killed may take to end
LOST = (
    "Error: a process of several was lost before all had started; nothing was begun. Free some "
    "memory, or ask for fewer --devices."
)
# exit codes of Ctrl-C, which reaches all processes of a terminal; the first of them reports it
INTERRUPTED = (130, -signal.SIGINT)
STARTED_BY = "PARTITA_STARTED_BY"  # environment variable: the process that started the others


@contextlib.contextmanager
def launched(devices: int | None, nodes: int, strategy: str) -> "Iterator[Fabric | None]":
    """The Fabric whose processes share the work inside the block; None where there is one
    process.
    """
    if "LOCAL_WORLD_SIZE" in os.environ or (devices or 1) * nodes > 1:
        # read on import: torch would print stack traces beside our own sentence about the loss
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from partita.core.checks import check_choice
    from partita.runtime import processes

    check_choice("fit", "--strategy", strategy, ("ddp",))
    by_torchrun = "LOCAL_WORLD_SIZE" in os.environ
    here = int(os.environ["LOCAL_WORLD_SIZE"]) if by_torchrun else devices or 1
    machines = int(os.environ["WORLD_SIZE"]) // here if by_torchrun else nodes
    if here * machines == 1:
        yield None
        return
    fabric = _start(here, machines, strategy)
    leader = Leader(*fabric.broadcast((platform.node(), os.getpid())))
    with (
        _leading() if fabric.is_global_zero else _silent(leader, fabric.local_rank == 0),
        processes.together(fabric),
    ):
        yield fabric


def _start(devices: int, nodes: int, strategy: str) -> "Fabric":
    from lightning_fabric import Fabric

    for name in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    fabric = Fabric(accelerator="cpu", devices=devices, num_nodes=nodes, strategy=strategy)
    with _meeting():
        fabric.launch()
    for thread in threading.enumerate():
        if thread.name == OBSERVER:
            vars(thread)["_child_processes"] = []
    return fabric


@contextlib.contextmanager
def _meeting() -> Iterator[None]:
    """While processes start one another and meet, the loss of one ends all: they would wait for it
    for half an hour.
    """
    starter, met = os.environ.setdefault(STARTED_BY, str(os.getpid())), threading.Event()
    starts = starter == str(os.getpid())

    def watch() -> None:
        while not met.wait(0.2):
            if PRESSED.is_set():
                code = INTERRUPTED[0]
            elif starts:
                code = _code_of_lost()
            else:
                code = int(str(os.getppid()) != starter)
            if starts and code not in (0, *INTERRUPTED):
                print(LOST, file=sys.stderr, flush=True)
            if code:
                os._exit(130 if code in INTERRUPTED else 1)  # this thread is not the one that waits

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        met.set()
        del os.environ[STARTED_BY]


def _code_of_lost() -> int:
    """Of a process that this one started and that has ended by an error or by Ctrl-C; 0 where there
    is none.
    """
    started = [
        child
        for thread in threading.enumerate()
        if thread.name == OBSERVER
        for child in vars(thread)["_child_processes"]
    ]
    return next((code for child in started if (code := child.poll())), 0)


class Leader(NamedTuple):
    """Where process rank 0 is."""

    machine: str
    pid: int

    def here(self) -> bool:
        """Whether it is on this machine."""
        return self.machine == platform.node()

    def gone(self) -> bool:
        """Whether it ended; connections of one that is ending break a little before it has."""
        until = time.monotonic() + ENDING
        while not self._ended() and time.monotonic() < until:
            time.sleep(0.05)
        return self._ended()

    def _ended(self) -> bool:
        """As far as its own machine shows; a zombie, whose exit code is not yet collected, has
        ended too.
        """
        try:
            os.kill(self.pid, 0)
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except ProcessLookupError:
            return True
        except OSError:  # it is another user's, or the system has no such files
            return False


@contextlib.contextmanager
def _leading() -> Iterator[None]:
    """Process rank 0: on an error it closes its connections, and stays until the others have read
    the reason.
    """
    import torch.distributed as dist

    from partita.errors import PartitaError
    from partita.runtime.processes import PATIENCE, LostProcess

    try:
        yield
    except LostProcess:
        raise
    except (PartitaError, OSError):
        # holds the reason; kept open by this reference
        store = dist.distributed_c10d._get_default_store()
        with contextlib.suppress(RuntimeError, ValueError):
            dist.destroy_process_group()
        time.sleep(PATIENCE)
        del store
        raise


@contextlib.contextmanager
def _silent(leader: Leader, first: bool) -> Iterator[None]:
    """Another process: it prints nothing, for rank 0 prints the same; an error of its own it passes
    on to rank 0.

    Where rank 0 itself is lost, the others report it; on another machine only the ``first`` does.
    """
    from partita.errors import PartitaError
    from partita.runtime.processes import LostProcess

    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        try:
            yield
        except LostProcess as error:
            alone = leader.gone() if leader.here() else first
            if alone and not error.why:
                raise
            raise typer.Exit(0) from None
        except (PartitaError, OSError, typer.Exit, KeyboardInterrupt):
            raise typer.Exit(0) from None
