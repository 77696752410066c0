"""The energy of a restricted Boltzmann machine written a second time, with loops over units; all
else follows from it by summing.
"""

import math
from itertools import product

import numpy as np
import torch
from scipy import integrate
from scipy.special import logsumexp
from torch import Tensor

from partita.models import RBM

UNITS = ["bernoulli", "gaussian"]


def make(units: str, visible: int = 3, hidden: int = 2, seed: int = 1, scale: float = 0.8) -> RBM:
    """A model with every parameter, and the reference, away from zero."""
    g = torch.Generator().manual_seed(seed)
    model = RBM(visible, hidden, visible_units=units, generator=g).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=g, dtype=torch.float64))
        if model.log_sigma is not None:
            model.log_sigma.mul_(0.3)
        model.reference_natural[0] = torch.randn(visible, generator=g, dtype=torch.float64)
        if units == "gaussian":
            model.reference_natural[1] = -0.2 - torch.rand(
                visible, generator=g, dtype=torch.float64
            )
    return model


def energy(model: RBM, x: np.ndarray, h: np.ndarray, beta: float = 1.0) -> float:
    """E(x, h) unit by unit: W and c scaled by beta, the visible units' own terms interpolated from
    the reference.
    """
    W, b, c = (p.detach().numpy() for p in (model.W, model.b, model.c))
    start = model.reference_natural.numpy()
    total = 0.0
    for i in range(len(x)):
        if model.log_sigma is None:
            own = b[i] * x[i]
        else:
            s = math.exp(model.log_sigma[i].item())
            own = b[i] * x[i] / s**2 - x[i] ** 2 / (2 * s**2)
        own_start = sum(start[r, i] * x[i] ** (r + 1) for r in range(len(start)))
        total -= beta * own + (1 - beta) * own_start
        for j in range(len(h)):
            total -= beta * x[i] * W[i, j] * h[j]
    return total - beta * sum(c[j] * h[j] for j in range(len(h)))


def binary(n: int) -> np.ndarray:
    return np.array(list(product([0.0, 1.0], repeat=n)))


def some_rows(model: RBM) -> np.ndarray:
    return (
        binary(model.visible)
        if model.log_sigma is None
        else np.random.default_rng(0).normal(size=(8, model.visible)) * 2
    )


def free_energy(model: RBM, x: np.ndarray, beta: float = 1.0) -> float:
    return -logsumexp([-energy(model, x, h, beta) for h in binary(model.hidden)])


def log_z(model: RBM, beta: float = 1.0) -> float:
    """Over x and h together, or the integral over x of the sum over h."""
    if model.log_sigma is None:
        return logsumexp(
            [
                -energy(model, x, h, beta)
                for x in binary(model.visible)
                for h in binary(model.hidden)
            ]
        )

    if model.visible == 1:
        return math.log(
            integrate.quad(
                lambda x: math.exp(-free_energy(model, np.array([x]), beta)),
                -25,
                25,
                epsabs=0,
                epsrel=1e-12,
            )[0]
        )
    # the trapezoidal rule, exact to rounding for a density as smooth as this
    axis = np.linspace(-12, 12, 401)
    grid = np.array(np.meshgrid(*[axis] * model.visible))
    masses = [np.exp(-energy(model, grid, h, beta)).sum() for h in binary(model.hidden)]
    return math.log(sum(masses) * (axis[1] - axis[0]) ** model.visible)


def tensor(x: np.ndarray) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)
