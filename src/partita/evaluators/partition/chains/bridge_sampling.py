r"""Bridge sampling: log Z from draws x of the target and draws y of a normalized density q that was
fitted to other draws of the target (Meng and Wong 1996; Gronau et al. 2017).

.. math:: s_q \frac1m \sum_j \sigma\big(w(y_j) - \Delta + c\big)
          = s_p \frac1n \sum_i \sigma\big(\Delta - c - w(x_i)\big), \qquad
          w = \log f - \log q, \quad c = \log \frac{s_p}{s_q}, \quad \Delta = \log Z
          (theory/evidence.md, eq. 60.6)

s_p and s_q are the shares of effective draws of either kind. Zero density at y adds nothing to the
left: no bound of the target need be known.

.. math:: \mathrm{se}^2 = \frac{\mathrm{Var}\, \sigma_y}{m\, \bar\sigma_y^2}
          + \frac{\mathrm{Var}\, \sigma_x}{\mathrm{ESS}\, \bar\sigma_x^2}
          (theory/evidence.md, eq. 60.7)

Letters: C chains, n draws of each, m draws of the proposal, D coordinates.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import stdtrit
from torch import Tensor

from partita.core.batched import Batched
from partita.diagnostics.chains import DRAWS_PER_DEGREE
from partita.evaluators.partition.chains.fitted_mixture import FittedMixture, fit_mixture

SCARCE = 0.5  # share of proposals with some density below which more are drawn
MOST_TIMES = 8  # as many proposals as draws, at most


class BridgeEstimate(NamedTuple):
    """log Z from one half of the draws, with a proposal that was fitted to the other."""

    log_z: float
    se_draws: float  # from the draws of the target
    se_proposed: float  # from those of the proposal
    degrees: float  # of freedom of the error
    overlap: float  # of target and proposal, up to 1 where they are the same
    by_chain: Tensor  # log Z with the draws of one chain alone, (C,)
    proposal: FittedMixture
    drawn: Tensor  # of the proposal, (m, D)
    log_w: Tensor  # log f - log q at them, (m,)

    @property
    def se(self) -> float:
        """The standard error (60.7)."""
        return math.hypot(self.se_draws, self.se_proposed)


def effective(values: Tensor) -> float:
    """Effective number of draws for the mean of a series ``(C, n)``; at most as many as there are,
    though a mean over chains that swing to and fro is known better.
    """
    from arviz_stats.base.array import array_stats

    if not float(values.max() - values.min()) > 0:
        return float(values.numel())
    ess = float(np.asarray(array_stats.ess(values.cpu().numpy(), method="mean")))
    return max(1.0, min(ess, values.numel())) if not math.isnan(ess) else 1.0


def student(se: float, degrees: float, level: float) -> float:
    """Half the interval of an error that is known from few effective draws (5.20)."""
    return float(stdtrit(max(2.0, degrees), 0.5 + level / 2)) * se


def bridge(
    fitted_to: Tensor,
    x: Tensor,
    log_f: Tensor,
    target: Batched,
    *,
    generator: torch.Generator,
) -> BridgeEstimate:
    """log Z from draws ``x`` ``(C, n, D)`` where the log density is ``log_f`` ``(C, n)``, and a
    proposal fitted to the draws ``fitted_to`` ``(C, n', D)``.
    """
    q = fit_mixture(fitted_to.flatten(0, 1), generator=generator)
    w_x = log_f - q.log_density(x.flatten(0, 1)).view_as(log_f)
    drawn, w_y = _proposed(q, log_f.numel(), target, generator)
    known = effective(w_x)
    delta, sigma_x, sigma_y = solve(w_x, w_y, known)
    ess = effective(sigma_x)
    by_chain = delta + sigma_x.mean().log() - sigma_x.mean(1).clamp_min(1e-300).log()
    return BridgeEstimate(
        delta,
        _relative_deviation(sigma_x) / math.sqrt(ess),
        _relative_deviation(sigma_y) / math.sqrt(len(sigma_y)),
        ess / DRAWS_PER_DEGREE,
        float(sigma_y.mean()) * (known + len(w_y)) / known,
        by_chain,
        q,
        drawn,
        w_y,
    )


def _proposed(
    q: FittedMixture, n: int, target: Batched, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draws of the proposal and log f - log q there; more of them where many have no density."""
    drawn = q.draw(n, generator)
    log_f = target(drawn)
    inside = float((log_f > -math.inf).double().mean())
    if inside < SCARCE:
        more = q.draw(n * min(MOST_TIMES - 1, math.ceil(1 / max(inside, 1e-9))), generator)
        drawn, log_f = torch.cat([drawn, more]), torch.cat([log_f, target(more)])
    return drawn, log_f - q.log_density(drawn)


def solve(w_x: Tensor, w_y: Tensor, ess: float) -> tuple[float, Tensor, Tensor]:
    """Delta of (60.6), and the terms of both of its sides.

    Minus infinity where no draw of the proposal has a density.
    """
    share = ess / (ess + len(w_y))
    c = math.log(share) - math.log1p(-share)
    known = w_y[w_y > -math.inf]
    if not len(known):
        return -math.inf, torch.ones_like(w_x), torch.zeros_like(w_y)

    def sides(delta: float) -> tuple[Tensor, Tensor]:
        return torch.sigmoid(delta - c - w_x), torch.sigmoid(w_y - delta + c)

    def balance(delta: float) -> float:
        of_x, of_y = sides(delta)
        return float((1 - share) * of_y.mean() - share * of_x.mean())

    ends = torch.cat([w_x.flatten(), known])
    # where one side is all but its limit, whatever the shares
    reach = abs(c) + math.log(ends.numel() + 2.0) + 30.0
    low, high = float(ends.min()) - reach, float(ends.max()) + reach
    delta = float(np.asarray(brentq(balance, low, high, xtol=1e-10)))
    return delta, *sides(delta)


def _relative_deviation(values: Tensor) -> float:
    return float(values.std() / values.mean().clamp_min(1e-300))
