r"""The mean of independent terms as a Quantity: how far its interval must reach, and whether enough
of the terms carry it.

.. math:: c = \frac{(\sum_i d_i^2)^2}{\sum_i d_i^4}, \qquad d_i = t_i - \bar t, \qquad
          E[t] = E[\min(t, u)] + P(t > u)\, e, \quad e = \frac{\sigma}{1 - k}
          (theory/bayes.md, eqs. 7.5 and 7.8)

Three things bound the mean, and the interval is as wide as the widest. Student's t; Hall's
correction for skewness; and on each side a generalized Pareto tail, whose mean excess e goes as far
as its likelihood allows. Terms of two values get Clopper and Pearson's interval. The verdict counts
the carriers c and asks how heavy the tail may be at most. Its thresholds, here alone, are
calibrated by tests/truth/test_means.py.

Letters: n terms t, level of the interval, u threshold of a tail, M terms beyond it, e their mean
excess, k shape, sigma scale.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy import special
from torch import Tensor

from partita.core.arguments import check_level
from partita.core.quantity import Kind, Quantity, Verdict
from partita.diagnostics.weights import LEAST_FOR_TAIL, tail_indices
from partita.errors import invalid

TIGHT_CARRIERS, LOOSE_CARRIERS = 30.0, 5.0
# of the heaviest tail that the terms allow: variance finite, mean finite
TIGHT_SHAPE, LOOSE_SHAPE = 0.55, 0.95
# deviations of the likelihood up to which a tail is allowed, by 1 + FEW / M^2 more where it has few
# terms
SURE, FEW = 2.25, 15.0
# how much further than Student's t the search for heavy tails goes
FURTHER = {"tight": 1.2, "loose": 1.3, "do not publish": 1.0}
WIDEST = 4.0  # times Student's half-width: beyond it the tail is not known
LEAST_IN_TAIL, LEAST_HIGHER = 10, 20  # terms beyond the threshold; beyond one that was raised
# about the 1 % point of the distance times sqrt M, both parameters fitted; shape of a tail that
# ends
KOLMOGOROV, SHORT = 1.1, -0.2
# k / sigma, over the median; below 0 of the steepest
SLOPES = np.concatenate([np.linspace(-1, 0, 12)[:-1], np.linspace(0.02, 2.0, 40)])
# mean excess over the median one: from a shape of about -1 to 0.95
EXCESSES = np.geomspace(0.6, 25, 100)
ROUNDING = 1e-12  # spread of terms over their size, at which they are all alike


class Judged(NamedTuple):
    """Ends of the interval, the verdict, how many terms carry the mean, and the heaviest tail that
    they allow.
    """

    low: float
    high: float
    verdict: Verdict
    carriers: float
    heaviest: float


def mean_quantity(
    owner: str,
    terms: Tensor,
    level: float,
    method: str,
    *,
    kind: Kind = "estimate",
    unit: str = "nats",
    scale: float | None = None,
) -> Quantity:
    """The mean of independent ``terms`` ``(n,)`` with its interval and verdict; the one way from
    draws to a Quantity.

    ``details`` has the standard error ``se``, ``khat`` of the heavier tail, ``carriers`` and
    ``draws``.

    Arguments:
        owner: The function that an error names.
        terms: What is averaged; of dtype bool where it is an indicator, which then may have no
            event and an interval all the same.
        level: With which the interval covers.
        method, kind, unit: Of the Quantity.
        scale: The size of an unseen term where all that were seen are alike; None takes their own.

    >>> print(mean_quantity("f", torch.zeros(2000, dtype=torch.bool), 0.95, "Monte Carlo", unit=""))
    0.000  [0.000, 0.002], estimate by Monte Carlo, loose
    """
    check_level(owner, level)
    t = check_terms(owner, terms)
    said = judge(t, level, known=terms.dtype == torch.bool, scale=scale)
    khat = max(tail_indices(torch.from_numpy(t)), key=lambda k: -math.inf if math.isnan(k) else k)
    size = float(np.abs(t).max()) or 1.0
    se = size * float((t / size).std(ddof=1)) / math.sqrt(len(t))
    details = {"se": se, "khat": khat, "carriers": said.carriers, "draws": len(t)}
    return Quantity(
        size * float((t / size).mean()),
        said.low,
        said.high,
        level,
        kind,
        unit,
        method,
        verdict=said.verdict,
        details=details,
    )


def check_terms(owner: str, terms: Tensor) -> np.ndarray:
    """The terms in float64: at least two, all finite."""
    if terms.dim() != 1 or len(terms) < 2:
        raise invalid(
            owner,
            "terms",
            "be at least two in a row",
            f"shape {tuple(terms.shape)}",
            "Take more draws.",
        )
    t = terms.detach().double().cpu().numpy()
    bad = np.flatnonzero(~np.isfinite(t))
    if len(bad):
        remedy = "Rescale the function, or give weights as logarithms that do not overflow."
        raise invalid(owner, "terms", "be finite", f"{t[bad[0]]} at draw {bad[0]}", remedy)
    return t


def pooled_terms(*groups: tuple[float, Tensor]) -> Tensor:
    """Terms whose mean is that of sum_g c_g mean(t_g), and so are its variance and its skewness, of
    independent samples t_g.

    >>> pooled_terms((1.0, torch.tensor([1.0, 3.0])), (-1.0, torch.tensor([1.0, 1.0])))
    tensor([-1.,  3.,  1.,  1.], dtype=torch.float64)
    """
    means = [part.double().mean() for _, part in groups]
    total = sum(c * m for (c, _), m in zip(groups, means, strict=True))
    n = sum(len(part) for _, part in groups)
    return torch.cat(
        [
            total + n * c / len(part) * (part.double() - m)
            for (c, part), m in zip(groups, means, strict=True)
        ]
    )


def judge(
    t: np.ndarray, level: float, *, known: bool = False, scale: float | None = None
) -> Judged:
    """Interval and verdict for the mean of terms ``(n,)``; ``known`` says that they are an
    indicator's.
    """
    values = np.unique(t[:LEAST_FOR_TAIL]) if len(t) > LEAST_FOR_TAIL else np.unique(t)
    values = np.unique(t) if len(values) <= 2 else values
    if len(values) <= 2 and (known or _two_valued(t, values)):
        return _indicator(t, level, known)
    if t.std() <= ROUNDING * max(np.abs(t).max(), scale or 0.0):
        return _constant(t, level, scale)
    return _general(t, level)


def _two_valued(t: np.ndarray, values: np.ndarray) -> bool:
    """Zeros and ones, or two values each of which came twice: one that came once may be of any size
    the next time.
    """
    if np.isin(values, (0.0, 1.0)).all():
        return True
    return len(values) == 2 and min((t == values[0]).sum(), (t == values[1]).sum()) > 1


def _indicator(t: np.ndarray, level: float, known: bool) -> Judged:
    """Clopper and Pearson's interval. Without an event only an indicator that says so has a known
    size of event.
    """
    a, b = (float(t.min()), float(t.max())) if t.min() < t.max() else (0.0, 1.0)
    n, hits = len(t), int((t == b).sum())
    fewer, tail = min(hits, n - hits), (1 - level) / 2
    low = float(special.betaincinv(hits, n - hits + 1, tail)) if hits else 0.0
    high = float(special.betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    verdict: Verdict = (
        "tight" if fewer >= TIGHT_CARRIERS else "loose" if fewer or known else "do not publish"
    )
    return Judged(a + (b - a) * low, a + (b - a) * high, verdict, float(fewer), -math.inf)


def _constant(t: np.ndarray, level: float, scale: float | None) -> Judged:
    """Terms that are all alike: one of another size may have a share of up to 3.7 / n (at level
    0.95).
    """
    size = float(np.abs(t).max()) if scale is None else scale
    half = size * -math.expm1(math.log((1 - level) / 2) / len(t))
    return Judged(
        float(t.mean()) - half,
        float(t.mean()) + half,
        "loose" if scale is None else "tight",
        float(len(t)),
        -math.inf,
    )


def _general(t: np.ndarray, level: float) -> Judged:
    size = float(np.abs(t).max())  # taken off, so that squares do not overflow
    said = _of_size_one(t / size, level)
    return said._replace(low=size * said.low, high=size * said.high)


def _of_size_one(t: np.ndarray, level: float) -> Judged:
    n, mean, d = len(t), float(t.mean()), t - t.mean()
    square = float(np.square(d).mean())
    se = float(t.std(ddof=1)) / math.sqrt(n)
    z = float(special.stdtrit(n - 1, 0.5 + level / 2))
    relative = d / math.sqrt(square)
    carriers, skew = n / float((relative**4).mean()), float((relative**3).mean()) / math.sqrt(n)
    below, above = tail_of(-t), tail_of(t)
    heaviest = max(tail.heaviest() for tail in (below, above))
    verdict = _verdict(n, carriers, heaviest)
    low, high = mean - se * max(z, _hall(z, skew)), mean + se * max(z, -_hall(-z, skew))
    low, high = min(low, -below.end(z, FURTHER[verdict])), max(high, above.end(z, FURTHER[verdict]))
    wide = max(high - mean, mean - low) > WIDEST * z * se
    return Judged(low, high, "do not publish" if wide else verdict, carriers, heaviest)


def _verdict(n: int, carriers: float, heaviest: float) -> Verdict:
    """From how many terms carry the mean and the heaviest tail that they allow."""
    if n < LEAST_FOR_TAIL or carriers < LOOSE_CARRIERS:
        return "do not publish"
    if carriers >= TIGHT_CARRIERS and heaviest < TIGHT_SHAPE:
        return "tight"
    return "loose" if heaviest < LOOSE_SHAPE else "do not publish"


def _hall(z: float, skew: float) -> float:
    """The quantile z of Student's statistic of a mean whose skewness is ``skew`` (Hall 1992)."""
    return z if abs(skew) < 1e-6 else 3 / skew * (float(np.cbrt(1 + skew * (z - skew / 6))) - 1)


