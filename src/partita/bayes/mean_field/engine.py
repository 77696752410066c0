r"""Coordinate ascent over the factors of q, for any log joint that is conjugate in each of them.

.. math:: \log q_j(\theta_j) = E_{q_{i \ne j}}[\log p(X, \theta)] + \text{const}, \qquad
          \mathcal L(q) = E_q[\log p(X, \theta)] + \sum_j H[q_j] = \log p(X) - KL(q \,\|\, p)
          (theory/bayes.md, eqs. 9.1 and 9.2)

Where the model is conjugate, log p(X, theta) is affine in the statistics t_j of every factor by
itself. The model is therefore written once, as a function L(s_1, ..., s_m) of the factors'
statistics, all constants kept: at t it is the log joint, at E_q[t] its expectation, and its
gradient in s_j is the natural parameter of the best q_j. That the gradient does not depend on s_j
itself is what conjugacy means, and is checked.

Letters: j factors, s expected statistics, eta natural parameters, H entropy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from partita.bayes.mean_field.factors import Factor, Statistics
from partita.core.arguments import NonNegativeFloat, PositiveInt, validated
from partita.errors import Diverged, Unsupported, invalid

Factors = dict[str, Factor]
LogJoint = Callable[[dict[str, Statistics]], Tensor]

AFFINE = 1e-6  # relative change of a natural parameter that counts as rounding
SLACK = 1e-9  # relative fall of the ELBO that counts as rounding


@dataclass(frozen=True)
class MeanField:
    """What coordinate ascent leaves.

    Arguments:
        factors: q_j by name.
        elbo: The lower bound on the log evidence after each sweep; the first is the start's.
        converged: Whether the last sweep gained no more than the tolerance.
    """

    factors: Factors
    elbo: list[float]
    converged: bool


def elbo(log_joint: LogJoint, q: Mapping[str, Factor]) -> Tensor:
    """The evidence lower bound of q, with all constants (eq. 9.2)."""
    expected = log_joint({name: factor.statistics() for name, factor in q.items()})
    return expected + sum(factor.entropy() for factor in q.values())


def natural_parameters(
    log_joint: LogJoint, statistics: Mapping[str, Statistics], name: str
) -> Statistics:
    """The natural parameters of the best q_j given the others: the gradient of the expected log
    joint in its statistics (eq. 9.3).
    """
    own = {key: s.detach().requires_grad_() for key, s in statistics[name].items()}
    with torch.enable_grad():
        value = log_joint({**statistics, name: own})
        if not value.requires_grad:
            raise Unsupported(f"Mean field: factor {name!r} does not appear in the log joint.")
        gradients = torch.autograd.grad(
            value, list(own.values()), allow_unused=True, materialize_grads=True
        )
    return dict(zip(own, gradients, strict=True))


def update(log_joint: LogJoint, q: Factors, name: str) -> Factors:
    """q with one factor replaced by the best given the others (eq. 9.1)."""
    statistics = {other: factor.statistics() for other, factor in q.items()}
    try:
        return {**q, name: q[name].with_natural(natural_parameters(log_joint, statistics, name))}
    except ValueError as error:
        raise Unsupported(
            f"Mean field: factor {name!r} breaks conjugacy: its update is no "
            f"{type(q[name]).__name__} ({error})."
        ) from None


def check_conjugacy(log_joint: LogJoint, q: Factors) -> None:
    """Raise :class:`Unsupported` naming the first factor in whose statistics the log joint is not
    affine.

    Affine means that the gradient stays where it is when the statistics move; it is looked at in
    two places.
    """
    statistics = {name: factor.statistics() for name, factor in q.items()}
    for name in q:
        here = natural_parameters(log_joint, statistics, name)
        moved = {**statistics, name: {key: _moved(s) for key, s in statistics[name].items()}}
        there = natural_parameters(log_joint, moved, name)
        for key, eta in here.items():
            change = (there[key] - eta).abs().max()
            if not change <= AFFINE * (1 + eta.abs().max()):
                raise Unsupported(
                    f"Mean field: factor {name!r} breaks conjugacy: the log joint is not affine in "
                    f"its statistic {key!r}, so the best factor is no {type(q[name]).__name__}. "
                    "Choose a conjugate prior for it, or sample."
                )


@validated
@torch.no_grad()
def coordinate_ascent(
    log_joint: LogJoint,
    q: Factors,
    *,
    sweeps: PositiveInt = 1000,
    tolerance: NonNegativeFloat = 1e-9,
) -> MeanField:
    """Update the factors in turn, in the order of ``q``, until a sweep gains no more than
    ``tolerance`` nats relative to the ELBO.

    >>> from partita.bayes.mean_field import GammaFactor
    >>> rate = GammaFactor(torch.tensor(1.0).double(), torch.tensor(1.0).double())
    >>> result = coordinate_ascent(
    ...     lambda s: 4 * s["rate"]["log"] - 3 * s["rate"]["value"], {"rate": rate}
    ... )
    >>> float(result.factors["rate"].a), float(result.factors["rate"].b)
    (5.0, 3.0)
    """
    if not q:
        raise invalid("coordinate_ascent", "q", "have at least one factor", "none")
    check_conjugacy(log_joint, q)
    bounds = [float(elbo(log_joint, q))]
    for _ in range(sweeps):
        for name in q:
            q = update(log_joint, q, name)
        bounds.append(_checked(float(elbo(log_joint, q)), bounds[-1]))
        if bounds[-1] - bounds[-2] <= tolerance * (1 + abs(bounds[-1])):
            return MeanField(q, bounds, True)
    return MeanField(q, bounds, False)


def _moved(s: Tensor) -> Tensor:
    """Other values of about the same size, each moved by its own amount."""
    place = torch.arange(s.numel()).to(s).reshape(s.shape)
    return s + (0.1 + 0.1 * s.abs()) * (1.5 + torch.sin(1 + place))


def _checked(now: float, before: float) -> float:
    """An ELBO that falls, or is no number, means that the log joint is not the one the factors were
    made for.
    """
    if not now >= before - SLACK * (1 + abs(before)):
        raise Diverged(
            f"coordinate_ascent: the ELBO must never fall; got {now:.9g} after {before:.9g}. Look "
            "for huge or constant columns."
        )
    return now
