r"""Can these importance weights be trusted? Effective sample size, Pareto k-hat, and the one place
where verdicts are made.

.. math:: \mathrm{ESS} = \frac{(\sum_i w_i)^2}{\sum_i w_i^2}, \qquad
          \mathrm{se}\big(\log \bar w\big) \approx \sqrt{1/\mathrm{ESS} - 1/n}
          (theory/scoring.md, eq. 5.3)

The thresholds are calibrated by the coverage test over random RBMs (tests/truth/test_coverage.py).
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.core.quantity import Verdict, worst

ESS_TIGHT, ESS_LOOSE = 0.10, 0.02  # share of the chains that carry the weight
KHAT_TIGHT, KHAT_LOOSE = 0.7, 1.0
GAP_TIGHT, GAP_LOOSE = 1.0, 4.0  # nats between forward and reverse annealing
# nats that modes which the forward side may have missed can add
ADDED_TIGHT, ADDED_LOOSE = 0.3, 0.7
# nats from a lower bound of log p(x) to the upper end of its interval
REACH_TIGHT, REACH_LOOSE = 0.25, 1.0
KHAT_NORMAL = 0.5  # tail index of what is averaged above which its variance is infinite
LEAST_FOR_TAIL = 25
MIN_ESS = 5.0  # below this a standard error means nothing


class WeightReport(NamedTuple):
    """log of the mean weight with its standard error, and how far to trust it."""

    log_mean: float
    se: float
    ess: float
    khat: float
    n: int


def summarize_weights(log_w: Tensor) -> WeightReport:
    """Summary of log weights ``(n,)`` in float64."""
    log_w = log_w.double()
    n = len(log_w)
    log_mean = float(torch.logsumexp(log_w, 0)) - math.log(n)
    ess = float(1 / torch.softmax(log_w, 0).square().sum())
    return WeightReport(log_mean, math.sqrt(max(0.0, 1 / ess - 1 / n)), ess, pareto_khat(log_w), n)


def pareto_khat(log_w: Tensor) -> float:
    """Shape of the generalized Pareto tail of the weights (Vehtari et al. 2024); below 0.7 the mean
    is reliable.

    nan where there are too few weights to have a tail; minus infinity where the largest are all
    alike, as on small supports.
    """
    from arviz_stats.base.array import array_stats

    if len(log_w) < LEAST_FOR_TAIL:
        return math.nan
    if float(log_w.max() - log_w.min()) < 1e-8:
        return -math.inf
    try:
        # ties at the threshold; tails so heavy that their quantiles overflow
        with np.errstate(all="ignore"):
            # it takes log-likelihoods, whose weights are 1 / p
            return float(array_stats.psislw(-log_w.cpu().numpy())[1])
    except ValueError:  # "All tail values are the same"
        return -math.inf


def verdict_on_weights(report: WeightReport) -> Verdict:
    """One side alone: from effective sample size and k-hat."""
    return worst(verdict_on_ess(report.ess, report.n), _below(report.khat, KHAT_TIGHT, KHAT_LOOSE))


def verdict_on_sandwich(forward: WeightReport, reverse: WeightReport, gap: float) -> Verdict:
    """Both sides: from their effective sample sizes and the distance between them; where the sides
    meet, heavy tails only loosen.
    """
    khats = [khat for khat in (forward.khat, reverse.khat) if not math.isnan(khat)]
    tails = max(khats, default=math.nan)
    verdict = worst(
        verdict_on_ess(forward.ess, forward.n),
        verdict_on_ess(reverse.ess, reverse.n),
        _below(abs(gap), GAP_TIGHT, GAP_LOOSE),
    )
    return worst(verdict, _below(tails, KHAT_TIGHT, math.inf))


def unseen(forward: Tensor, witnesses: Tensor) -> float:
    r"""log of what chains begun elsewhere show beyond the largest of C forward weights
    (theory/scoring.md, eq. 5.23).

    .. math:: Z_A = f_A \, \Big( E_{A}\big[ 1 / w \big] \Big)^{-1} \le \tfrac3C \, \max_{j \in A}
              w_j

    f_A is the share of forward annealings that end in A with such a weight; none of C did, so it is
    at most 3 / C with 95 % confidence. Both are log weights in the forward sense, ``(C,)`` and
    ``(m,)``. Minus infinity where no witness lies beyond.
    """
    highest = float(witnesses.max()) if len(witnesses) else -math.inf
    return highest + math.log(3 / len(forward)) if highest > float(forward.max()) else -math.inf


def verdict_on_unseen(added: float) -> Verdict:
    """From the nats that what was not seen may add; where they are not known, the worst."""
    return "do not publish" if math.isnan(added) else _below(added, ADDED_TIGHT, ADDED_LOOSE)


def verdict_on_reach(reach: float, cap: Verdict) -> Verdict:
    """A lower bound of log p(x), by how far above it log p(x) may lie; no better than ``cap``,
    which its own draws allow.
    """
    return worst(cap, _below(reach, REACH_TIGHT, REACH_LOOSE))


def tail_indices(terms: Tensor) -> tuple[float, float]:
    """Pareto k-hat of the left and the right tail of what is averaged, ``(n,)``; minus infinity
    where a tail has no spread.
    """
    return _tail_index(-terms), _tail_index(terms)


def _tail_index(terms: Tensor) -> float:
    from arviz_stats.base.array import array_stats

    if len(terms) < LEAST_FOR_TAIL:
        return math.nan
    spread = terms.std()
    if not spread > 0:
        return -math.inf
    try:
        with np.errstate(all="ignore"):  # ties at the threshold
            scaled = ((terms - terms.mean()) / spread).cpu().numpy()[None]
            khat = float(np.asarray(array_stats.pareto_khat(scaled, r_eff=1.0, tail="right")))
    except ValueError:  # a tail of equal values
        return -math.inf
    return -math.inf if math.isnan(khat) else khat


def verdict_on_ess(ess: float, n: int) -> Verdict:
    """From the share of the draws that carry the weight."""
    share = ess / n if ess >= MIN_ESS else 0.0
    return _below(-share, -ESS_TIGHT, -ESS_LOOSE)


def _below(value: float, tight: float, loose: float) -> Verdict:
    if math.isnan(value) or value <= tight:
        return "tight"
    return "loose" if value <= loose else "do not publish"
