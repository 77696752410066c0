"""Densities as plain NumPy functions, which have no gradient that autograd finds, with their log
Z and exact draws.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from partita.core.protocols import EnergyModel
from partita.core.support import Real
from partita.models.energy.units import GaussianReference


class Plain(EnergyModel):
    """exp(-F) of a function of NumPy rows, from a normal reference."""

    differentiable = False

    def __init__(
        self, function: Callable[[np.ndarray], np.ndarray], width: int, deviation: float = 1.0
    ) -> None:
        super().__init__()
        self.support, self.function, self.calls = Real(width), function, 0
        self.deviation = nn.Parameter(torch.tensor(deviation, dtype=torch.float64))
        self.register_anchors(width, self.deviation)

    def free_energy(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).numpy()  # refused by a tensor that requires a gradient
        self.calls += len(rows)
        return torch.from_numpy(self.function(rows)).view(x.shape[:-1])

    def reference(self) -> GaussianReference:
        one = torch.eye(self.support.width, dtype=torch.float64)
        return GaussianReference(one[0] * 0, one / self.deviation.detach())

    def initialize(self, data: Any, *, generator: torch.Generator) -> None: ...

    def settings(self) -> dict[str, Any]:
        return {}


def root(width: int, seed: int) -> Tensor:
    """A lower triangular matrix with deviations between 0.2 and 1."""
    g = torch.Generator().manual_seed(seed)
    lower = torch.eye(width) + 0.4 * torch.randn(width, width, generator=g).tril(-1)
    return lower.double() * torch.linspace(0.2, 1, width).double()[:, None]


def slanted(width: int, seed: int) -> tuple[Plain, float]:
    """A correlated normal distribution off the center, with a constant in its energy."""
    L = root(width, seed)
    inverse, middle = torch.linalg.inv(L).numpy(), 0.5
    model = Plain(lambda x: 0.5 * (((x - middle) @ inverse.T) ** 2).sum(-1) - 2.0, width)
    return model, 0.5 * width * math.log(2 * math.pi) + float(L.diagonal().log().sum()) + 2.0


def center(width: int, seed: int, apart: float) -> Tensor:
    """Of the heavier of two normals; that of the other is on the opposite side."""
    away = torch.randn(width, generator=torch.Generator().manual_seed(seed)).double()
    return apart * away / away.norm()


def pair(width: int, seed: int, apart: float = 2.5) -> tuple[Plain, float]:
    """Two unequal normals, whose masses are 0.3 and 0.7 of e^1.5."""
    away = center(width, seed, apart).numpy()
    scales, shares = (0.5, 0.8), (0.3, 0.7)

    def energy(x: np.ndarray) -> np.ndarray:
        logs = [
            math.log(share)
            - width * math.log(s * math.sqrt(2 * math.pi))
            - (((x - sign * away) / s) ** 2).sum(-1) / 2
            for s, share, sign in zip(scales, shares, (-1, 1), strict=True)
        ]
        return -np.logaddexp(*logs) - 1.5

    return Plain(energy, width, 2.0), 1.5
