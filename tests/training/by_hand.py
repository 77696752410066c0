"""The arithmetic of a fit written out: the likelihood by enumeration, gradient ascent by autograd,
no optimizer.
"""

from itertools import product
from typing import Any

import torch
from tests.training.small_fits import machine
from torch import Tensor

import partita
from partita.models import RBM
from partita.objectives import ExactLikelihood


def log_likelihood(x: Tensor, w: Tensor, W: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Weighted mean, by enumeration over x and h."""
    xs, hs = (
        torch.tensor(list(product([0.0, 1.0], repeat=n)), dtype=torch.float64) for n in W.shape
    )

    def log_phi(v: Tensor) -> Tensor:
        return torch.logsumexp((v @ b)[:, None] + hs @ c + v @ W @ hs.T, 1)

    return (w * log_phi(x)).sum() / w.sum() - torch.logsumexp(log_phi(xs), 0)


def score(model: RBM, x: Tensor) -> float:
    weights = [p.detach().double() for p in (model.W, model.b, model.c)]
    return log_likelihood(x.double(), torch.ones(len(x)).double(), *weights).item()


def descend(
    x: Tensor,
    rates: list[float],
    momentum: float = 0.0,
    l1: float = 0.0,
    l2: float = 0.0,
    w: Tensor | None = None,
) -> list[list[Tensor]]:
    """Gradient ascent by hand; W, b and c after every step."""
    model = machine().double()
    values = [p.detach().clone() for p in (model.W, model.b, model.c)]
    velocity, path = [torch.zeros_like(v) for v in values], []
    for rate in rates:
        leaves = [v.clone().requires_grad_() for v in values]
        loss = -log_likelihood(x, torch.ones(len(x)).double() if w is None else w, *leaves)
        gradients = list(torch.autograd.grad(loss, leaves))
        # the weights alone are penalized
        gradients[0] = gradients[0] + l1 * values[0].sign() + l2 * values[0]
        velocity = [momentum * v + g for v, g in zip(velocity, gradients, strict=True)]
        values = [v - rate * u for v, u in zip(values, velocity, strict=True)]
        path.append(values)
    return path


def fitted(x: Tensor, steps: int, **options: Any) -> RBM:
    settings = {
        "optimizer": "sgd",
        "learning_rate": 0.5,
        "schedule": "constant",
        "average": 0.0,
        "batch_size": 0,
        "initialize": False,
    }
    return partita.fit(
        machine().double(),
        x,
        ExactLikelihood(),
        steps=steps,
        generator=torch.Generator(),
        **{**settings, **options},
    ).model  # type: ignore[return-value]


def assert_weights(model: RBM, expected: list[Tensor]) -> None:
    for got, want in zip((model.W, model.b, model.c), expected, strict=True):
        torch.testing.assert_close(got.detach(), want, atol=1e-11, rtol=0)
