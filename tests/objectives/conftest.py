"""Real models small enough for quadrature, written out here."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from partita.core.protocols import Data, EnergyModel, Reference
from partita.core.support import Real
from partita.models.energy.units import GaussianUnits, UnitsReference

GRID = np.linspace(-7, 7, 8001)  # far enough and fine enough for every density of these tests


class RealModel(EnergyModel):
    """What the two models below share: a standard normal as reference, nothing to initialize."""

    capabilities = frozenset()

    def reference(self) -> Reference:
        ones = torch.ones(self.support.width, dtype=self.like.dtype)
        return UnitsReference(GaussianUnits(), (0 * ones, -0.5 * ones / 4), 0.0)

    def initialize(self, data: Data, *, generator: torch.Generator) -> None: ...

    def settings(self) -> dict[str, Any]:
        return {}


class Quartic(RealModel):
    """One column, an exponential family: F(x) = -(t_0 x + t_1 x^2 + t_2 x^4), with t_2 < 0."""

    def __init__(self, theta: list[float]) -> None:
        super().__init__()
        self.support = Real(1)
        self.theta = nn.Parameter(torch.tensor(theta, dtype=torch.float64))

    def free_energy(self, x: Tensor) -> Tensor:
        x = x.squeeze(-1)
        return -(torch.stack([x, x**2, x**4], -1) @ self.theta)


class Gaussian(RealModel):
    """F(x) = (x - m)' P (x - m) / 2 with P symmetric by construction."""

    def __init__(self, mean: Tensor, precision: Tensor) -> None:
        super().__init__()
        self.support = Real(len(mean))
        self.m = nn.Parameter(mean.clone())
        self.A = nn.Parameter(0.5 * precision)

    def free_energy(self, x: Tensor) -> Tensor:
        d = x - self.m
        return 0.5 * (d @ (self.A + self.A.mT) * d).sum(-1)


def grid_density(model: EnergyModel) -> tuple[np.ndarray, float]:
    """Probabilities of the points of the grid, and log Z, by the trapezoidal rule."""
    with torch.no_grad():
        log_phi = -model(torch.tensor(GRID)[:, None]).numpy()
    step = GRID[1] - GRID[0]
    z = np.exp(log_phi).sum() * step
    return np.exp(log_phi) * step / z, float(np.log(z))


def grid_draws(model: EnergyModel, n: int, rng: np.random.Generator) -> Tensor:
    """Draws by inverting the distribution function, linear between the points of the grid."""
    p, _ = grid_density(model)
    edges = np.concatenate([[0.0], np.cumsum(p)]) / p.sum()
    points = np.concatenate([[GRID[0]], GRID]) - 0.5 * (GRID[1] - GRID[0])
    points[-1] += GRID[1] - GRID[0]
    return torch.tensor(np.interp(rng.random(n), edges, points))[:, None]


@pytest.fixture
def quartic() -> Callable[..., Quartic]:
    return Quartic


@pytest.fixture
def gaussian() -> Callable[..., Gaussian]:
    return Gaussian


@pytest.fixture
def density() -> Callable[[EnergyModel], tuple[np.ndarray, float]]:
    """p on the grid and log Z."""
    return grid_density


@pytest.fixture
def draws() -> Callable[..., Tensor]:
    return grid_draws


@pytest.fixture
def grid() -> np.ndarray:
    return GRID
