r"""Expectations and integrals by sampling, each as a Quantity that knows how far to trust it.

.. math:: \hat I = \frac1n \sum_i w_i f(x_i), \qquad
          \hat I_{\mathrm{sn}} = \frac{\sum_i w_i f(x_i)}{\sum_i w_i}, \qquad w = p / q, \quad x_i \sim q
          (theory/bayes.md, eqs. 7.1 to 7.4)

The verdict is about the function, not the weights alone: k-hat is fitted to both tails of what is averaged, for weights that are fine
for one function may be hopeless for another. The interval reaches further on the side of a heavy tail, by what lies beyond the draws.

Letters: n draws, p target, q proposal, w weights, f function, g control variates, beta their coefficients.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from scipy import special
from torch import Tensor
from torch.distributions import Distribution

from partita.core import rng
from partita.core.checks import check_count, check_finite, check_level, check_real
from partita.core.errors import invalid
from partita.core.quantity import Quantity, Verdict, worst
from partita.diagnostics.weights import KHAT_NORMAL, tail_indices, verdict_on_ess, verdict_on_mean

Function = Callable[[Tensor], Tensor]  # (n, *event) -> (n,)
LogDensity = Callable[[Tensor], Tensor]

FOLDS = 5
STEEPEST = 0.9  # k-hat up to which the unseen part of a tail is reckoned with


def expectation(f: Function, p: Distribution, n: int, *, level: float = 0.95, generator: torch.Generator) -> Quantity:
    """E_p[f] from ``n`` draws of p itself (eq. 7.1).

    >>> from torch.distributions import Normal
    >>> q = expectation(lambda x: x**2, Normal(0.0, 1.0), 4000, generator=torch.Generator().manual_seed(0))
    >>> q.low < 1 < q.high, q.verdict
    (True, 'tight')
    """
    x = _draws("expectation", p, n, generator)
    return from_draws(_values("expectation", f, x), level=level)


def integral(f: Function, q: Distribution, n: int, *, level: float = 0.95, generator: torch.Generator) -> Quantity:
    """The integral of f over the support of q, as E_q[f / q] (eq. 7.2); with a uniform q it is the volume times the mean."""
    x = _draws("integral", q, n, generator)
    return from_draws(_values("integral", lambda x: f(x) * torch.exp(-q.log_prob(x)), x), level=level)


def importance(
    f: Function,
    log_p: LogDensity,
    q: Distribution,
    n: int,
    *,
    self_normalised: bool = False,
    level: float = 0.95,
    generator: torch.Generator,
) -> Quantity:
    """E_p[f] from ``n`` draws of q, weighed by p / q (eqs. 7.3 and 7.4).

    Arguments:
        f: What is averaged.
        log_p: Log density of the target; up to a constant where ``self_normalised``.
        q: The proposal; its tails should be heavier than those of p f.
        n: Number of draws.
        self_normalised: Divide by the sum of the weights: biased by O(1/n), and needed where p has no normaliser.
        level: With which the interval covers.
        generator: Source of the draws.
    """
    x = _draws("importance", q, n, generator)
    log_w = (log_p(x) - q.log_prob(x)).detach().double()
    return from_draws(_values("importance", f, x), log_w, self_normalised=self_normalised, level=level)


def from_draws(f: Tensor, log_w: Tensor | None = None, *, self_normalised: bool = False, level: float = 0.95) -> Quantity:
    """The estimate from values ``(n,)`` of f, and log weights ``(n,)`` if the draws are a proposal's.

    ``details`` has the standard error ``se``, the effective sample size ``ess`` and ``khat_weights`` of the weights, and ``khat`` of the
    function.
    """
    check_level("from_draws", level)
    f, log_w = f.detach().double(), torch.zeros_like(f, dtype=torch.float64) if log_w is None else log_w.detach().double()
    if bool((log_w.isnan() | (log_w == math.inf)).any()):
        remedy = "The proposal must have mass wherever the target has."
        raise invalid("importance", "log weights", "be below infinity", "nan or inf", remedy)
    peak = log_w.max()
    if peak == -math.inf:
        remedy = "The proposal must reach where the target has mass."
        raise invalid("importance", "log weights", "be above minus infinity for some draws", "none", remedy)
    w = torch.exp(log_w - peak)  # relative to the largest
    terms, value = _terms(f, w, float(peak), self_normalised)
    n, ess = len(f), float(w.sum() ** 2 / w.square().sum())
    se, tails = float(terms.std()) / math.sqrt(n), tail_indices(terms)
    below, above = unseen(terms, tails)
    effective = ess if self_normalised else float(n)  # a known normaliser leaves w f alone, whose tails are looked at themselves
    half = se * float(special.stdtrit(max(1.0, effective - 1), 0.5 + level / 2))  # Student's t
    details = {"se": se, "ess": ess, "khat": max(tails), "khat_weights": tail_indices(w)[1], "draws": n}
    method = "Monte Carlo" if bool((w == 1).all()) else "importance sampling"
    return Quantity(value, value - half - below, value + half + above, level, "estimate", "", method,
                    verdict=_verdict(max(tails), effective, n, se), details=details)  # fmt: skip


def unseen(terms: Tensor, tails: tuple[float, float]) -> tuple[float, float]:
    r"""What the tails beyond the smallest and the largest term may add to the mean, which no standard error sees (eq. 7.5).

    .. math:: \frac1n E[t \mid t > t_{\max}] \approx \frac{t_{\max}}{n\,(1 - k)}
    """
    away, n = terms - terms.mean(), len(terms)
    left, right = (min(max(k, 0.0), STEEPEST) if math.isfinite(k) else 0.0 for k in tails)
    return -float(away.min()) / (n * (1 - left)), float(away.max()) / (n * (1 - right))


def draws_needed(q: Quantity, error: float) -> float:
    r"""How many draws would bring the standard error of ``q`` down to ``error``, at its k-hat (eq. 7.6).

    .. math:: n' = n \left(\mathrm{se} / \mathrm{error}\right)^{1 / (1 - \max(k, 1/2))}, \qquad n' \ge 10^{1 / (1 - \max(k, 0))}

    The second is where k-hat's own theory begins to hold (Vehtari et al. 2024); from k = 1 on the mean is infinite and so is the answer.
    """
    check_real("draws_needed", "error", error, 0.0, open_low=True)
    k = q.details["khat"]
    k = 0.0 if math.isnan(k) else k
    if k >= 1:
        return math.inf
    by_error = q.details["draws"] * (q.details["se"] / error) ** (1 / (1 - max(k, KHAT_NORMAL)))
    return float(math.ceil(max(by_error, 10 ** (1 / (1 - max(k, 0.0))))))


def control_variates(
    f: Function, g: Function, g_mean: Tensor | Any, p: Distribution, n: int, *, level: float = 0.95, generator: torch.Generator
) -> Quantity:
    r"""E_p[f] with the help of functions whose mean is known (eq. 7.7).

    .. math:: \hat I = \frac1n \sum_i f(x_i) - \beta^\top (g(x_i) - E[g]), \qquad \beta^* = \mathrm{Cov}(g)^{-1} \mathrm{Cov}(g, f), \qquad
              \mathrm{Var}^* = \mathrm{Var} f - \mathrm{Cov}(f, g)^2 / \mathrm{Var}\, g

    Each fifth of the draws takes its beta from the other four, so that the estimate is unbiased. ``details`` has ``variance_ratio``
    (plain over controlled, per draw), ``cost_ratio`` (seconds a draw, controlled over plain) and ``gain``, the first over the second: how
    many times the plain draws of the same time one controlled draw is worth.

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
    x = _draws("control_variates", p, n, generator)
    values = _values("control_variates", f, x)
    plain = time.perf_counter()
    controls = g(x).detach().double().reshape(n, -1)
    check_finite("control_variates", "g(x)", controls)
    centred = controls - torch.as_tensor(g_mean, dtype=controls.dtype, device=controls.device)
    if n < 20 * centred.shape[1]:
        raise invalid("control_variates", "n", f"be at least 20 for each of {centred.shape[1]} control variates", n)
    residual = cross_fitted(values, centred)
    cost = (time.perf_counter() - started) / max(plain - started, 1e-9)
    q = from_draws(residual, level=level)
    ratio = float(values.var() / residual.var())
    return Quantity(q.value, q.low, q.high, level, "estimate", "", "Monte Carlo with control variates", verdict=q.verdict,
                    details={**q.details, "variance_ratio": ratio, "cost_ratio": cost, "gain": ratio / cost})  # fmt: skip


