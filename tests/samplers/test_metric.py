"""Steps in the coordinates of a metric leave their target as it is, and one size serves all."""

import pytest
import torch
from tests.truth.hard_models import Density

from partita.core.support import Real
from partita.models import NeuralEnergy
from partita.samplers import HMC, MALA
from partita.samplers.gradient import Metropolis
from partita.samplers.metric import Metric, metric_between
from partita.samplers.step_size import Schedule

D, CHAINS = 3, 4000
ROOT = torch.tensor([[0.01, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 3.0, 10.0]], dtype=torch.float64)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def slanted() -> NeuralEnergy:
    """A normal distribution with covariance ROOT ROOT', whose scales differ a thousandfold."""
    inverse = torch.linalg.inv(ROOT)
    return NeuralEnergy(
        Density(lambda x: 0.5 * (x @ inverse.mT.to(x)).square().sum(-1)), Real(D)
    ).double()


def learned(seed: int) -> Metric:
    """From slopes at draws of a standard normal and of the target."""
    first, last = (torch.randn(200, D, generator=seeded(seed + i)).double() for i in (0, 1))
    found = metric_between(first, last @ torch.linalg.inv(ROOT))
    assert found is not None
    return found


@pytest.mark.parametrize("kernel", [MALA(warm_up=0), HMC(warm_up=0, leapfrogs=3)])
@pytest.mark.parametrize("columns", [((1.0, 1.0),), ((1.0, 1.0), (0.1, 0.1))])
def test_a_normal_stays_normal(kernel: Metropolis, columns: Schedule) -> None:
    """Whitened coordinates of exact draws keep mean 0 and covariance 1: nine moments within five
    standard errors, a false alarm of 1e-5. Chains move: the mean squared jump is above a tenth.
    """
    model = slanted()
    kernel = type(kernel)(
        **{
            **vars(kernel),
            "schedule": ((0.0, 1.0), *columns),
            "metric": learned(3),
        }
    )
    g = seeded(1)
    u = torch.randn(CHAINS, D, generator=g).double()
    state = kernel.init(model, u @ ROOT.mT, generator=g)
    for _ in range(20):
        state, _ = kernel.step(model, state, generator=g)
    v = state.x @ torch.linalg.inv(ROOT).mT
    square = v.mT @ v / CHAINS - torch.eye(D).double()
    assert float(v.mean(0).abs().max()) < 5 / CHAINS**0.5
    assert float(square.abs().max()) < 5 * (2 / CHAINS) ** 0.5
    assert float((v - u).square().mean(0).min()) > 0.1


def test_a_metric_makes_both_ends_even() -> None:
    """L' G L is one at both ends, and half-way between them."""
    a, b = (torch.randn(500, D, generator=seeded(i)).double() for i in (5, 6))
    b = b @ torch.diag(torch.tensor([100.0, 1.0, 0.1]).double())
    found = metric_between(a, b)
    assert found is not None
    for beta in (0.0, 0.5, 1.0):
        axes, lengths = found.stretch(beta, a)
        mixed = (1 - beta) * a.mT @ a / 500 + beta * b.mT @ b / 500
        even = (axes * lengths).mT @ mixed @ (axes * lengths)
        # a tenth of the steepest slopes is left out of each end
        assert float((even - torch.eye(D).double()).abs().max()) < 0.6


def test_what_bends_evenly_keeps_its_coordinates() -> None:
    a, b = (torch.randn(200, 8, generator=seeded(i)) for i in (7, 8))
    assert metric_between(a, 2 * b) is None
