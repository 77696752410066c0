r"""Estimators against the truth: bias, variance, and variance for the work done.

.. math:: z = \frac{\bar g - \nabla E_q[f]}{\mathrm{sd}(g) / \sqrt n}, \qquad V = \sum_p
          \mathrm{Var}(g_p), \qquad V \times \mathrm{cost}
          (theory/gradients.md, eq. 40.21)

Letters: n estimates, P parameters, K samples of a bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from partita.core.arguments import check_count
from partita.errors import Diverged
from partita.gradients.base import Estimator, State
from partita.gradients.control_variates import NVIL, MuProp
from partita.gradients.laboratory.problems import Problem, flat_gradient
from partita.gradients.multisample import VIMCO, DisARM, LeaveOneOut
from partita.gradients.rebar import Rebar, Relax
from partita.gradients.relaxation import GumbelSoftmax, StraightThrough
from partita.gradients.score_function import (
    MovingAverage,
    OptimalConstant,
    Reinforce,
    optimal_constant,
)

ROWS_AT_ONCE = 20_000
WARM_UP_ROWS = 200
WARM_UP_RATE = 0.04  # of Adam, for what an estimator learns before it is measured


@dataclass(frozen=True)
class Measured:
    """What an estimator does on a problem.

    ``exact`` and ``mean`` are the true and the average gradient, ``se`` the average's standard
    error, all (P); ``variance`` is that of one estimate, summed over coordinates, and ``cost`` the
    evaluations of f that it takes.
    """

    unbiased: bool
    exact: Tensor
    mean: Tensor
    se: Tensor
    variance: float
    cost: int
    n: int

    @property
    def z(self) -> float:
        """The largest |mean - exact| of any coordinate, in standard errors."""
        error = (self.mean - self.exact).abs()
        known = error <= 1e-12 * (1 + self.exact.abs())  # no noise and no error
        return float(torch.where(known, 0.0, error / self.se).max())

    @property
    def bias(self) -> float:
        """The length of mean - exact, relative to that of the exact gradient."""
        return float((self.mean - self.exact).norm() / self.exact.norm())

    @property
    def work(self) -> float:
        """Variance times cost: what one evaluation of f buys."""
        return self.variance * self.cost


def all_estimators(problem: Problem) -> dict[str, Estimator]:
    """Every estimator of discrete latents, with the closed-form constant of this problem; NVIL
    without its rescaling.
    """
    found: dict[str, Estimator] = {
        "REINFORCE": Reinforce(),
        "optimal constant": OptimalConstant(float(optimal_constant(*problem.score_table()))),
        "moving average": MovingAverage(),
        "leave-one-out": LeaveOneOut(4),
        "NVIL": NVIL(hidden=16, normalize=False),
        "MuProp": MuProp(),
        "REBAR": Rebar(),
        "RELAX": Relax(hidden=16),
        "DisARM": DisARM(),
        "VIMCO": VIMCO(2),
        "Gumbel-softmax": GumbelSoftmax(),
        "straight-through": StraightThrough(),
    }
    if "categories" in problem.name:
        del found["DisARM"]  # which is for bits
    return found


def measure(
    problem: Problem,
    estimator: Estimator,
    n: int = 200_000,
    *,
    warm_up: int = 150,
    generator: torch.Generator,
) -> Measured:
    """``n`` estimates after ``warm_up`` steps of whatever the estimator learns, which is then held.

    >>> from partita.gradients.laboratory.problems import bits
    >>> g = torch.Generator().manual_seed(0)
    >>> found = measure(bits(3, generator=g), Reinforce(), 2000, generator=g)
    >>> found.cost, found.z < 4.5
    (1, True)
    """
    check_count("laboratory", "draws", n, 2)
    state = warmed_up(problem, estimator, warm_up, generator)
    if isinstance(estimator, Rebar | Relax):
        estimator = replace(estimator, learn=False)
    shift = exact = problem.exact_gradient(estimator.bound)
    total = squares = torch.zeros_like(exact)
    for done in range(0, n, ROWS_AT_ONCE):
        rows = min(ROWS_AT_ONCE, n - done)
        parameters, made = problem.estimate(estimator, state, rows, generator)
        g, state = flat_gradient(made.surrogate, parameters), made.state
        total = total + (g - shift).sum(0)
        squares = squares + (g - shift).square().sum(0)
    variance = (squares - total.square() / n) / (n - 1)
    if not torch.isfinite(variance).all():
        raise Diverged(
            f"laboratory: estimates of {type(estimator).__name__} must be finite; f or the logits "
            f"of {problem.name} are too large."
        )
    mean, se = shift + total / n, (variance / n).sqrt()
    cost = estimator.cost(len(problem.widths))
    return Measured(estimator.unbiased, exact, mean, se, float(variance.sum()), cost, n)


def warmed_up(
    problem: Problem, estimator: Estimator, steps: int, generator: torch.Generator
) -> State:
    """The state after some steps of what the estimator learns by itself: averages, baselines,
    scales, temperatures.
    """
    like = next(iter(problem.parameters.values()))
    state = estimator.init(problem.widths, like=like, generator=generator)
    learned = list(state.module.parameters())
    optimizer = torch.optim.Adam(learned, lr=WARM_UP_RATE) if learned else None
    for _ in range(steps):
        _, made = problem.estimate(estimator, state, WARM_UP_ROWS, generator)
        state = made.state
        if optimizer is not None and made.extra.requires_grad:
            optimizer.zero_grad()
            made.extra.backward()
            optimizer.step()
    return state


def variance_with_constant(problem: Problem, c: Tensor) -> Tensor:
    """The exact variance of REINFORCE with each constant baseline, ``(C) -> (C)``: a parabola with
    its minimum at c*.
    """
    log_q, score, f = problem.score_table()
    slope, q = problem.slope_table(), log_q.exp()
    mean = (q * f) @ score + q @ slope  # whatever c is
    second = [q @ ((f - each)[:, None] * score + slope).square().sum(1) for each in c]
    return torch.stack(second) - mean.square().sum()


def bias_by_temperature(
    problem: Problem, temperatures: Sequence[float], n: int, *, generator: torch.Generator
) -> dict[str, list[Measured]]:
    """Both relaxations at each temperature."""
    kinds = {"Gumbel-softmax": GumbelSoftmax, "straight-through": StraightThrough}
    return {
        name: [measure(problem, kind(tau), n, generator=generator) for tau in temperatures]
        for name, kind in kinds.items()
    }
