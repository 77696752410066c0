"""RBM with 16 hidden units on MNIST cut at 0.5: exact test log-likelihood within 40 seconds, beside
scikit-learn's BernoulliRBM.
"""

import time

import torch
from sklearn.neural_network import BernoulliRBM

import partita
from harness import show
from partita.datasets import load
from partita.models import RBM
from partita.objectives import PCD

DATA = "mnist"


def run() -> None:
    """Print the exact log-likelihoods and the seconds."""
    data = load("mnist", binarize=0.5)
    test = data.test.tensor()
    g = torch.Generator().manual_seed(0)
    started = time.perf_counter()
    model = RBM(784, 16, generator=g)
    run = partita.fit(model, data.train, PCD(), minutes=30 / 60, generator=g)
    spent = time.perf_counter() - started
    q = partita.evaluate(model, test, generator=g)
    show(
        "partita, 16 hidden units",
        test_nats=q.value,
        kind=q.kind,
        seconds=spent,
        steps=run.steps,
        target="at least -139.5 within 40 s",
    )

    started = time.perf_counter()
    peer = BernoulliRBM(16, random_state=0).fit(data.train.tensor().numpy())
    spent = time.perf_counter() - started
    with torch.no_grad():
        model.W.copy_(torch.tensor(peer.components_.T))
        model.b.copy_(torch.tensor(peer.intercept_visible_))
        model.c.copy_(torch.tensor(peer.intercept_hidden_))
    q = partita.evaluate(model, test, generator=g)
    show("scikit-learn, defaults", test_nats=q.value, kind=q.kind, seconds=spent)


if __name__ == "__main__":
    run()
