"""Gibbs on a 64 x 64 Ising torus with 64 chains, spin updates a second, beside the same sweep in
NumPy arithmetic on whole sublattices.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from harness import show, side_by_side
from partita.models import Ising, torus
from partita.samplers import Gibbs

QUICK = True
SIDE, CHAINS, COUPLING, SWEEPS = 64, 64, 0.4, 10


def run() -> None:
    """Print the rate by the clock and by processor time, and the ratio to the bare arithmetic."""
    g = torch.Generator().manual_seed(0)
    model = Ising(SIDE * SIDE, edges=torus(SIDE, SIDE), couplings=COUPLING, generator=g)
    x = model.reference().draw(CHAINS, generator=g)
    updates = CHAINS * SIDE * SIDE * SWEEPS
    plain = checkerboard(CHAINS)
    for order in ("random", "sequential", "colors"):
        sampler = Gibbs(SWEEPS, order)
        state = sampler.init(model, x, generator=g)
        own, other, ratio = side_by_side(
            lambda s=state, k=sampler: k.step(model, s, generator=g), plain, rounds=15
        )
        started = time.process_time()
        for _ in range(5):
            sampler.step(model, state, generator=g)
        busy = (time.process_time() - started) / 5
        show(
            f"{order} order",
            updates_a_second=updates / own,
            by_processor_time=updates / busy,
            numpy_checkerboard=updates / other,
            times_faster=1 / ratio,
            target="at least 1e8 on two cores",
        )


def checkerboard(chains: int) -> Callable[[], None]:
    """Ten sweeps in whole-array arithmetic: sums of rolled lattices, one comparison for each
    color.
    """
    rng = np.random.default_rng(0)
    x = rng.choice(np.array([-1, 1], np.float32), (chains, SIDE, SIDE))
    black = (np.indices((SIDE, SIDE)).sum(0) % 2).astype(bool)

    def sweeps() -> None:
        nonlocal x
        for _ in range(SWEEPS):
            for mask in (black, ~black):
                near = np.roll(x, 1, 1) + np.roll(x, -1, 1) + np.roll(x, 1, 2) + np.roll(x, -1, 2)
                up = rng.random(x.shape, dtype=np.float32) < 1 / (
                    1 + np.exp(np.float32(-2 * COUPLING) * near)
                )
                x = np.where(mask, np.where(up, np.float32(1), np.float32(-1)), x)

    return sweeps


if __name__ == "__main__":
    run()
