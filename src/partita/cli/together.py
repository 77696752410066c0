"""``--devices`` and ``--nodes``: the processes of one command, started by Fabric or by torchrun; only the one that leads speaks."""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import typer

OBSERVER = "child-process-observer"  # Fabric's kills all when one is lost; once all have met, connections tell, and the leader says so

Devices = Annotated[int | None, typer.Option(help="Processes on this machine that work together.", min=1)]
Nodes = Annotated[int, typer.Option(help="Machines: run the command on each, with MASTER_ADDR, MASTER_PORT and NODE_RANK set.", min=1)]
Strategy = Annotated[str, typer.Option(help="How processes work together; ddp gives each its share of every batch and of the chains.")]


@contextlib.contextmanager
def launched(devices: int | None, nodes: int, strategy: str) -> Iterator[Any]:
    """The Fabric whose processes share the work inside the block; None where there is one process."""
    from partita.core import processes
    from partita.core.checks import check_choice

    check_choice("fit", "--strategy", strategy, ("ddp",))
    by_torchrun = "LOCAL_WORLD_SIZE" in os.environ
    here = int(os.environ["LOCAL_WORLD_SIZE"]) if by_torchrun else devices or 1
    machines = int(os.environ["WORLD_SIZE"]) // here if by_torchrun else nodes
    if here * machines == 1:
        yield None
        return
    fabric = _start(here, machines, strategy)
    with contextlib.nullcontext() if fabric.is_global_zero else _silent(), processes.together(fabric):
        yield fabric


def _start(devices: int, nodes: int, strategy: str) -> Any:
    from lightning_fabric import Fabric

    for name in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    fabric = Fabric(accelerator="cpu", devices=devices, num_nodes=nodes, strategy=strategy)
    fabric.launch()
    for thread in threading.enumerate():
        if thread.name == OBSERVER:
            vars(thread)["_child_processes"] = []
    return fabric


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """A process that follows: what it would say the leader says; an error that only this one meets it leaves word of."""
    from partita.core.errors import PartitaError
    from partita.core.processes import LostProcess

    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        try:
            yield
        except LostProcess as error:
            if not error.why:
                raise
            raise typer.Exit(0) from None
        except (PartitaError, OSError, typer.Exit):
            raise typer.Exit(0) from None
