"""Two processes on two cores against one process on one core: updates of an RBM and of a VAE, and
an annealing; same work in all.

Each is timed in processes of its own, one thread each, in turn, the least of many short looks, for
two processes that wait for one another suffer from whatever slows either; the exchange of gradients
is part of it. Beside it stand two processes that each do half the work and exchange nothing: what
the machine itself allows.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from harness import show

QUICK = True
TARGETS = {"rbm": 1.55, "vae": 1.55, "ais": 1.8}
WORK = {
    "rbm": "784 x 500, batch 1000, PCD with 1000 chains",
    "vae": "784, latent 50, batch 1000",
    "ais": "784 x 500, 128 chains, 1000 temperatures",
}
STEPS = 4  # updates of a look
LOOKS = {"rbm": 80, "vae": 80, "ais": 8}


def run() -> None:
    """Print the ratio of seconds for each."""
    for kind, target in TARGETS.items():
        one, two, apart = (
            min(_timed(kind, *how) for _ in range(2)) for how in ((1, 1), (2, 1), (1, 2))
        )
        figures = {
            "one_process_ms": 1e3 * one,
            "two_processes_ms": 1e3 * two,
            "times_as_fast": one / two,
        }
        show(
            f"{kind}, {WORK[kind]}",
            **figures,
            times_as_fast_without_exchange=one / apart,
            target=f"at least {target}",
        )


def _timed(kind: str, together: int, parts: int = 1) -> float:
    """The seconds of so many processes that work together, once for each of the parts that the work
    is cut into.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free.getsockname()[1]),
            "NODE_RANK": "0",
            "OMP_NUM_THREADS": "1",
        }
    command = [sys.executable, __file__, kind, str(together), str(parts)]
    piped: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    ranks = [rank for _ in range(parts) for rank in range(together)]
    running = [
        subprocess.Popen(command, env={**os.environ, **meeting, "LOCAL_RANK": str(rank)}, **piped)
        for rank in ranks
    ]
    said = [process.communicate()[0] for process in running]
    return max(float(words.split()[-1]) for words in said if words)


def worker(kind: str, processes: int, parts: int) -> None:
    """One of the processes, which does one of some parts of the work: the seconds of one update, or
    of one annealing.
    """
    from lightning_fabric import Fabric

    from partita.runtime import processes as together

    torch.set_num_threads(1)
    fabric = Fabric(
        accelerator="cpu", devices=processes, strategy="ddp" if processes > 1 else "auto"
    )
    fabric.launch()
    with together.together(fabric):
        once = {"rbm": _rbm, "vae": _vae, "ais": _ais}[kind](fabric, parts)
        once()
        seconds = []
        for _ in range(LOOKS[kind]):
            started = time.perf_counter()
            count = once()
            seconds.append((time.perf_counter() - started) / count)
    if fabric.is_global_zero:
        print(min(seconds))


def _rbm(fabric: Any, parts: int) -> Callable[[], int]:
    from partita.models import RBM
    from partita.objectives import PCD

    return _updates(lambda g: RBM(784, 500, generator=g), PCD(chains=1000 // parts), fabric, parts)


def _vae(fabric: Any, parts: int) -> Callable[[], int]:
    from partita.models import VAE
    from partita.objectives import ELBO

    return _updates(lambda g: VAE(784, 50, generator=g), ELBO(), fabric, parts)


def _updates(make: Any, objective: Any, fabric: Any, parts: int) -> Callable[[], int]:
    from partita.tables import as_rows
    from partita.training import Settings
    from partita.training.session import start_session

    g = torch.Generator().manual_seed(0)
    x = (torch.rand(4000, 784, generator=g) < 0.2).float()
    settings = Settings(
        steps=10_000, batch_size=1000 // parts, optimizer="adam", learning_rate=1e-4
    )
    session = start_session(make(g), as_rows(x), objective, settings, fabric=fabric, generator=g)

    def once() -> int:
        for _ in range(STEPS):
            session.advance()
        return STEPS

    return once


def _ais(fabric: Any, parts: int) -> Callable[[], int]:
    from partita.evaluators import AIS
    from partita.models import RBM

    model = RBM(784, 500, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.W.normal_(0, 0.05, generator=torch.Generator().manual_seed(1))

    def once() -> int:
        AIS(1000, chains=128 // parts, adaptive=False)(
            model, generator=torch.Generator().manual_seed(2)
        )
        return 1

    return once


if __name__ == "__main__":
    if len(sys.argv) > 1:
        worker(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        run()
