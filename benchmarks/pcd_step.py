"""One PCD-1 update of a 784 x 500 RBM against the six matrix products it needs, and an epoch against scikit-learn's BernoulliRBM."""

import torch
from sklearn.neural_network import BernoulliRBM

import partita
from harness import mnist_like, show, side_by_side
from partita.data import as_rows
from partita.models import RBM
from partita.objectives import PCD
from partita.samplers import Gibbs
from partita.training.loop import start_session
from partita.training.settings import Settings

VISIBLE, HIDDEN, BATCH = 784, 500, 500


def six_products(generator: torch.Generator):
    """Hidden given data, hidden given chains, visible given hidden, hidden given new chains, two outer products."""
    W = torch.randn(VISIBLE, HIDDEN, generator=generator)
    x, h = mnist_like(BATCH, generator), torch.rand(BATCH, HIDDEN, generator=generator)
    hidden, visible, outer = (torch.empty(shape) for shape in ((BATCH, HIDDEN), (BATCH, VISIBLE), (VISIBLE, HIDDEN)))

    def run() -> None:
        for _ in range(3):
            torch.mm(x, W, out=hidden)
        torch.mm(h, W.T, out=visible)
        for _ in range(2):
            torch.mm(x.T, h, out=outer)

    return run


def run() -> None:
    """Print both ratios."""
    g = torch.Generator().manual_seed(0)
    data = mnist_like(20_000, g)
    session = start_session(
        RBM(VISIBLE, HIDDEN, generator=g), as_rows(data), PCD(Gibbs(), chains=BATCH), Settings(steps=10_000, batch_size=BATCH), generator=g
    )
    own, bare, ratio = side_by_side(session.advance, six_products(g), rounds=200)
    name = "PCD-1 update, 784 x 500, batch 500, 500 chains"
    show(name, milliseconds=1e3 * own, six_products=1e3 * bare, ratio=ratio, target="at most 1.35")

    model = RBM(VISIBLE, HIDDEN, generator=g)
    peer = BernoulliRBM(HIDDEN, batch_size=BATCH, n_iter=1, random_state=0)
    array = data.numpy()
    own, other, ratio = side_by_side(
        lambda: partita.fit(model, data, PCD(Gibbs(), chains=BATCH), epochs=1, batch_size=BATCH, generator=g), lambda: peer.fit(array), 5, 1
    )
    show("epoch of 20,000 rows", partita_seconds=own, scikit_learn=other, times_faster=1 / ratio, target="at least 1.5")


if __name__ == "__main__":
    run()