class Tail(NamedTuple):
    """The generalized Pareto tail of terms beyond u, for each slope k / sigma and mean excess e:
    ``(S, E)``, or ``(E,)``.
    """

    drop: np.ndarray  # twice the log-likelihood below its maximum
    shape: np.ndarray  # k
    mean: np.ndarray  # of all terms, if the mean excess is e
    se: np.ndarray  # of that, from the terms below u and the share above
    # more where the tail has few terms; without a grid, whether it may be heavy all the same
    allowance: float

    def heaviest(self) -> float:
        """The largest k that the likelihood allows; 1 where the mean excess has no end."""
        if not self.drop.size:
            return 1.0 if self.allowance else -math.inf
        allowed = self.drop <= (SURE * self.allowance) ** 2
        return 1.0 if allowed[:, -1].any() else float(self.shape[allowed].max())

    def end(self, z: float, further: float) -> float:
        """The upper end of the mean: e goes ``further`` than the rest, which stays within z
        standard errors.
        """
        if not self.drop.size:
            return -math.inf
        left = (further * z) ** 2 - self.drop.min(0)
        return float(
            (self.mean + self.se * np.minimum(z, np.sqrt(np.maximum(left, 0.0))))[left >= 0].max()
        )


def tail_of(t: np.ndarray) -> Tail:
    """The upper tail beyond the lowest threshold from which it is a generalized Pareto's, as far as
    a Kolmogorov-Smirnov test can tell.
    """
    n = len(t)
    most = math.ceil(min(n / 5, 3 * math.sqrt(n)))
    top = np.sort(np.partition(t, n - 1 - most)[n - 1 - most :])
    u, x = top[0], top[:0]
    for count in (most // 2**i for i in range(4) if i == 0 or most // 2**i >= LEAST_HIGHER):
        u, x = _beyond(top, count)
        if len(x) < LEAST_IN_TAIL or _fits(x):
            break
    if len(x) < LEAST_IN_TAIL:
        # two that are alike and largest speak for a bound
        none, alone = np.empty(0), len(x) and (x[-1:] > x[:-1]).all()
        return Tail(none, none, none, none, math.inf if alone else 0.0)
    return _on_a_grid(t, u, x)


def _beyond(top: np.ndarray, count: int) -> tuple[float, np.ndarray]:
    """The threshold that at most ``count`` of the sorted terms exceed, and by how much; half-way to
    the next, for values on a lattice.
    """
    u = top[len(top) - 1 - count]
    x = top[top > u]
    u = (u + x[0]) / 2 if len(x) else u
    return float(u), x - u


def _slopes(x: np.ndarray) -> np.ndarray:
    middle = float(np.median(x))
    return (
        np.where(SLOPES < 0, -SLOPES * max(-0.999 * middle / float(x[-1]), -0.45), SLOPES) / middle
    )


def _fits(x: np.ndarray) -> bool:
    """Whether sorted excesses ``(M,)`` may be draws of the generalized Pareto law that is likeliest
    for them, or have a near end.
    """
    slope = _slopes(x)
    logs = np.log1p(slope[:, None] * x)
    k = logs.mean(1)
    best = int(np.argmin(np.log(k / slope) + k))
    below = -np.expm1(-logs[best] / k[best])
    seen = (np.searchsorted(x, x, "left") + np.searchsorted(x, x, "right")) / (2 * len(x))
    return bool(k[best] < SHORT or np.abs(below - seen).max() * math.sqrt(len(x)) < KOLMOGOROV)


def _on_a_grid(t: np.ndarray, u: float, x: np.ndarray) -> Tail:
    r"""The likelihood of sorted excesses x over u; given k / sigma it needs only the sum of log(1 +
    (k / sigma) x).

    .. math:: \log L = -M \log \sigma - (1 + 1/k) \sum_i \log\big(1 + \tfrac k\sigma x_i\big)
    """
    slope, e, count, n = _slopes(x)[:, None], EXCESSES * float(np.median(x)), len(x), len(t)
    with np.errstate(all="ignore"):  # a negative k has an upper end, which some pairs overstep
        k = slope * e / (1 + slope * e)
        likelihood = (
            -count * np.log(e / (1 + slope * e)) - (1 + 1 / k) * np.log1p(slope * x).sum(1)[:, None]
        )
    likelihood = np.where(np.isfinite(likelihood) & (k > -1) & (k < 1), likelihood, -np.inf)
    base, share = np.minimum(t, u), count / n
    both = (
        float(base.var())
        + 2 * e * float(((base - base.mean()) * (t > u)).mean())
        + e**2 * share * (1 - share)
    )
    se = np.sqrt(np.maximum(both, 0.0) / n)
    return Tail(
        2 * (likelihood.max() - likelihood),
        k,
        float(base.mean()) + share * e,
        se,
        1 + FEW / count**2,
    )
