"""Langevin, MALA and HMC steps per second against torchebm on the same network energy and number of
chains.

torchebm lives in an environment of its own: set ``TORCHEBM_PYTHON`` to its interpreter. It runs in
a process beside this one that waits while partita is timed, and the two take turns. Its Hamiltonian
Monte Carlo with one leapfrog step stands for MALA, which it is.
"""

import os
import subprocess
import sys
from statistics import median

import torch

from harness import leave_out, seconds, show
from partita.core.support import Real
from partita.models import NeuralEnergy
from partita.nets import MLP
from partita.samplers import HMC, MALA, Langevin

STEPS, ROUNDS = 100, 12
SIZES = ((2, 256), (2, 4096), (32, 1024))  # coordinates, chains

PEER = """
import sys, time, torch
from torch import nn
from torchebm.core import BaseModel
from torchebm.samplers import HamiltonianMonteCarlo, LangevinDynamics
torch.set_num_threads(int(sys.argv[1]))
class Energy(BaseModel):
    def __init__(self, width):
        super().__init__()
        layers = [nn.Linear(width, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)]
        self.net = nn.Sequential(*layers)
    def forward(self, x):
        return self.net(x)[:, 0] + 0.5 * x.square().sum(-1)
for line in sys.stdin:
    name, width, chains, steps = line.split()
    width, chains, steps = int(width), int(chains), int(steps)
    torch.manual_seed(0)
    model, x = Energy(width), torch.randn(chains, width)
    leapfrogs = {"MALA": 1, "HMC": 10}.get(name)
    if leapfrogs:
        sampler = HamiltonianMonteCarlo(model, step_size=0.1, n_leapfrog_steps=leapfrogs)
    else:
        sampler = LangevinDynamics(model, step_size=0.05)
    started = time.perf_counter()
    sampler.sample(x=x, n_steps=steps, n_samples=chains)
    print(time.perf_counter() - started, flush=True)
"""


def run() -> None:
    """Print steps per second of both and their ratio."""
    python = os.environ.get("TORCHEBM_PYTHON")
    if python is None:
        leave_out(
            "torchebm", "set TORCHEBM_PYTHON to the interpreter of an environment that has it"
        )
        return
    command = [python, "-W", "ignore", "-c", PEER, str(torch.get_num_threads())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as peer:
        for width, chains in SIZES:
            for sampler, steps in (
                (Langevin(0.05), STEPS),
                (MALA(0.3), STEPS),
                (HMC(0.1, leapfrogs=10), STEPS // 10),
            ):
                _compare(peer, type(sampler).__name__, sampler, width, chains, steps)
        assert peer.stdin is not None
        peer.stdin.close()


def _compare(
    peer: subprocess.Popen,
    name: str,
    sampler: Langevin | MALA | HMC,
    width: int,
    chains: int,
    steps: int,
) -> None:
    g = torch.Generator().manual_seed(0)
    model = NeuralEnergy(MLP(width, 1, generator=g), Real(width))
    x = torch.randn(chains, width, generator=g)
    pairs = [
        (
            seconds(lambda: _own(model, sampler, x, steps, g)),
            _other(peer, name, width, chains, steps),
        )
        for _ in range(ROUNDS)
    ][2:]
    ratio = median(other / own for own, other in pairs)
    own, other = (steps / median(times) for times in zip(*pairs, strict=True))
    show(
        f"{name}, {width} coordinates, {chains} chains",
        steps_per_second=own,
        torchebm=other,
        times_faster=ratio,
        target="at least 1",
    )


@torch.no_grad()
def _own(
    model: NeuralEnergy,
    sampler: Langevin | MALA | HMC,
    x: torch.Tensor,
    steps: int,
    g: torch.Generator,
) -> None:
    state = sampler.init(model, x, generator=g)
    for _ in range(steps):
        state, _ = sampler.step(model, state, generator=g)  # type: ignore[arg-type]


def _other(peer: subprocess.Popen, name: str, width: int, chains: int, steps: int) -> float:
    assert peer.stdin is not None and peer.stdout is not None
    print(name, width, chains, steps, file=peer.stdin, flush=True)
    line = peer.stdout.readline()
    if not line:
        sys.exit("gradient_samplers: torchebm's process ended; see its error above.")
    return float(line)


if __name__ == "__main__":
    run()
