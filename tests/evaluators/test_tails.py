"""Infinite Z gets no number, slow tails widen the interval, and what is integrable is scored."""

import math
from collections.abc import Callable

import pytest
import torch
from tests.truth.hard_models import FAMILIES, Density, funnel
from torch import Tensor
from torch.nn import functional

from partita.core.quantity import Quantity
from partita.core.support import Real
from partita.errors import Diverged
from partita.evaluators import AIS, SMC, Bridge, ReverseAIS, Sandwich
from partita.evaluators.partition.tails import check_integral, reach_to_tails, tails_beyond
from partita.models import RBM, NeuralEnergy

TURN = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(3)))[0]
Energy = Callable[[Tensor], Tensor]


def student(nu: float, width: int) -> Energy:
    return lambda x: 0.5 * (nu + width) * torch.log1p(x.square().sum(-1) / nu)


def walled(inside: Callable[[Tensor], Tensor]) -> Energy:
    return lambda x: torch.where(inside(x), 0.5 * x.square().sum(-1), math.inf)


def tail_of(u: Tensor, fall: float) -> Tensor:
    """A power along the first coordinate, normal along the others."""
    return 0.5 * fall * torch.log1p(u[..., 0].square()) + 0.5 * u[..., 1:].square().sum(-1)


INFINITE: dict[str, tuple[Energy, int]] = {
    "1 / (1 + |x|)": (lambda x: torch.log1p(x.abs()).sum(-1), 1),
    "slower": (lambda x: 0.7 * torch.log1p(x.abs()).sum(-1), 1),
    "1 / x'x on the plane": (lambda x: torch.log1p(x.square().sum(-1)), 2),
    "one flat coordinate": (lambda x: 0.5 * x[..., :2].square().sum(-1), 3),
    "a flat direction": (lambda x: 0.5 * (x @ TURN.to(x))[..., :2].square().sum(-1), 3),
    "flat on one side": (lambda x: x[..., 0].clamp_max(0).square() + x[..., 1].square(), 2),
    "too slow in a turned direction": (
        lambda x: tail_of(x @ TURN.to(x), 0.9),
        3,
    ),
    "flat on one turned side": (
        lambda x: (
            functional.softplus(-(x @ TURN.to(x))[..., 0])
            + (x @ TURN.to(x))[..., 1:].square().sum(-1)
        ),
        3,
    ),
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
    "a turned tail": (lambda x: tail_of(x @ TURN.to(x), 1.1), 3),
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
    model, log_z = FAMILIES[family](0, "fair")
    q = Quantity(log_z, log_z - 0.5, log_z + 0.5, level=0.95, kind="estimate")
    x = model.anchor_rows(128)
    assert x is not None
    # a funnel's tail falls like that of a lognormal: what three of 128 rows exceed is part of it
    assert reach_to_tails("X", q, model, x).high - q.high < (0.03 if "funnel" in family else 1e-6)
    check_integral("X", funnel(0, "none", 10).model)
    check_integral("X", RBM(30, 5, visible_units="gaussian", generator=torch.Generator()))


@pytest.mark.parametrize("nu", [0.5, 1.0, 3.0])
def test_the_mass_beyond_a_radius_is_that_of_a_student_distribution(nu: float) -> None:
    """On the plane P(|x| > R) = (1 + R^2 / nu)^(-nu / 2); a few percent for 32 rays and a grid."""
    R = 4.0
    angles = torch.linspace(0, 2 * math.pi, 65)[:-1]
    x = R * torch.stack([angles.cos(), angles.sin()], -1)
    beyond = (1 + R**2 / nu) ** (-nu / 2)
    share = math.exp(tails_beyond("X", model_of(student(nu, 2), 2), x).log_share)
    assert share == pytest.approx(beyond / (1 - beyond), rel=0.1)


@pytest.mark.parametrize("fall", [1.4, 1.8])
def test_a_tail_counts_the_same_in_every_direction(fall: float) -> None:
    """What lies beyond states within a radius, along a coordinate and turned by a rotation: between
    the truth, 2 * the integral of r^-fall, less 0.3 nat and one nat more.
    """
    x = torch.randn(256, 3, generator=torch.Generator().manual_seed(0)).clamp(-3, 3)
    truth = math.log(2 / (fall - 1)) + (1 - fall) * math.log(3.0) + math.log(2 * math.pi)
    for turn in (torch.eye(3), TURN):
        model = model_of(lambda x, turn=turn: tail_of(x @ turn.to(x), fall), 3)
        mass = tails_beyond("AIS", model, x @ turn.mT).log_mass
        assert truth - 0.3 < mass < truth + 1.0
