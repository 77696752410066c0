r"""Empirical Bayes: the hyper-parameters under which the data are most probable.

.. math:: \hat\eta = \arg\max_\eta \sum_g \log p(X_g \mid \eta)          (theory/bayes.md, eq. 8.13)

Letters: g groups of data that share a prior, eta hyper-parameters.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import constraints, transform_to

from partita.bayes.conjugate.base import Conjugate
from partita.errors import Diverged, invalid

Pair = TypeVar("Pair", bound=Conjugate)
VECTOR = constraints.independent(constraints.positive, 1)
RUNAWAY = 15.0  # how far a logarithm may move: beyond that the evidence only creeps up to a limit


def empirical_bayes(
    prior: Pair,
    data: ArrayLike,
    *,
    only: Sequence[str] | None = None,
    weight: ArrayLike | None = None,
    steps: int = 200,
) -> Pair:
    """The prior whose hyper-parameters maximize the evidence, summed over groups, by L-BFGS in
    unconstrained coordinates.

    Arguments:
        prior: Where to start; its shapes say what the groups share.
        data: ``(n, *groups, *event)``.
        only: Names of the hyper-parameters that move; all of them if not given.
        weight: How often each datum counts, ``(n, *groups)``; zero marks a place that is not there.
        steps: Most iterations.

    >>> from partita.bayes.conjugate import PoissonGamma
    >>> counts = torch.tensor(
    ...     [[3.0, 0.0, 9.0, 5.0], [4.0, 1.0, 7.0, 2.0]]
    ... )  # two counts of each of four groups
    >>> best = empirical_bayes(PoissonGamma(1.0, 1.0), counts)
    >>> round(float(best.posterior.mean), 3)
    3.875
    """
    limits = prior.constraints
    names = tuple(limits) if only is None else tuple(only)
    unknown = [name for name in names if name not in limits]
    if unknown or not names:
        raise invalid("empirical_bayes", "only", f"name some of {', '.join(limits)}", repr(only))
    to = {name: transform_to(limits[name]) for name in names}
    start = {name: to[name].inv(getattr(prior, name)).detach() for name in names}
    free = {name: value.clone().requires_grad_() for name, value in start.items()}

    def candidate(values: dict[str, Tensor]) -> Pair:
        return replace(prior, **{name: to[name](value) for name, value in values.items()})

    def evidence() -> Tensor:
        return torch.as_tensor(candidate(free).update(data, weight).log_evidence).sum()

    _climb(evidence, list(free.values()), steps)
    best = {name: value.detach() for name, value in free.items()}
    moves = [(best[name] - start[name]).abs().max() for name in names if _is_scale(limits[name])]
    moved = float(max(moves, default=0.0))
    if moved > RUNAWAY:
        raise Diverged(
            "empirical_bayes: the evidence must have a maximum; got one that goes on rising at "
            f"hyper-parameters {math.exp(moved):.1g} times those of the start. Fix some with "
            "only=..., or give more groups."
        )
    return candidate(best)


def _is_scale(limit: constraints.Constraint) -> bool:
    """Whether a hyper-parameter is bounded from below, and moves as a logarithm."""
    base = limit.base_constraint if isinstance(limit, type(VECTOR)) else limit
    return isinstance(base, type(constraints.positive))


def _climb(evidence: Callable[[], Tensor], free: list[Tensor], steps: int) -> None:
    """Maximize in place; an evidence without a maximum is reported, not returned."""
    optimizer = torch.optim.LBFGS(
        free,
        max_iter=steps,
        tolerance_grad=1e-9,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -evidence()
        loss.backward()
        return loss

    optimizer.step(closure)
    slope = max(float(v.grad.abs().max()) for v in free if v.grad is not None)
    if not all(torch.isfinite(v).all() for v in free) or slope > 1e-3:
        raise Diverged(
            f"empirical_bayes: the evidence must have a maximum; got a slope of {slope:.2g} after "
            f"{steps} steps. Fix some hyper-parameters with only=..., or give more groups."
        )