def cross_fitted(f: Tensor, g: Tensor) -> Tensor:
    """f - beta'g, ``(n,), (n, M) -> (n,)``, g of mean zero, beta of each fold by least squares on the others."""
    fold = torch.arange(len(f), device=f.device) % FOLDS
    out = torch.empty_like(f)
    for k in range(FOLDS):
        inside, others = fold == k, fold != k
        centre = g[others].mean(0)
        beta = torch.linalg.lstsq(g[others] - centre, (f[others] - f[others].mean())[:, None]).solution[:, 0]
        out[inside] = f[inside] - g[inside] @ beta
    return out


def _verdict(khat: float, effective: float, n: int, se: float) -> Verdict:
    """From the function's tails and the effective number of draws; terms that are all alike may hide a rare one."""
    return worst(verdict_on_mean(khat, n), verdict_on_ess(effective, n), "tight" if se > 0 else "loose")


def _terms(f: Tensor, w: Tensor, peak: float, self_normalised: bool) -> tuple[Tensor, float]:
    """What is averaged, one term a draw, and the estimate; the self-normalised ratio is linearised about itself."""
    if not self_normalised:
        terms = w * f * math.exp(peak)
        return terms, float(terms.mean())
    mean = (w * f).sum() / w.sum()
    return w * (f - mean) / w.mean(), float(mean)


def _draws(owner: str, q: Distribution, n: int, generator: torch.Generator) -> Tensor:
    check_count(owner, "n", n, 2)
    return rng.draw(q, generator, (n,))


def _values(owner: str, f: Function, x: Tensor) -> Tensor:
    values = f(x).detach()
    if values.shape != x.shape[:1]:
        raise invalid(owner, "f(x)", f"have one value per draw, shape ({len(x)},)", tuple(values.shape))
    check_finite(owner, "f(x)", values, remedy="")
    return values.double()
