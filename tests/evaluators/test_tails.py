"""Infinite Z gets no number, slow tails widen the interval, and what is integrable is scored."""

import math
from collections.abc import Callable

import pytest
import torch
from tests.truth.hard_models import FAMILIES, Density, funnel
from torch import Tensor

from partita.core.quantity import Quantity
from partita.core.support import Real
from partita.errors import Diverged
from partita.evaluators import AIS, SMC, Bridge, ReverseAIS, Sandwich
from partita.evaluators.partition.tails import check_integral, log_tail_share, reach_to_tails
from partita.models import RBM, NeuralEnergy

TURN = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(3)))[0]
Energy = Callable[[Tensor], Tensor]


def student(nu: float, width: int) -> Energy:
    return lambda x: 0.5 * (nu + width) * torch.log1p(x.square().sum(-1) / nu)


def walled(inside: Callable[[Tensor], Tensor]) -> Energy:
    return lambda x: torch.where(inside(x), 0.5 * x.square().sum(-1), math.inf)


INFINITE: dict[str, tuple[Energy, int]] = {
    "1 / (1 + |x|)": (lambda x: torch.log1p(x.abs()).sum(-1), 1),
    "slower": (lambda x: 0.7 * torch.log1p(x.abs()).sum(-1), 1),
    "1 / x'x on the plane": (lambda x: torch.log1p(x.square().sum(-1)), 2),
    "one flat coordinate": (lambda x: 0.5 * x[..., :2].square().sum(-1), 3),
    "a flat direction": (lambda x: 0.5 * (x @ TURN.to(x))[..., :2].square().sum(-1), 3),
    "flat on one side": (lambda x: x[..., 0].clamp_max(0).square() + x[..., 1].square(), 2),
    "two of five too slow": (
        lambda x: torch.log1p(x[..., :2].square().sum(-1)) + x[..., 2:].square().sum(-1),
        5,
    ),
}
FINITE: dict[str, tuple[Energy, int]] = {
    "Student, nu = 0.05": (student(0.05, 2), 2),
    "Student, nu = 0.5": (student(0.5, 2), 2),
    "Student in 10": (student(1.0, 10), 10),
    "product of Cauchys": (lambda x: torch.log1p(x.square()).sum(-1), 10),
    "Laplace": (lambda x: x.abs().sum(-1), 3),
    "x'x": (lambda x: x.square().sum(-1), 3),
    "a ridge that narrows": (lambda x: (x[..., 0] ** 4 + 1) * x[..., 1].square(), 2),
    "a box": (walled(lambda x: (x.abs() < 1).all(-1)), 2),
    "a half-space": (walled(lambda x: x[..., 0] > 0), 2),
}


def model_of(energy: Energy, width: int) -> NeuralEnergy:
    return NeuralEnergy(Density(energy), Real(width))


@pytest.mark.parametrize("case", INFINITE)
def test_an_infinite_integral_is_refused(case: str) -> None:
    with pytest.raises(Diverged, match=r"X: exp\(-F\) of .* must fall faster .* Z is infinite"):
        check_integral("X", model_of(*INFINITE[case]))


@pytest.mark.parametrize("evaluate", [AIS(), SMC(), ReverseAIS(), Sandwich(), Bridge()])
def test_every_evaluator_refuses_it_before_anything_runs(evaluate: AIS) -> None:
    model = model_of(*INFINITE["1 / (1 + |x|)"])
    with pytest.raises(Diverged, match=rf"^{type(evaluate).__name__}: exp\(-F\) .*1 / r\^1\.00"):
        evaluate(model, rows=torch.zeros(1, 1), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("case", FINITE)
def test_a_finite_integral_is_not_refused(case: str) -> None:
    check_integral("X", model_of(*FINITE[case]))


@pytest.mark.parametrize("family", ["funnel in 2", "banana", "ring", "wells", "terraces", "RBM 1"])
def test_light_tails_add_nothing(family: str) -> None:
    model = FAMILIES[family](0, "none").model
    q = Quantity(1.0, 0.5, 1.5, level=0.95, kind="estimate")
    x = model.reference().draw(64, generator=torch.Generator().manual_seed(0))
    assert reach_to_tails("X", q, model, x) == q
    check_integral("X", funnel(0, "none", 10).model)
    check_integral("X", RBM(30, 5, visible_units="gaussian", generator=torch.Generator()))


@pytest.mark.parametrize("nu", [0.5, 1.0, 3.0])
def test_the_mass_beyond_a_radius_is_that_of_a_student_distribution(nu: float) -> None:
    """On the plane P(|x| > R) = (1 + R^2 / nu)^(-nu / 2); a few percent for 32 rays and a grid."""
    R = 4.0
    angles = torch.linspace(0, 2 * math.pi, 65)[:-1]
    x = R * torch.stack([angles.cos(), angles.sin()], -1)
    beyond = (1 + R**2 / nu) ** (-nu / 2)
    share = math.exp(log_tail_share("X", model_of(student(nu, 2), 2), x))
    assert share == pytest.approx(beyond / (1 - beyond), rel=0.1)
