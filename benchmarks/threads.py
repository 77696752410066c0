"""One process with the threads that torch takes by default against the same with one thread, in
turn: whether threads wait for each other.

A ratio below 1 is a gain. Small models have nothing to share out, and must lose nothing.
"""

from collections.abc import Callable
from typing import Any

import torch

from harness import show, side_by_side
from partita.models import RBM, VAE
from partita.objectives import ELBO, PCD
from partita.tables import as_rows
from partita.training import Settings
from partita.training.session import start_session

QUICK = True
STEPS = 4  # updates of a call
# model, objective, columns, batch
FITS: dict[str, tuple[Callable[[torch.Generator], Any], Any, int, int]] = {
    "rbm, 784 x 500, batch 1000": (
        lambda g: RBM(784, 500, generator=g),
        PCD(chains=1000),
        784,
        1000,
    ),
    "vae, 784, latent 50, batch 1000": (lambda g: VAE(784, 50, generator=g), ELBO(), 784, 1000),
    "rbm, 64 x 64, batch 128": (lambda g: RBM(64, 64, generator=g), PCD(chains=256), 64, 128),
    "vae, 64, latent 8, batch 128": (lambda g: VAE(64, 8, generator=g), ELBO(), 64, 128),
    "rbm, 16 x 8, batch 32": (lambda g: RBM(16, 8, generator=g), PCD(chains=64), 16, 32),
}


def run() -> None:
    """Print the ratio of seconds for large and small fits."""
    most = torch.get_num_threads()
    for name, fit in FITS.items():
        updates = _updates(*fit)
        own, one, ratio = side_by_side(
            lambda updates=updates: updates(most), lambda updates=updates: updates(1)
        )
        show(name, threads=most, ms=1e3 * own / STEPS, ms_one_thread=1e3 * one / STEPS, ratio=ratio)
    torch.set_num_threads(most)


def _updates(
    make: Callable[[torch.Generator], Any], objective: Any, columns: int, batch: int
) -> Callable[[int], None]:
    g = torch.Generator().manual_seed(0)
    x = (torch.rand(4 * batch, columns, generator=g) < 0.2).float()
    settings = Settings(steps=100_000, batch_size=batch, optimizer="adam", learning_rate=1e-4)
    session = start_session(make(g), as_rows(x), objective, settings, generator=g)

    def updates(threads: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(STEPS):
            session.advance()

    return updates


if __name__ == "__main__":
    run()
