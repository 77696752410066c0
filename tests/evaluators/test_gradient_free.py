"""log Z of plain NumPy functions, without any gradient, against closed forms; ``make coverage``
takes more of them.
"""

import math
import os
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from tests.samplers.plain import Plain, pair, slanted
from tests.samplers.targets import Bent
from torch import Tensor

from partita.errors import Diverged
from partita.evaluators import AIS, SMC, Bridge, Quadrature, Sandwich
from partita.evaluators.partition import modes
from partita.evaluators.partition.tails import Scaled, check_integral, log_ridge_mass
from partita.integration.differences import central_bend, central_slope

# of every interval; with six of them one misses by chance with a probability of 6e-3
LEVEL = 0.999
MORE = "PARTITA_COVERAGE_ROUNDS" in os.environ
CASES = {"normal": slanted, "two normals": pair}


def rows_of(model: Plain, generator: torch.Generator) -> Tensor:
    """Rows in all modes, by importance from the reference, made wide."""
    x = 1.5 * model.reference().draw(40_000, generator=generator)
    log_w = 0.5 * (x / 1.5 * model.reference().whitening[0, 0]).square().sum(
        -1
    ) - model.free_energy(x)
    return x[torch.multinomial(torch.softmax(log_w, 0), 96, generator=generator)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "width"),
    [("two normals", 3), *(product(CASES, (2, 6)) if MORE else ())],
)
def test_the_sandwich_covers_closed_forms(name: str, width: int) -> None:
    """Trusted, no wider than half a nat, and right."""
    model, truth = CASES[name](width, 21)
    g = torch.Generator().manual_seed(4)
    q = Sandwich(temperatures=60, chains=48, level=LEVEL, adaptive=False)(
        model, rows=rows_of(model, g), generator=g
    )
    assert q.low <= truth <= q.high
    assert q.trusted and q.width < 0.5


@pytest.mark.parametrize(
    "evaluator",
    [
        AIS(temperatures=80, chains=64, level=LEVEL, adaptive=False),
        SMC(temperatures=80, chains=64, level=LEVEL, adaptive=False),
        Bridge(temperatures=6, chains=8, draws=150, burn_in=50, level=LEVEL),
    ],
    ids=lambda each: type(each).__name__,
)
def test_others_run_without_a_gradient(evaluator: Any) -> None:
    model, truth = slanted(3, 22)
    q = evaluator(model, generator=torch.Generator().manual_seed(5))
    assert q.low <= truth <= q.high
    assert q.width < 1.5


def test_quadrature_takes_functions_outside_of_torch() -> None:
    model, truth = pair(2, 23)
    q = Quadrature()(model, generator=torch.Generator().manual_seed(6))
    assert abs(q.value - truth) < 1e-5


def test_differences_are_slopes_and_bends() -> None:
    """Of a bent density: to 1e-8 and 1e-6 of autograd's."""
    model, g = Bent(), torch.Generator().manual_seed(7)
    x = torch.randn(30, 2, generator=g).double()
    step = torch.full((2,), 1e-5).double()
    slope = modes._slope(model, x)
    assert torch.allclose(central_slope(model.free_energy, x, step), slope, rtol=0, atol=1e-8)
    bend: Any = torch.autograd.functional.hessian(lambda at: model.free_energy(at), x[0])
    found = central_bend(model.free_energy, x[0], 10 * step)
    assert torch.allclose(found, bend, rtol=0, atol=1e-6)


def test_minima_are_found_without_a_gradient() -> None:
    """Both modes of two normals that lie far apart."""
    model, _ = pair(4, 24)
    g = torch.Generator().manual_seed(8)
    with torch.no_grad():
        found = modes.descended(model, modes._far_and_wide(model, g))
    # both centers lie 2.5 from the origin, on opposite sides
    near = found[(found.norm(dim=-1) - 2.5).abs() < 0.05]
    assert len(near) > 0.9 * len(found)
    side = near @ near[0] > 0
    assert 0.05 < float(side.double().mean()) < 0.95


def test_tails_are_judged_without_a_gradient() -> None:
    """What falls like 1 / r^3 on the plane passes; one that falls like 1 / r is refused."""

    def falling(a: float) -> Plain:
        return Plain(lambda x: 0.5 * a * np.log1p((x**2).sum(-1)), 2)

    check_integral("test", falling(3.0))
    with pytest.raises(Diverged, match=r"test: exp\(-F\) of Plain must fall faster than"):
        check_integral("test", falling(1.0))


def test_ridges_hold_what_they_hold_by_either_way() -> None:
    """A ridge along a slanted line, Student's with 4 degrees along it and normal across: the mass
    beyond 3 by autograd and by differences, within a hundredth of a nat.
    """
    slant = torch.tensor([[0.8, 0.6], [-0.6, 0.8]]).double()

    class Ridge(Bent):
        def free_energy(self, x: Tensor) -> Tensor:
            y = x @ slant.mT
            return 2.5 * torch.log1p(y[..., 0].square() / 4) + 0.5 * y[..., 1].square()

    masses = []
    for differentiable in (True, False):
        model = Ridge()
        model.differentiable = differentiable
        energy = Scaled(model, torch.zeros(2).double(), torch.ones(2).double())
        t = torch.randn(64, 2, generator=torch.Generator().manual_seed(9)).double()
        with torch.no_grad():
            masses.append(log_ridge_mass("test", model, energy, t))
    assert math.isfinite(masses[0])
    assert abs(masses[0] - masses[1]) < 0.01
