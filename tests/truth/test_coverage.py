"""Intervals for log Z cover the enumerated truth over 200 random RBMs, strong and multimodal ones included.

With true coverage 0.95 a count below 180 of 200 has probability 1e-3; the bound is scaled to the number of trusted values.
"""

from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch
from scipy.stats import binom

import partita
from partita.core.protocols import EnergyModel
from partita.core.quantity import Quantity
from partita.evaluators import AIS, Bridge, Enumeration, ReverseAIS, Sandwich
from partita.models import RBM
from partita.objectives import ExactLikelihood

MODELS = 200
FALSE_ALARM = 1e-3
SCALES = (0.1, 0.5, 1.0, 2.0, 4.0)

EVALUATORS: dict[str, Callable[..., Quantity]] = {
    "AIS": AIS(),
    "ReverseAIS": ReverseAIS(temperatures=300),
    "Sandwich": Sandwich(),
    "Bridge": Bridge(temperatures=12, chains=16, draws=150, burn_in=50),
}


def random_rbms(seed: int) -> Iterator[RBM]:
    """Up to 60 visible and 14 hidden units; every fourth is symmetric under flipping all spins, so it has mirror modes."""
    g = torch.Generator().manual_seed(seed)

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=g))

    for i in range(MODELS):
        visible = integer(4, 20) if i % 2 else integer(4, 60)
        model = RBM(visible, integer(2, 14), scale=SCALES[i % len(SCALES)], generator=g).double()
        with torch.no_grad():
            if i % 4 == 0:
                model.b.copy_(-model.W.sum(1) / 2)
                model.c.copy_(-model.W.sum(0) / 2)
            else:
                model.b.normal_(generator=g)
                model.c.normal_(generator=g)
        yield model


def log_z(model: EnergyModel) -> float:
    return Enumeration()(model).value


@pytest.mark.parametrize("name", EVALUATORS)
def test_trusted_intervals_cover(name: str) -> None:
    evaluate, g = EVALUATORS[name], torch.Generator().manual_seed(1)
    trusted = covered = 0
    worst = 0.0
    for model in random_rbms(seed=0):
        q, truth = evaluate(model, generator=g), log_z(model)
        if q.trusted:
            trusted += 1
            covered += q.low <= truth <= q.high
            worst = max(worst, abs(q.value - truth) / (0.5 * q.width))
    assert trusted >= 0.8 * MODELS, "a shrug is a failure"
    assert covered >= binom.ppf(FALSE_ALARM, trusted, 0.95)
    assert covered >= 0.9 * trusted
    assert worst < 5, "a confident wrong number is a failure"


@pytest.mark.parametrize("evaluate", [Sandwich(), Bridge(chains=16, draws=100, burn_in=100)], ids=["Sandwich", "Bridge"])
def test_two_clusters_of_unequal_size_are_both_counted(evaluate: Callable[..., Quantity]) -> None:
    """Forward annealing can drop the smaller cluster at the transition; the training rows that the model remembers bring it back.

    Six models: three or more misses have probability 2e-3 at true coverage 0.95.
    """
    missed = 0
    for columns, share in product((40, 64), (0.1, 0.2, 0.4)):
        model = two_clusters(columns, share, torch.Generator().manual_seed(1))
        q, truth = evaluate(model, generator=torch.Generator().manual_seed(2)), log_z(model)
        missed += q.trusted and not q.low <= truth <= q.high
        assert abs(q.value - truth) < 5 * 0.5 * q.width
    assert missed <= 2


def two_clusters(columns: int, share: float, g: torch.Generator) -> RBM:
    """An RBM fitted to a pattern and, for a share of the rows, its negative, both with 5 % of the pixels flipped."""
    pattern = (torch.rand(columns, generator=g) < 0.5).float()
    x = (pattern + (torch.rand(1000, 1, generator=g) < share).float()) % 2
    x = torch.where(torch.rand(x.shape, generator=g) < 0.05, 1 - x, x)
    model = RBM(columns, 8, generator=g)
    partita.fit(model, x, ExactLikelihood(), epochs=15, l2=1e-3, generator=g)
    return model
