r"""D_f between two ``torch.distributions`` objects, by the best way there is: a finite sum, a
closed form, quadrature, or draws.

Draws come half from p and half from q, so that no weight is above two:

.. math:: D_f(p \,\|\, q) = E_{m}\Big[\frac{2 f(t)}{1 + t}\Big], \qquad m = \tfrac12 (p + q),\; t =
          p/q
          (theory/divergences.md, eq. 15.8)

Letters: D width, t ratio p/q, v its log.
"""

import math
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, MultivariateNormal, Normal
from torch.nn.functional import pad

from partita.core import rng
from partita.core.arguments import Level, at_least, validated
from partita.core.quantity import DETERMINISTIC, Quantity
from partita.diagnostics.means import mean_quantity, pooled_terms
from partita.divergences.f_divergence import FDivergence, f_named, finite_divergence
from partita.divergences.kl import check_single, closed_form_kl, log_prob_anywhere

# what quadrature may overlook of either density, and its own estimate of its error
LOST_MASS, WORST_ERROR = 1e-6, 1e-8
# divergences that are a function of the integral of p^a q^(1 - a)
POWERS = {"hellinger": 0.5, "pearson": 2.0}


def f_divergence(
    f: str | FDivergence,
    p: Distribution,
    q: Distribution,
    *,
    draws: int = 20_000,
    level: float = 0.95,
    generator: torch.Generator,
) -> Quantity:
    """D_f(p || q) with its kind.

    Arguments:
        f: ``"kl"``, ``"reverse-kl"``, ``"total-variation"``, ``"jensen-shannon"`` (at most log 2),
            ``"hellinger"`` (squared, at most 1), ``"pearson"``, or ``"alpha-A"``.
        p, q: On the same finite support: summed. Normal: closed form where it exists. On the line:
            quadrature. Else estimated.
        draws: From p and q together, where it is estimated.

    >>> from torch.distributions import Bernoulli
    >>> print(
    ...     f_divergence(
    ...         "total-variation", Bernoulli(0.2), Bernoulli(0.5), generator=torch.Generator()
    ...     )
    ... )
    0.300 total variation, exact by sum over 2 states, tight
    """
    check_single("f_divergence", p, q)
    chosen = f_named(f, "f_divergence")
    if p.has_enumerate_support and q.has_enumerate_support:
        states = torch.unique(torch.cat([side.enumerate_support() for side in (p, q)]), dim=0)
        value = float(finite_divergence(chosen, _mass(p, states), _mass(q, states)))
        return Quantity(value, unit=chosen.unit, method=f"sum over {len(states)} states")
    closed = _closed_form(chosen, p, q)
    if closed is not None:
        return Quantity(closed, unit=chosen.unit, method="closed form")
    if p.event_shape == () and _on_the_line(p) and _on_the_line(q):
        integrated = _by_quadrature(chosen, p, q)
        if integrated is not None:
            return integrated
    return estimate_f_divergence(chosen, p, q, draws=draws, level=level, generator=generator)


@validated
@torch.no_grad()
def estimate_f_divergence(
    f: str | FDivergence,
    p: Distribution,
    q: Distribution,
    *,
    draws: Annotated[int, at_least(4)] = 20_000,
    level: Level = 0.95,
    generator: torch.Generator,
) -> Quantity:
    """D_f(p || q) from as many draws of p as of q, with an interval and a verdict from its tail."""
    chosen = f_named(f, "estimate_f_divergence")
    half = draws // 2
    x, y = (rng.draw(side, generator, (half,)) for side in (p, q))
    parts = [_terms(chosen, p, q, rows) for rows in (x, y)]
    value = float(sum(part.mean() for part in parts)) / 2
    if not math.isfinite(value):
        # infinite for sure where a draw of one lies outside the other and f is infinite there
        if (math.isinf(chosen.slope_at_infinity) and _leaves(q, x)) or (
            math.isinf(chosen.at_zero) and _leaves(p, y)
        ):
            method = "draws outside the other's support"
            return Quantity(value, unit=chosen.unit, method=method)
        method, verdict = "ratios beyond float64", "do not publish"
        return Quantity(value, kind="estimate", unit=chosen.unit, method=method, verdict=verdict)
    terms = pooled_terms(*((0.5, part) for part in parts))
    method = f"{2 * half} draws of both"
    return mean_quantity("estimate_f_divergence", terms, level, method, unit=chosen.unit)


def _leaves(side: Distribution, x: Tensor) -> bool:
    """Whether a row lies outside the support."""
    return bool(torch.isinf(log_prob_anywhere(side, x)).any())


def gaussian_power_integral(alpha: float, p: Distribution, q: Distribution) -> float:
    r"""log of the integral of p^a q^(1-a) between normals; infinite where it diverges
    (theory/divergences.md, eq. 15.7).
    """
    (m_p, S_p), (m_q, S_q) = _moments(p), _moments(q)
    A, B = alpha * torch.linalg.inv(S_p), (1 - alpha) * torch.linalg.inv(S_q)
    precision = A + B
    if float(torch.linalg.eigvalsh(precision).min()) <= 0:
        return math.inf
    field = A @ m_p + B @ m_q
    mixed = alpha * torch.logdet(S_p) + (1 - alpha) * torch.logdet(S_q)
    log_det = -0.5 * (mixed + torch.logdet(precision))
    exponent = field @ torch.linalg.solve(precision, field) - m_p @ A @ m_p - m_q @ B @ m_q
    return float(log_det + 0.5 * exponent)


