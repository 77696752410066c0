"""Rounding of energies is in the interval, or computed away; half precision is evaluated."""

import pytest
import torch

from partita.core.quantity import Quantity
from partita.core.support import Real
from partita.evaluators import AIS, Bridge, Enumeration, Quadrature
from partita.evaluators.partition.difference import Between
from partita.evaluators.partition.rounding import precise, reach_to_rounding
from partita.models import RBM, NeuralEnergy
from partita.nets import MLP


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rbm(bias: float, visible: int = 40) -> RBM:
    model = RBM(visible, 8, scale=1.0, generator=seeded(0))
    with torch.no_grad():
        model.b.normal_(generator=seeded(2))
        model.c.normal_(generator=seeded(3))
        model.b[0] = bias
    return model


@pytest.mark.parametrize("evaluate", [AIS(300, 64), Bridge(12, 16, 100, 50)])
@pytest.mark.parametrize("bias", [1e6, 1e7])
def test_a_large_bias_in_float32_costs_no_digit(evaluate: AIS, bias: float) -> None:
    model = rbm(bias)
    q, truth = evaluate(model, generator=seeded(0)), Enumeration()(model).value
    assert q.trusted and q.low <= truth <= q.high and q.width < 0.5


def test_only_large_energies_and_half_precision_take_the_time_of_float64() -> None:
    assert precise(rbm(1.0)).like.dtype == torch.float32
    assert precise(RBM(784, 500, generator=seeded(0))).like.dtype == torch.float32
    assert precise(rbm(1e6)).like.dtype == torch.float64
    assert precise(rbm(1.0).bfloat16()).like.dtype == torch.float64
    both = precise(Between(rbm(1.0), rbm(1e6)))
    assert isinstance(both, Between) and both.first.like.dtype == both.last.like.dtype
    assert both.last.like.dtype == torch.float64


def test_what_float64_rounds_widens_the_interval_and_lowers_the_verdict() -> None:
    q = Quantity(0.0, -0.1, 0.1, level=0.95, kind="estimate")
    assert reach_to_rounding(q, rbm(1e6).double()) == q
    some, much = (reach_to_rounding(q, rbm(bias).double()) for bias in (1e14, 1e15))
    assert some.verdict == "tight" and 0.1 < some.high - 0.1 < 0.3 and some.low == -some.high
    assert much.verdict == "do not publish" and much.high > 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("evaluate", [AIS(100, 64), Bridge(8, 8, 50, 20)])
def test_half_precision_is_scored(evaluate: AIS, dtype: torch.dtype) -> None:
    model = NeuralEnergy(MLP(2, 1, generator=seeded(0)).to(dtype), Real(2))
    q, truth = evaluate(model, generator=seeded(0)), Quadrature()(model).value
    assert abs(q.value - truth) < 0.05
