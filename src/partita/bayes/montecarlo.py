r"""Expectations and integrals by sampling, each as a Quantity that knows how far to trust it.

.. math:: \hat I = \frac1n \sum_i w_i f(x_i), \qquad
          \hat I_{\mathrm{sn}} = \frac{\sum_i w_i f(x_i)}{\sum_i w_i}, \qquad w = p / q, \quad x_i
          \sim q
          (theory/bayes.md, eqs. 7.1 to 7.4)

The verdict is about the function, not the weights alone: what is averaged is judged, for weights
that are fine for one function may be hopeless for another. :mod:`partita.diagnostics.means` does
it, for these and all other means of independent draws.

Letters: n draws, p target, q proposal, w weights, f function, g control variates, beta their
coefficients.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Distribution

from partita.core import rng
from partita.core.arguments import PositiveFloat, Several, check_finite, validated
from partita.core.quantity import Quantity, worst
from partita.diagnostics.means import judge, mean_quantity
from partita.diagnostics.weights import KHAT_NORMAL, tail_indices, verdict_on_ess
from partita.errors import invalid

Function = Callable[[Tensor], Tensor]  # (n, *event) -> (n,)
LogDensity = Callable[[Tensor], Tensor]

FOLDS = 5


@validated
def expectation(
    f: Function, p: Distribution, n: Several, *, level: float = 0.95, generator: torch.Generator
) -> Quantity:
    """E_p[f] from ``n`` draws of p itself (eq. 7.1).

    >>> from torch.distributions import Normal
    >>> q = expectation(
    ...     lambda x: x**2, Normal(0.0, 1.0), 4000, generator=torch.Generator().manual_seed(0)
    ... )
    >>> q.low < 1 < q.high, q.verdict
    (True, 'tight')
    """
    x = rng.draw(p, generator, (n,))
    return from_draws(_values("expectation", f, x), level=level)


@validated
def integral(
    f: Function, q: Distribution, n: Several, *, level: float = 0.95, generator: torch.Generator
) -> Quantity:
    """The integral of f over the support of q, as E_q[f / q] (eq. 7.2); with a uniform q it is the
    volume times the mean.
    """
    x = rng.draw(q, generator, (n,))
    return from_draws(
        _values("integral", lambda x: f(x) * torch.exp(-q.log_prob(x)), x), level=level
    )


@validated
def importance(
    f: Function,
    log_p: LogDensity,
    q: Distribution,
    n: Several,
    *,
    self_normalized: bool = False,
    level: float = 0.95,
    generator: torch.Generator,
) -> Quantity:
    """E_p[f] from ``n`` draws of q, weighed by p / q (eqs. 7.3 and 7.4).

    Arguments:
        f: What is averaged.
        log_p: Log density of the target; up to a constant where ``self_normalized``.
        q: The proposal; its tails should be heavier than those of p f.
        n: Number of draws.
        self_normalized: Divide by the sum of the weights: biased by O(1/n), and needed where p has
            no normalizer.
        level: With which the interval covers.
        generator: Source of the draws.
    """
    x = rng.draw(q, generator, (n,))
    log_w = (log_p(x) - q.log_prob(x)).detach().double()
    return from_draws(
        _values("importance", f, x), log_w, self_normalized=self_normalized, level=level
    )


def from_draws(
    f: Tensor, log_w: Tensor | None = None, *, self_normalized: bool = False, level: float = 0.95
) -> Quantity:
    """The estimate from values ``(n,)`` of f, and log weights ``(n,)`` if the draws are a
    proposal's.

    ``details`` has the standard error ``se``, the effective sample size ``ess`` and
    ``khat_weights`` of the weights, and of the function ``khat`` and ``carriers``, the number of
    draws that carry the deviation from the mean.
    """
    _check_draws(f, log_w)
    if log_w is None:
        q = mean_quantity("from_draws", f, level, "Monte Carlo", unit="")
        return replace(q, details={**q.details, "ess": float(len(f)), "khat_weights": -math.inf})
    log_w = log_w.detach().double()
    w = torch.exp(log_w - log_w.max())  # relative to the largest
    terms = _terms(f, log_w, self_normalized)
    q = mean_quantity("from_draws", terms, level, "importance sampling", unit="")
    ess = float(w.sum() ** 2 / w.square().sum())
    q = replace(q, details={**q.details, "ess": ess, "khat_weights": tail_indices(w)[1]})
    return _of_ratio(q, f, w, level) if self_normalized else q


@validated
def draws_needed(q: Quantity, error: PositiveFloat) -> float:
    r"""How many draws would bring the standard error of ``q`` down to ``error``, at its k-hat (eq.
    7.6).

    .. math:: n' = n \left(\mathrm{se} / \mathrm{error}\right)^{1 / (1 - \max(k, 1/2))}, \qquad n'
              \ge 10^{1 / (1 - \max(k, 0))}

    The second is where k-hat's own theory begins to hold (Vehtari et al. 2024); from k = 1 on the
    mean is infinite and so is the answer.
    """
    k = q.details["khat"]
    k = 0.0 if math.isnan(k) else k
    if k >= 1:
        return math.inf
    by_error = q.details["draws"] * (q.details["se"] / error) ** (1 / (1 - max(k, KHAT_NORMAL)))
    return float(math.ceil(max(by_error, 10 ** (1 / (1 - max(k, 0.0))))))


@validated
def control_variates(
    f: Function,
    g: Function,
    g_mean: ArrayLike,
    p: Distribution,
    n: Several,
    *,
    level: float = 0.95,
    generator: torch.Generator,
) -> Quantity:
    r"""E_p[f] with the help of functions whose mean is known (eq. 7.7).

    .. math:: \hat I = \frac1n \sum_i f(x_i) - \beta^\top (g(x_i) - E[g]), \qquad \beta^* =
              \mathrm{Cov}(g)^{-1} \mathrm{Cov}(g, f), \qquad
              \mathrm{Var}^* = \mathrm{Var} f - \mathrm{Cov}(f, g)^2 / \mathrm{Var}\, g

    Each fifth of the draws takes its beta from the other four, so that the estimate is unbiased.
    What is judged is what the control variates leave, f - beta' g, whose tail may be heavier than
    that of f: where it earns a worse verdict than f alone and no narrower interval to trust, f
    alone is averaged, and ``details["controlled"]`` is False. ``details`` also has
    ``variance_ratio`` (plain over controlled, per draw), ``cost_ratio`` (seconds a draw, controlled
    over plain) and ``gain``, the first over the second: how many times the plain draws of the same
    time one controlled draw is worth.

    Arguments:
        f: What is averaged.
        g: ``(n, *event) -> (n,)`` or ``(n, M)``: the control variates.
        g_mean: E_p[g].
        p: Where draws come from.
        n: Number of draws, at least 20 for every control variate.
        level: With which the interval covers.
        generator: Source of the draws.
    """
    started = time.perf_counter()
    x = rng.draw(p, generator, (n,))
    values = _values("control_variates", f, x).double()
    plain = time.perf_counter()
    controls = g(x).detach().double().reshape(n, -1)
    check_finite("control_variates", "g(x)", controls)
    centered = controls - torch.as_tensor(g_mean, dtype=controls.dtype, device=controls.device)
    if n < 20 * centered.shape[1]:
        allowed = f"be at least 20 for each of {centered.shape[1]} control variates"
        raise invalid("control_variates", "n", allowed, n)
    residual = cross_fitted(values, centered)
    cost = (time.perf_counter() - started) / max(plain - started, 1e-9)
    method = "Monte Carlo, control variates left out"
    alone = mean_quantity("control_variates", values, level, method, unit="")
    method, scale = "Monte Carlo with control variates", float(values.std())
    q = mean_quantity("control_variates", residual, level, method, unit="", scale=scale)
    kept = worst(alone.verdict, q.verdict) == alone.verdict or (q.trusted and q.width < alone.width)
    ratio = float(values.var() / residual.var())
    best = q if kept else alone
    gains = {"variance_ratio": ratio, "cost_ratio": cost, "gain": ratio / cost, "controlled": kept}
    return replace(best, details={**best.details, **gains})


def cross_fitted(f: Tensor, g: Tensor) -> Tensor:
    """f - beta'g, ``(n,), (n, M) -> (n,)``, g of mean zero, beta of each fold by least squares on
    the others.
    """
    fold = torch.arange(len(f), device=f.device) % FOLDS
    out = torch.empty_like(f)
    for k in range(FOLDS):
        inside, others = fold == k, fold != k
        away = (f[others] - f[others].mean())[:, None]
        beta = torch.linalg.lstsq(g[others] - g[others].mean(0), away).solution[:, 0]
        out[inside] = f[inside] - g[inside] @ beta
    return out


def _of_ratio(q: Quantity, f: Tensor, w: Tensor, level: float) -> Quantity:
    """What the weights' own sum adds to the verdict; of a function that is the same at all draws,
    as many as the effective ones are.
    """
    ess = q.details["ess"]
    if (f == f[0]).all():
        alike = np.full(max(2, int(ess)), float(f[0]))
        found = judge(alike, level, known=f.dtype == torch.bool)
        verdict = worst(found.verdict, verdict_on_ess(ess, len(f)))
        return replace(q, value=float(f[0]), low=found.low, high=found.high, verdict=verdict)
    of_weights = judge(w.cpu().numpy(), level).verdict
    return replace(q, verdict=worst(q.verdict, of_weights, verdict_on_ess(ess, len(f))))


def _terms(f: Tensor, log_w: Tensor, self_normalized: bool) -> Tensor:
    """What is averaged, one term a draw; the self-normalized ratio is linearized about itself."""
    if not self_normalized:
        return f if (log_w == 0).all() else f * torch.exp(log_w)
    share, f = len(f) * torch.softmax(log_w, 0), f.double()
    mean = (share * f).mean()
    return mean + share * (f - mean)


def _check_draws(f: Tensor, log_w: Tensor | None) -> None:
    """At least two values, and as many log weights that are no error; the proposal must have mass
    wherever the target has.
    """
    if f.dim() != 1 or len(f) < 2:
        allowed, got = "hold at least two values, one per draw", f"shape {tuple(f.shape)}"
        raise invalid("from_draws", "f", allowed, got, "Take more draws.")
    if log_w is None:
        return
    if log_w.shape != f.shape:
        allowed = f"have one value per draw, shape ({len(f)},)"
        raise invalid("from_draws", "log_w", allowed, tuple(log_w.shape))
    if (log_w.isnan() | (log_w == math.inf)).any():
        remedy = "The proposal must have mass wherever the target has."
        raise invalid("importance", "log weights", "be below infinity", "nan or inf", remedy)
    if (log_w == -math.inf).all():
        allowed = "be above minus infinity for some draws"
        remedy = "The proposal must reach where the target has mass."
        raise invalid("importance", "log weights", allowed, "none", remedy)


def _values(owner: str, f: Function, x: Tensor) -> Tensor:
    """f at the draws, in float64; an indicator stays one."""
    values = f(x).detach()
    if values.shape != x.shape[:1]:
        allowed = f"have one value per draw, shape ({len(x)},)"
        raise invalid(owner, "f(x)", allowed, tuple(values.shape))
    check_finite(owner, "f(x)", values, remedy="")
    return values if values.dtype == torch.bool else values.double()
