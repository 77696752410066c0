"""``--devices`` and ``--nodes``: the processes of one command, started here or by torchrun; only
process rank 0 prints.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING

import typer

from partita.cli import INTERRUPTED as PRESSED

if TYPE_CHECKING:
    from lightning_fabric import Fabric

ENDING = 3.0  # seconds that a process which was killed may take to end
LOST = (
    "Error: a process of several was lost before all had started; nothing was begun. Free some "
    "memory, or ask for fewer --devices."
)
# exit codes of Ctrl-C, which reaches all processes of a terminal; the first of them reports it
INTERRUPTED = {130, -signal.SIGINT}
# environment variable of a process that the first of its machine started; its standard input is a
# pipe, which ends with that one
STARTED = "PARTITA_STARTED"


@contextlib.contextmanager
def launched(devices: int | None, nodes: int, strategy: str) -> "Iterator[Fabric | None]":
    """The Fabric whose processes share the work inside the block; None where there is one
    process.
    """
    by_torchrun = "LOCAL_WORLD_SIZE" in os.environ
    here = int(os.environ["LOCAL_WORLD_SIZE"]) if by_torchrun else devices or 1
    machines = int(os.environ["WORLD_SIZE"]) // here if by_torchrun else nodes
    several = here * machines > 1
    if several:
        # read on import: torch would print stack traces beside our own sentence about the loss
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from partita.core.arguments import check_choice
    from partita.runtime import processes

    check_choice("fit", "--strategy", strategy, ("ddp",))
    if not several:
        yield None
        return
    children = [] if by_torchrun or STARTED in os.environ else _start_others(here)
    alone = _first_ended()
    fabric = _meet(here, machines, strategy, children, alone)
    with (
        _leading() if fabric.is_global_zero else _silent(fabric, alone),
        processes.together(fabric),
    ):
        yield fabric


def _start_others(devices: int) -> list[Popen[bytes]]:
    """The other processes of this machine, with the variables by which Fabric knows that it is
    not to start any.
    """
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(LightningEnvironment().main_port))
    os.environ["LOCAL_RANK"] = "0"
    module = sys.modules["__main__"].__spec__
    program = [os.path.abspath(sys.argv[0])] if module is None else ["-m", module.name]
    command = [sys.executable, *program, *sys.argv[1:]]
    return [
        Popen(command, env={**os.environ, "LOCAL_RANK": str(rank), STARTED: "1"}, stdin=PIPE)
        for rank in range(1, devices)
    ]


def _first_ended() -> threading.Event:
    """Set as soon as the process that started this one has ended, in whatever way."""
    ended = threading.Event()

    def wait() -> None:
        os.read(0, 1)
        ended.set()

    if STARTED in os.environ:
        threading.Thread(target=wait, daemon=True).start()
    return ended


def _meet(
    devices: int,
    nodes: int,
    strategy: str,
    children: Sequence[Popen[bytes]],
    alone: threading.Event,
) -> "Fabric":
    """The Fabric, once all processes have met; the loss of one before that ends all, for they would
    wait for it for half an hour.
    """
    met = threading.Event()

    def watch() -> None:
        while not met.wait(0.2):
            codes = {child.poll() for child in children} - {None, 0}
            if PRESSED.is_set() or codes & INTERRUPTED:
                os._exit(130)  # this thread is not the one that waits
            if codes:
                print(LOST, file=sys.stderr, flush=True)
            if codes or alone.is_set():
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    from lightning_fabric import Fabric

    for name in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        fabric = Fabric(accelerator="cpu", devices=devices, num_nodes=nodes, strategy=strategy)
        fabric.launch()
    finally:
        met.set()
    return fabric


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
def _silent(fabric: "Fabric", alone: threading.Event) -> Iterator[None]:
    """Another process: it prints nothing, for rank 0 prints the same; an error of its own it passes
    on to rank 0.

    Where rank 0 itself is lost, those that it started report it; on another machine only the first
    does.
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
            reports = fabric.local_rank == 0 if fabric.node_rank else alone.wait(ENDING)
            if reports and not error.why:
                raise
            raise typer.Exit(0) from None
        except (PartitaError, OSError, typer.Exit, KeyboardInterrupt):
            raise typer.Exit(0) from None
