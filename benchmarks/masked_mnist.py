"""A masked autoregressive network on binarized MNIST: exact test log-likelihood after fifteen
minutes.
"""

import sys
import time

import torch

import partita
from harness import show
from partita.datasets import load
from partita.models import MaskedAutoregressive

DATA = "binarized_mnist"
MINUTES, HIDDEN = 15.0, 1000


def run(minutes: float = MINUTES) -> None:
    """Fit with validation, score the 10,000 test images."""
    g = torch.Generator().manual_seed(0)
    data = load(DATA)
    model = MaskedAutoregressive(784, widths=(HIDDEN,), generator=g)
    started = time.perf_counter()
    fitted = partita.fit(
        model, data.train, minutes=minutes, validation=data.valid, batch_size=100, generator=g
    )
    spent = time.perf_counter() - started
    q = partita.evaluate(model, data.test, generator=g)
    show(
        "test log-likelihood",
        nats=q.value,
        kind=q.kind,
        se=q.se_data,
        minutes=spent / 60,
        steps=fitted.steps,
    )
    show("target", at_least=-92.0, reached=q.value >= -92.0)


if __name__ == "__main__":
    run(float(sys.argv[1]) if len(sys.argv) > 1 else MINUTES)
