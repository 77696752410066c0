"""One PCD-1 update of a 784 x 500 RBM against the six matrix products it needs, and an epoch
against scikit-learn's BernoulliRBM.
"""

from collections.abc import Callable

import torch
from sklearn.neural_network import BernoulliRBM

import partita
from harness import mnist_like, show, side_by_side
from partita.models import RBM
from partita.objectives import PCD
from partita.samplers import Gibbs
from partita.tables import as_rows
from partita.training.session import start_session
from partita.training.settings import Settings

QUICK = True
VISIBLE, HIDDEN, BATCH = 784, 500, 500
EPOCHS = 4


def six_products(generator: torch.Generator) -> Callable[[], None]:
    """The products by themselves, each on its own operands and into memory that is already
    there.
    """
    W = torch.randn(VISIBLE, HIDDEN, generator=generator)
    data, chains, moved = (mnist_like(BATCH, generator) for _ in range(3))
    h_data, h_chains, h_moved = (torch.rand(BATCH, HIDDEN, generator=generator) for _ in range(3))
    visible = torch.empty(BATCH, VISIBLE)
    up = torch.empty(VISIBLE, HIDDEN)
    down = torch.empty(VISIBLE, HIDDEN)

    def run() -> None:
        torch.mm(data, W, out=h_data)  # hidden given data
        torch.mm(chains, W, out=h_chains)  # hidden given chains
        torch.mm(h_chains, W.T, out=visible)  # visible given hidden
        torch.mm(moved, W, out=h_moved)  # hidden given new chains
        torch.mm(data.T, h_data, out=up)
        torch.mm(moved.T, h_moved, out=down)

    return run


def run() -> None:
    """Print both ratios."""
    g = torch.Generator().manual_seed(0)
    data = mnist_like(20_000, g)
    session = start_session(
        RBM(VISIBLE, HIDDEN, generator=g),
        as_rows(data),
        PCD(Gibbs(), chains=BATCH),
        Settings(steps=10_000, batch_size=BATCH),
        generator=g,
    )
    own, bare, ratio = side_by_side(session.advance, six_products(g), rounds=200)
    name = "PCD-1 update, 784 x 500, batch 500, 500 chains"
    show(name, milliseconds=1e3 * own, six_products=1e3 * bare, ratio=ratio, target="at most 1.35")

    model = RBM(VISIBLE, HIDDEN, generator=g)
    peer = BernoulliRBM(HIDDEN, batch_size=BATCH, n_iter=EPOCHS, random_state=0)
    array = data.numpy()
    own, other, ratio = side_by_side(
        lambda: partita.fit(
            model, data, PCD(Gibbs(), chains=BATCH), epochs=EPOCHS, batch_size=BATCH, generator=g
        ),
        lambda: peer.fit(array),
        rounds=3,
        warm_up=1,
    )
    show(
        f"{EPOCHS} epochs of 20,000 rows",
        partita_seconds=own,
        scikit_learn=other,
        times_faster=1 / ratio,
        target="at least 1.5",
    )


if __name__ == "__main__":
    run()
