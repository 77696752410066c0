"""Pairwise maximum entropy for 15 neurons by exact likelihood and for 50 by PCD, beside the figures
of the maxent toolbox.
"""

import math
import time

import numpy as np
import torch

import partita
from harness import show
from partita.core.enumeration import probabilities
from partita.core.support import Binary
from partita.datasets import load
from partita.models import Boltzmann, MaxEnt
from partita.objectives import PCD, ExactLikelihood

DATA = "spikes_maxent"


def run() -> None:
    """Print entropies and KL in bits: toolbox, k-pairwise, 15 cells: KL 0.098, model entropy 6.464,
    empirical 6.384.
    """
    fifteen("pairwise")
    fifteen("k-pairwise")
    fifty()


def halves(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Random halves to learn from and to test on."""
    data = load(f"spikes_maxent/spikes_maxent:{name}")
    assert data.test is not None
    x = torch.cat([data.train.tensor(), data.test.tensor()])
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return x[order[: len(x) // 2]], x[order[len(x) // 2 :]]


def empirical_entropy(x: torch.Tensor) -> tuple[np.ndarray, float]:
    """Frequencies of all patterns, and their entropy in bits."""
    code = (x.long() * 2 ** torch.arange(x.shape[1] - 1, -1, -1)).sum(1)
    p = np.unique(code.numpy(), return_counts=True)[1] / len(x)
    return code.numpy(), float(-(p * np.log2(p)).sum())


def fifteen(features: str) -> None:
    train, test = halves("spikes15")
    g = torch.Generator().manual_seed(0)
    model = MaxEnt(features, Binary(15), generator=g)
    started = time.perf_counter()
    run = partita.fit(model, train, ExactLikelihood(), l2=1e-5, generator=g)
    spent = time.perf_counter() - started
    with torch.no_grad():
        p = probabilities(model.sides()[0], model.like).double().numpy()
    entropy = float(-(p * np.log2(p)).sum())
    code, empirical = empirical_entropy(test)
    counts = np.bincount(code, minlength=2**15) / len(test)
    kl = float((counts[counts > 0] * np.log2(counts[counts > 0] / p[counts > 0])).sum())
    show(
        f"15 cells, {features}",
        seconds=spent,
        steps=run.steps,
        stopped=run.stopped,
        model_entropy_bits=entropy,
        empirical_bits=empirical,
        kl_test_to_model_bits=kl,
        toolbox="entropy 6.464, empirical 6.384, KL 0.098",
    )


def fifty() -> None:
    train, test = halves("spikes50")
    g = torch.Generator().manual_seed(0)
    model = Boltzmann(50, generator=g)
    started = time.perf_counter()
    run = partita.fit(model, train, PCD(chains=1000), steps=1500, l2=1e-5, generator=g)
    spent = time.perf_counter() - started
    q = partita.evaluate(model, test, generator=g)
    _, empirical = empirical_entropy(test[:, :50])
    bits = -1 / math.log(2)
    show(
        "50 cells, pairwise by PCD",
        seconds=spent,
        steps=run.steps,
        cross_entropy_test_bits=bits * q.value,
        low=bits * q.high,
        high=bits * q.low,
        verdict=q.verdict,
        empirical_bits=empirical,
        toolbox="model entropy 17.527, empirical 11.978",
    )


if __name__ == "__main__":
    run()
