"""Consistent objectives find the truth: within their asymptotic errors, which fall as the square
root of the number of rows.

The error of an estimate that minimizes the mean of a loss is known in advance (Godambe's sandwich;
theory/objectives.md, eq. 6.15):

    T^(1/2) (estimate - truth) -> N(0, A^-1 B A^-1),   A = E[hessian of the loss], B = Cov[gradient
    of the loss],

with both expectations summed over all states, or by quadrature. Every minimum here is found by
Newton's method, to rounding.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from partita.core.protocols import Batch
from partita.core.support import Binary
from partita.models import MaxEnt
from partita.objectives import NCE, ExactLikelihood, PseudoLikelihood, RatioMatching, ScoreMatching
from partita.objectives.base import Nothing
from partita.objectives.nce import LogNormalizer, Normalizer

# of three coins and their pairs
TRUTH = torch.tensor([0.4, -0.6, 0.2, 0.9, -0.7, 0.5], dtype=torch.float64)
STATES = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)), dtype=torch.float64)
QUARTIC = [0.3, 0.5, -0.4]
ROWS = 4000
# of rows and their weights (mean one): the mean loss at the model's own parameters
Loss = Callable[[Tensor, Tensor], Tensor]


def pairwise() -> Any:
    model = MaxEnt("pairwise", Binary(3), generator=torch.Generator()).double()
    return with_values(model, [model.theta], TRUTH)


@torch.no_grad()
def with_values(model: Any, parameters: list[Tensor], values: Tensor) -> Any:
    """Write ``values`` into the parameters, one after the other."""
    start = 0
    for parameter in parameters:
        parameter.copy_(values[start : start + parameter.numel()].view_as(parameter))
        start += parameter.numel()
    return model


def loss_of(objective: Any, model: Any, state: Any = None) -> Loss:
    """The objective's own loss."""
    kept = Nothing() if state is None else state
    return lambda x, weight: objective.losses(model, Batch(x, weight), kept, generator=None)[0][
        "model"
    ]


