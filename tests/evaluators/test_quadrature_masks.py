"""Energies that are written with masks: truths as numbers."""

import math
from collections.abc import Callable

import pytest
import torch
from scipy.special import ndtr
from tests.truth.hard_models import Density
from torch import Tensor

from partita.core.support import Real
from partita.evaluators import Quadrature
from partita.models import NeuralEnergy

MASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "to": lambda x: 3 * (x[..., 0] < 1).to(x),
    "float": lambda x: 3 * (x[..., 0] < 1).float(),
    "bare": lambda x: 3.0 * (x[..., 0] < 1),
    "summed": lambda x: 3 * (x < 1).sum(-1),
    "heaviside": lambda x: 3 * torch.heaviside(1 - x[..., 0], x.new_zeros(())),
}


@pytest.mark.parametrize("mask", MASKS)
def test_a_step_is_integrated_however_it_is_written(mask: str) -> None:
    model = NeuralEnergy(Density(lambda x: 0.5 * x.square().sum(-1) + MASKS[mask](x)), Real(1))
    q = Quadrature()(model)
    below = float(ndtr(1.0))
    truth = 0.5 * math.log(2 * math.pi) + math.log(below * math.exp(-3) + 1 - below)
    assert q.low <= truth <= q.high or not q.trusted
    assert abs(q.value - truth) < 1e-5
