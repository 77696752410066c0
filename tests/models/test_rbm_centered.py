"""Centering: the gradient in centered coordinates against autograd, and a map that always
climbs.
"""

import math

import numpy as np
import pytest
import torch
from scipy.special import expit
from tests.models.rbms import UNITS, binary, make, tensor
from torch import Tensor

from partita.models import RBM
from partita.models.energy.rbm import centered_gradient


def log_likelihood(model: RBM, x: Tensor, W: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Mean log-likelihood of rows from given parameters, log Z summed over h (and x integrated or
    summed in closed form).
    """
    h = tensor(binary(W.shape[1]))
    if model.log_sigma is None:
        log_z_h = torch.log1p(torch.exp(b + h @ W.T)).sum(1)
        own = x @ b
    else:
        s2 = torch.exp(2 * model.log_sigma.detach())
        m = b + s2 * (h @ W.T)
        log_z_h = (0.5 * torch.log(2 * math.pi * s2) + m**2 / (2 * s2)).sum(1)
        own = (x * b / s2 - x**2 / (2 * s2)).sum(1)
    unnormalized = own + torch.log1p(torch.exp(c + x @ W)).sum(1)
    return unnormalized.mean() - torch.logsumexp(h @ c + log_z_h, 0)


@pytest.mark.parametrize("units", UNITS)
def test_the_centered_gradient_is_autograd_in_centered_coordinates(units: str) -> None:
    """W, b' = b + s W lambda and c' = c + W' mu are what centering ascends in; the step is then
    brought back to W, b, c.
    """
    model = make(units, 4, 3)
    x = tensor(np.random.default_rng(3).integers(0, 2, (9, 4)).astype(float))
    s = (
        torch.ones(4, dtype=torch.float64)
        if model.log_sigma is None
        else torch.exp(2 * model.log_sigma.detach())
    )
    mu, lam = x.mean(0), tensor(np.array([0.2, 0.6, 0.9]))
    W0, b0, c0 = (p.detach().clone().requires_grad_() for p in (model.W, model.b, model.c))
    plain = torch.autograd.grad(log_likelihood(model, x, W0, b0, c0), (W0, b0, c0))

    W, b, c = (
        t.detach().clone().requires_grad_() for t in (W0, b0 + s * (W0 @ lam), c0 + W0.T @ mu)
    )
    step = torch.autograd.grad(
        log_likelihood(model, x, W, b - s * (W @ lam), c - W.T @ mu), (W, b, c)
    )

    def back(W: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return W, b - s * (W @ lam), c - W.T @ mu

    _, expected = torch.autograd.functional.jvp(back, (W.detach(), b.detach(), c.detach()), step)
    for got, want in zip(
        centered_gradient(*(g.clone() for g in plain), mu, lam, s), expected, strict=True
    ):
        torch.testing.assert_close(got, want, atol=1e-12, rtol=0)
    assert not torch.allclose(expected[0], plain[0])


@pytest.mark.parametrize("units", UNITS)
def test_center_takes_the_hidden_response_to_the_mean(units: str) -> None:
    model = make(units, 4, 3)
    x = tensor(np.random.default_rng(3).integers(0, 2, (9, 4)).astype(float))
    model.free_energy(x).mean().backward()
    plain = [p.grad.clone() for p in (model.W, model.b, model.c)]  # type: ignore[union-attr]
    s = 1.0 if model.log_sigma is None else torch.exp(2 * model.log_sigma.detach())
    mu = x.mean(0)
    lam = tensor(expit(model.c.detach().numpy() + mu.numpy() @ model.W.detach().numpy()))
    model.center(mu)
    for p, want in zip(
        (model.W, model.b, model.c), centered_gradient(*plain, mu, lam, s), strict=True
    ):
        torch.testing.assert_close(p.grad, want, atol=1e-13, rtol=0)


def test_centering_is_a_positive_definite_map() -> None:
    """So a step along it always climbs, and it is zero only where the plain gradient is."""
    mu, lam, sizes = tensor(np.array([0.3, 0.8])), tensor(np.array([0.5, 0.1, 0.9])), [6, 2, 3]

    def flat(v: Tensor) -> Tensor:
        W, b, c = v.split(sizes)
        return torch.cat(
            [part.flatten() for part in centered_gradient(W.clone().view(2, 3), b, c, mu, lam)]
        )

    matrix = torch.autograd.functional.jacobian(flat, torch.zeros(11, dtype=torch.float64))
    torch.testing.assert_close(matrix, matrix.T, atol=1e-14, rtol=0)
    assert torch.linalg.eigvalsh(matrix).min() > 0.01
