"""Modes that a known one outshines are looked for at all scales about it."""

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, Uniform

from partita.core.batched import Batched
from partita.core.support import Real
from partita.evaluators.partition import modes
from partita.models.energy.coordinates import Prior
from partita.models.energy.target import Target


def two_normals(width: int, at: float, scales: tuple[float, float], prior: object) -> Target:
    """A normal at zero, and a narrower one, with twenty times the mass, aside in all coordinates:
    seen from the first, no descent ends in it.
    """

    def log_density(x: Tensor) -> Tensor:
        parts = [Normal(c, s).log_prob(x).sum(-1) for c, s in zip((0.0, at), scales, strict=True)]
        return torch.logaddexp(parts[0], parts[1] + math.log(20))

    target = Target(Batched(log_density, width), Real(width), Prior("test", [prior] * width))
    target.free_energy(torch.zeros(8, width).double())
    return target


@pytest.mark.parametrize(
    ("width", "at", "scales", "prior"),
    [
        (8, 2.0, (1.0, 0.3), Uniform(-10.0, 10.0)),
        (20, 0.031, (0.1, 0.01), Uniform(-0.5, 0.5)),
        (10, -1.5, (1.0, 0.4), Normal(0.0, 3.0)),
    ],
    ids=["outside of it", "inside of it", "under a normal prior"],
)
def test_a_spike_beside_a_mode_is_found(
    width: int, at: float, scales: tuple[float, float], prior: object
) -> None:
    model, g = two_normals(width, at, scales, prior), torch.Generator().manual_seed(0)
    known = torch.zeros(1, width).double()
    with torch.no_grad():
        found = model.outer(modes.descended(model, modes._beside(model, known, 8, g)))
    assert float((found - at).norm(dim=-1).min()) < scales[1]


def test_nothing_is_looked_for_about_pits_or_without_slopes() -> None:
    model = two_normals(4, 1.0, (1.0, 0.3), Normal(0.0, 3.0))
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        assert len(modes._beside(model, torch.full((1, 4), 30.0).double(), 8, g)) == 0
        model.log_density.differentiable = False
        assert len(modes._beside(model, torch.zeros(1, 4).double(), 8, g)) == 0


@pytest.mark.parametrize("seed", [2, 3])
def test_a_descent_does_not_step_over_the_mode_that_it_begins_in(seed: int) -> None:
    """A far mode that few draws of the prior lead to."""
    model = two_normals(5, -6.0, (1.0, 0.15), Uniform(-10.0, 10.0))
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        found = model.outer(modes.descended(model, modes._far_and_wide(model, g)))
    assert float((found + 6).norm(dim=-1).min()) < 0.1
