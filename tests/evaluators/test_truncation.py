"""Energies that are infinite on a part of space."""

import math

import pytest
import torch
from tests.truth.hard_models import Density
from torch import Tensor, nn

from partita.core.support import Binary, Real
from partita.errors import Unsupported
from partita.evaluators import AIS, Bridge, ReverseAIS, Sandwich
from partita.models import NeuralEnergy


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def positive(x: Tensor) -> Tensor:
    return torch.where((x > 0).all(-1), 0.5 * x.square().sum(-1), math.inf)


def box(x: Tensor) -> Tensor:
    return torch.where((x.abs() < 1).all(-1), 0 * x.sum(-1), math.inf)


class AtMost(nn.Module):
    """Rows with more than a number of ones are forbidden."""

    def __init__(self, most: int, cost: float) -> None:
        super().__init__()
        self.most, self.cost = most, nn.Parameter(torch.tensor(cost))

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x.sum(-1) <= self.most, self.cost * x.sum(-1), math.inf)


def test_half_normals_and_boxes_get_their_numbers() -> None:
    for evaluate, energy, width, truth in (
        (ReverseAIS(60, 64), positive, 2, math.log(math.pi / 2)),
        (Bridge(8, 16, 60, 30), box, 3, 3 * math.log(2)),
    ):
        model = NeuralEnergy(Density(energy), Real(width))
        q = evaluate(model, generator=seeded(0))
        assert q.trusted and abs(q.value - truth) < 0.1 and q.width < 0.5


def test_a_sandwich_of_a_half_normal_covers() -> None:
    model = NeuralEnergy(Density(positive), Real(2))
    rows = torch.randn(200, 2, generator=seeded(1)).abs()
    q = Sandwich(100, 64)(model, rows=rows, generator=seeded(0))
    assert q.verdict == "tight" and q.low <= math.log(math.pi / 2) <= q.high


def test_forbidden_states_of_a_finite_support_are_not_counted() -> None:
    model = NeuralEnergy(AtMost(4, 0.3), Binary(12))
    truth = math.log(sum(math.comb(12, k) * math.exp(-0.3 * k) for k in range(5)))
    for seed in range(3):
        q = AIS(40, 64)(model, generator=seeded(seed))
        assert q.trusted and q.low <= truth <= q.high and q.width < 0.2


def test_a_support_that_the_reference_hardly_meets_is_named() -> None:
    far = NeuralEnergy(Density(lambda x: positive(x - 4)), Real(2))
    with pytest.raises(
        Unsupported, match=r"AIS cannot run on NeuralEnergy\(2\): its energy is infinite at 655"
    ):
        AIS()(far, generator=seeded(0))
