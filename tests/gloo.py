"""Two processes on this machine that talk by gloo, for tests: a script that leaves what it found in
a folder.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]


def in_two(script: str | None, folder: Path) -> list[dict[str, Any]]:
    """What each of the two wrote into ``rank-N.pt`` of the folder; the script is given its path."""
    address = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": "2",
        "NODE_RANK": "0",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, str(script), str(folder)]
    piped: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    running = [
        subprocess.Popen(
            command, env={**os.environ, **address, "LOCAL_RANK": rank}, text=True, **piped
        )
        for rank in "01"
    ]
    said = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], "\n".join(said)
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=False) for rank in (0, 1)]


def one_of_two(work: Callable[[Path, Any], dict[str, Any]]) -> None:
    """The script's part: what ``work`` makes of the folder and of the Fabric that joins the two is
    left there.
    """
    from lightning_fabric import Fabric

    torch.set_num_threads(1)
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    folder = Path(sys.argv[1])
    torch.save(work(folder, fabric), folder / f"rank-{fabric.global_rank}.pt")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