def _terms(f: FDivergence, p: Distribution, q: Distribution, x: Tensor) -> Tensor:
    """2 f(t) / (1 + t) at each row, in float64, with the limits at t = 0 and t = infinity."""
    log_p, log_q = log_prob_anywhere(p, x), log_prob_anywhere(q, x)
    log_m = torch.logaddexp(log_p, log_q)
    # p/(p+q) and q/(p+q): a two-point problem at every row
    masses = torch.stack([log_p - log_m, log_q - log_m])
    return 2 * finite_divergence(f, masses[0, ..., None], masses[1, ..., None])


def _mass(side: Distribution, states: Tensor) -> Tensor:
    """log masses in float64; nothing where a state lies outside, or has no chance (torch rounds
    chances of zero up).
    """
    if isinstance(side, Bernoulli):
        zero = torch.where(states == 0, 1 - side.probs, 0.0)
        return torch.where(states == 1, side.probs, zero).double().log()
    if isinstance(side, Categorical):
        more = max(0, len(states) - side.probs.shape[-1])
        return pad(side.probs.double(), (0, more))[states.long()].log()
    return log_prob_anywhere(side, states)


def _closed_form(f: FDivergence, p: Distribution, q: Distribution) -> float | None:
    if f.name in ("kl", "reverse-kl"):
        return closed_form_kl(p, q) if f.name == "kl" else closed_form_kl(q, p)
    if not all(isinstance(side, Normal | MultivariateNormal) for side in (p, q)):
        return None
    (m_p, S_p), (m_q, S_q) = _moments(p), _moments(q)
    if f.name == "total-variation" and torch.equal(S_p, S_q):
        # erf of half the Mahalanobis distance over sqrt 2
        distance = float((m_p - m_q) @ torch.linalg.solve(S_p, m_p - m_q)) ** 0.5
        return math.erf(distance / (2 * math.sqrt(2)))
    alpha = POWERS.get(f.name)
    if f.name.startswith("alpha-"):
        alpha = float(f.name.removeprefix("alpha-"))
    if alpha is None:
        return None
    power = gaussian_power_integral(alpha, p, q)
    excess = math.inf if power > 700 else math.expm1(power)
    if f.name == "hellinger":
        return max(0.0, -excess)
    return excess if f.name == "pearson" else excess / (alpha * (alpha - 1))


def _moments(side: Distribution) -> tuple[Tensor, Tensor]:
    """Mean and covariance in float64, ``(D,), (D, D)``."""
    mean = side.mean.double().reshape(-1)
    if isinstance(side, MultivariateNormal):
        return mean, side.covariance_matrix.double()
    return mean, side.variance.reshape(1, 1).double()


def _on_the_line(side: Distribution) -> bool:
    return not getattr(side.support, "is_discrete", True)


@torch.no_grad()
def _by_quadrature(f: FDivergence, p: Distribution, q: Distribution) -> Quantity | None:
    """Adaptive quadrature in the log masses, cut around both; None where it cannot be trusted.

    It is trusted where no piece fails (divergent integrals and singular densities do) and both
    densities integrate to one over the same pieces, so that no mass is overlooked.
    """

    def log_masses(x: float) -> tuple[Tensor, Tensor]:
        at = torch.tensor([x], dtype=torch.float64)
        return log_prob_anywhere(p, at), log_prob_anywhere(q, at)

    edges = _edges(p, q)
    for side in (0, 1):
        mass = _integral(lambda x, side=side: float(log_masses(x)[side].exp()), edges)
        if mass is None or abs(mass[0] - 1) > LOST_MASS:
            return None
    found = _integral(lambda x: float(finite_divergence(f, *log_masses(x))), edges)
    if found is None:
        return None
    value, error = found
    reach = error + 1e-15 * (1 + abs(value)) if math.isfinite(value) else 0.0
    return Quantity(
        value,
        value - reach,
        value + reach,
        level=DETERMINISTIC,
        kind="estimate",
        unit=f.unit,
        method="quadrature",
        details={"quadrature_error": error},
    )


def _integral(function: Callable[[float], float], edges: list[float]) -> tuple[float, float] | None:
    """The sum over all pieces and its error; None where a piece fails. Infinity where the function
    is.
    """
    from scipy import integrate

    if not np.isfinite(edges).all():
        return None
    value = error = 0.0
    with warnings.catch_warnings(record=True) as failed:
        warnings.simplefilter("always")
        for a, b in pairwise(edges):
            piece = integrate.quad(function, a, b, epsabs=1e-12, epsrel=1e-10, limit=200)
            value, error = value + piece[0], error + piece[1]
    precise = math.isfinite(value) and error <= WORST_ERROR * max(1.0, abs(value)) and not failed
    return (value, error) if precise or value == math.inf else None


def _edges(p: Distribution, q: Distribution) -> list[float]:
    """Where the integral is cut: some deviations around both means, and the ends of both
    supports.
    """
    cuts: list[float] = []
    for side in (p, q):
        mean, deviation = float(side.mean), float(side.stddev)
        low, high = (
            float(getattr(side.support, end, sign * math.inf))
            for end, sign in (("lower_bound", -1), ("upper_bound", 1))
        )
        # heavy tails have no deviation, and then no place to cut
        with np.errstate(invalid="ignore"):
            inside = mean + deviation * np.array([-38, -10, -4, -2, -1, 0, 1, 2, 4, 10, 38])
        cuts += [float(np.clip(cut, low, high)) for cut in inside]
    return sorted(set(cuts))