def slope_and_bend(value: Tensor, parameters: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Gradient and matrix of second derivatives in all parameters together."""
    slope = flat(torch.autograd.grad(value, parameters, create_graph=True))
    return slope, torch.stack(
        [flat(torch.autograd.grad(s, parameters, retain_graph=True)) for s in slope]
    )


def flat(parts: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


def minimize(
    value: Callable[[], Tensor], model: Any, parameters: list[Tensor], start: Tensor | None = None
) -> Tensor:
    """Newton's method from zero or from ``start``, with halved steps while they do not descend."""
    theta = (
        torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
        if start is None
        else start
    )
    for _ in range(50):
        with_values(model, parameters, theta)
        here = value()
        slope, bend = slope_and_bend(here, parameters)
        step = torch.linalg.solve(bend, slope.detach())
        while (
            step.abs().max() > 1e-12
            and value_at(value, model, parameters, theta - step) > here.item()
        ):
            step = step / 2
        theta = theta - step
        if step.abs().max() < 1e-9:
            return theta
    raise AssertionError("Newton's method did not settle")


def value_at(
    value: Callable[[], Tensor], model: Any, parameters: list[Tensor], theta: Tensor
) -> float:
    with_values(model, parameters, theta)
    return value().item()


def moments(
    loss: Loss, parameters: list[Tensor], x: Tensor, p: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean gradient, A and B, with expectations over the points ``x`` of probability ``p``; the
    loss is linear in the weights.
    """
    weight = (len(p) * p).requires_grad_()
    slope, A = slope_and_bend(loss(x, weight), parameters)
    rows = torch.stack(
        [len(p) * torch.autograd.grad(s, weight, retain_graph=True)[0] for s in slope], 1
    )
    return slope.detach(), A, covariance_of(rows, p)


def covariance_of(values: Tensor, p: Tensor) -> Tensor:
    mean = p @ values
    return (p[:, None] * values).T @ values - torch.outer(mean, mean)


def sandwich(A: Tensor, B: Tensor) -> Tensor:
    inverse = torch.linalg.inv(A)
    return inverse @ B @ inverse


def assert_close_in_its_own_errors(
    estimate: Tensor, truth: Tensor, covariance: Tensor, n: int
) -> None:
    """Every coordinate within 3 standard errors, and all together by chi-squared at 1e-3: fixed
    seeds, false alarm below 2 % each.
    """
    error = estimate - truth
    z = error * math.sqrt(n) / torch.sqrt(torch.diagonal(covariance))
    assert z.abs().max() < 3
    statistic = n * float(error @ torch.linalg.solve(covariance, error))
    assert statistic < chi2.isf(1e-3, len(error))
    assert z.abs().max() > 0.05  # and not closer than rows allow


def probabilities(model: Any) -> Tensor:
    return torch.softmax(-model(STATES).detach(), 0)


def counts(model: Any, n: int, rng: np.random.Generator) -> Tensor:
    """How often each state occurs among n draws, as weights with mean one."""
    p = probabilities(model).numpy()
    return torch.tensor(rng.multinomial(n, p / p.sum()) * len(STATES) / n)


@pytest.mark.parametrize(
    "objective", [ExactLikelihood(), PseudoLikelihood(), RatioMatching()], ids=str
)
def test_discrete_objectives_find_the_truth(objective: Any) -> None:
    model = pairwise()
    p, weight = probabilities(model), counts(model, ROWS, np.random.default_rng(1))
    slope, A, B = moments(loss_of(objective, model), [model.theta], STATES, p)
    assert slope.abs().max() < 1e-14  # at the truth, over all states, nothing pulls
    _, fisher, _ = moments(loss_of(ExactLikelihood(), model), [model.theta], STATES, p)
    # nothing beats maximum likelihood
    assert torch.linalg.eigvalsh(sandwich(A, B) - torch.linalg.inv(fisher)).min() > -1e-10
    estimate = minimize(lambda: loss_of(objective, model)(STATES, weight), model, [model.theta])
    assert_close_in_its_own_errors(estimate, TRUTH, sandwich(A, B), ROWS)


def test_the_errors_are_those_of_repeated_samples() -> None:
    """The sandwich itself: over 100 samples the pseudo-likelihood's z have variance one
    (chi-squared, false alarm 1e-3 in all).
    """
    model = pairwise()
    _, A, B = moments(
        loss_of(PseudoLikelihood(), model), [model.theta], STATES, probabilities(model)
    )
    root, samples = torch.linalg.cholesky(torch.linalg.inv(sandwich(A, B))), []
    weights = [counts(model, 20_000, np.random.default_rng([5, k])) for k in range(100)]
    for weight in weights:
        estimate = minimize(
            lambda weight=weight: loss_of(PseudoLikelihood(), model)(STATES, weight),
            model,
            [model.theta],
        )
        samples.append(math.sqrt(20_000) * (estimate - TRUTH) @ root)
    total = float(torch.stack(samples).square().sum())
    assert chi2.isf(1 - 5e-4, 600) < total < chi2.isf(5e-4, 600)


# score matching


def solve_score_matching(model: Any, x: Tensor) -> Tensor:
    """The minimum; the loss of a model whose log phi is linear in theta is quadratic, so one Newton
    step is exact.
    """
    return minimize(
        lambda: loss_of(ScoreMatching(), model)(x, torch.ones(len(x), dtype=x.dtype)),
        model,
        [model.theta],
    )


def quartic_errors(quartic: Any, density: Any, grid: np.ndarray) -> tuple[Any, Tensor, Tensor]:
    """The model, the truth, and the covariance of its estimates by quadrature."""
    model = quartic(QUARTIC)
    slope, A, B = moments(
        loss_of(ScoreMatching(), model),
        [model.theta],
        torch.tensor(grid)[:, None],
        torch.tensor(density(model)[0]),
    )
    assert slope.abs().max() < 1e-9
    return model, torch.tensor(QUARTIC, dtype=torch.float64), sandwich(A, B)


def test_score_matching_finds_the_truth(
    quartic: Any, density: Any, draws: Any, grid: np.ndarray
) -> None:
    model, truth, covariance = quartic_errors(quartic, density, grid)
    x = draws(model, ROWS, np.random.default_rng(6))
    assert_close_in_its_own_errors(solve_score_matching(model, x), truth, covariance, ROWS)


def slope_in_rows(error_at: Callable[[int, np.random.Generator], Tensor], replicates: int) -> float:
    """Least-squares slope of log root-mean-square error against log T over T = 500 to 50,000;
    errors are in units of their own spread.
    """
    sizes = [500, 5000, 50_000]
    rms = []
    for n in sizes:
        errors = torch.stack(
            [error_at(n, np.random.default_rng([n, k])) for k in range(replicates)]
        )
        rms.append(float(errors.square().mean().sqrt()))
    return float(np.polyfit(np.log(sizes), np.log(rms), 1)[0])


def test_the_error_of_score_matching_falls_as_the_root_of_the_rows(
    quartic: Any, density: Any, draws: Any, grid: np.ndarray
) -> None:
    """20 replicates of 3 parameters: the slope has a standard error near 0.03, so the bounds are
    three of them away (false alarm 1e-3).
    """
    model, truth, covariance = quartic_errors(quartic, density, grid)
    scale = torch.sqrt(torch.diagonal(covariance))

    def error(n: int, rng: np.random.Generator) -> Tensor:
        with_values(model, [model.theta], truth)
        return (solve_score_matching(model, draws(model, n, rng)) - truth) / scale

    assert -0.6 < slope_in_rows(error, 20) < -0.4


# noise-contrastive estimation


class Table:
    """Noise that is uniform over the states, with draws made beforehand, so that the empirical
    contrast is one function.
    """

    def __init__(self, draws: Tensor) -> None:
        self.draws = draws

    def log_prob(self, x: Tensor) -> Tensor:
        return torch.full(x.shape[:-1], -math.log(len(STATES)), dtype=x.dtype)

    def draw(self, n: int, *, generator: Any) -> Tensor:
        assert n == len(self.draws)
        return self.draws


def nce_errors(nu: float) -> tuple[Tensor, Tensor]:
    """The truth (theta, log Z) and the covariance of T^(1/2) (estimate - truth), summed over all
    states.

    The rows of data and nu T rows of noise are independent samples: B adds their covariances.
    """
    model = pairwise()
    with torch.no_grad():
        log_z, phi = torch.logsumexp(-model(STATES), 0), model.features(STATES)
        p, q = probabilities(model), torch.full((8,), 1 / 8, dtype=torch.float64)
        h = p / (p + nu * q)
        g = torch.cat([phi, -torch.ones(8, 1, dtype=torch.float64)], 1)
        A = (g * (p * (1 - h))[:, None]).T @ g
        B = covariance_of((1 - h)[:, None] * g, p) + nu * covariance_of(h[:, None] * g, q)
        return torch.cat([TRUTH, log_z[None]]), sandwich(A, B)


def solve_nce(n: int, nu: int, rng: np.random.Generator, start: Tensor | None = None) -> Tensor:
    """The estimate (theta, c) that minimizes the library's contrast of n draws from the model with
    nu n of the noise.
    """
    model, state = pairwise(), Normalizer(LogNormalizer(torch.zeros((), dtype=torch.float64)))
    p = probabilities(model).numpy()
    sizes = rng.multinomial(n, p / p.sum()), rng.multinomial(nu * n, np.full(8, 1 / 8))
    x, y = (STATES.repeat_interleave(torch.tensor(size), 0) for size in sizes)
    loss = loss_of(NCE(Table(y), nu), model, state)
    return minimize(
        lambda: loss(x, torch.ones(len(x), dtype=x.dtype)),
        model,
        [model.theta, state.module.c],
        start,
    )


@pytest.mark.parametrize("nu", [1, 8])
def test_nce_finds_the_truth_and_log_z(nu: int) -> None:
    """c is the last coordinate: it agrees with the exact log Z within its error like every other
    parameter.
    """
    truth, covariance = nce_errors(nu)
    assert_close_in_its_own_errors(
        solve_nce(ROWS, nu, np.random.default_rng(2)), truth, covariance, ROWS
    )


def test_more_noise_brings_nce_to_maximum_likelihood() -> None:
    """The sandwich of theta falls with nu to the inverse Fisher information."""
    model = pairwise()
    _, fisher, _ = moments(
        loss_of(ExactLikelihood(), model), [model.theta], STATES, probabilities(model)
    )
    excess = [
        float((nce_errors(nu)[1][:6, :6] - torch.linalg.inv(fisher)).trace())
        for nu in (1, 4, 16, 64, 10_000)
    ]
    assert all(later < earlier for earlier, later in itertools.pairwise(excess))
    assert 0 <= excess[-1] < 0.01 * excess[0]


def test_the_error_of_nce_falls_as_the_root_of_the_rows() -> None:
    """10 replicates of 7 parameters: the slope has a standard error near 0.035; the bounds are near
    three of them away (false alarm 5e-3).

    The contrast is convex in (theta, c), so Newton's method may start at the truth and still end at
    the one minimum.
    """
    truth, covariance = nce_errors(1)
    scale = torch.sqrt(torch.diagonal(covariance))
    assert (
        -0.6
        < slope_in_rows(lambda n, rng: (solve_nce(n, 1, rng, truth) - truth) / scale, 10)
        < -0.4
    )
