r"""How cost grows with size: the exponent of a power law by least squares on logarithms, and what
stands between it and theory.

.. math:: \log t = \log s + b \log n + e, \qquad \hat b \pm t_{0.975,\, m - 2}\, \mathrm{se}(\hat b)

Letters: n size, t cost, s scale, b exponent, m points, e what the line does not explain.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.stats import linregress
from scipy.stats import t as student

OCTAVES = 3  # doublings of size below the largest that are fitted
NEAR = 0.05  # exponents closer than this to theory need no words
ENOUGH = 0.1  # relative error below which a formula fits


@dataclass(frozen=True)
class Power:
    """t = scale n^exponent, the exponent with its interval."""

    exponent: float
    low: float
    high: float
    scale: float


def fit_power(n: Sequence[float], t: Sequence[float], level: float = 0.95) -> Power:
    """Least squares of log t on log n; two points leave no interval.

    >>> found = fit_power([1, 2, 4, 8], [3, 12, 48, 192])
    >>> round(found.exponent, 9), round(found.scale, 9), round(found.high - found.low, 6)
    (2.0, 3.0, 0.0)
    """
    line = linregress(np.log(n), np.log(t))
    freedom = len(n) - 2
    half = float(student.ppf((1 + level) / 2, freedom)) * float(line.stderr) if freedom else np.inf
    slope = float(line.slope)
    return Power(slope, slope - half, slope + half, float(np.exp(line.intercept)))


def tail(n: Sequence[float], octaves: float = OCTAVES) -> list[int]:
    """Places of the sizes within some doublings of the largest: the range in which growth is looked
    for.

    >>> tail([1, 2, 4, 8, 16, 32])
    [2, 3, 4, 5]
    """
    return [i for i, size in enumerate(n) if size * 2**octaves >= max(n)]


def departure(
    n: Sequence[float], t: Sequence[float], theory: Callable[[float], float], found: Power
) -> str:
    """What the same measurements say about an exponent that is not theory's; empty where it is, or
    nearly.

    Below theory, whether lower orders beside theory's growth are enough at all sizes: t = a + b n +
    c theory(n) with a, b, c at least 0, without b where theory itself is linear. Otherwise by how
    much the cost of a unit of theory changes.
    """
    t, unit, i = np.asarray(t), np.array([theory(size) for size in n]), tail(n)
    expected = fit_power(np.asarray(n)[i], unit[i]).exponent
    if abs(found.exponent - expected) < NEAR or found.low <= expected <= found.high:
        return ""
    first, last = i[0], i[-1]
    if found.exponent < expected:
        lower, off = _lower_orders(np.asarray(n), t, unit, linear=expected > 1 + 5 * NEAR)
        if off < ENOUGH:
            shares = (
                f"{lower[first]:.0%} of the cost at {n[first]:,} and {lower[last]:.0%} at "
                f"{n[last]:,}"
            )
            return (
                f"Lower orders beside theory's growth fit all sizes within {max(off, 0.01):.0%}; "
                f"they are {shares}."
            )
    change = (t[last] / unit[last]) / (t[first] / unit[first]) - 1
    return (
        f"The cost of a unit of theory {'falls' if change < 0 else 'rises'} by {abs(change):.0%} "
        f"from {n[first]:,} to {n[last]:,}."
    )


def _lower_orders(
    n: np.ndarray, t: np.ndarray, unit: np.ndarray, linear: bool
) -> tuple[np.ndarray, float]:
    """Their share of the cost at each size, and the largest relative error of the sum: least
    squares of relative errors.
    """
    terms = np.stack([np.ones(len(n)), *([n] if linear else []), unit], 1)
    factors, _ = nnls(terms / t[:, None], np.ones(len(n)))
    fitted = terms @ factors
    return 1 - factors[-1] * unit / fitted, float(np.abs(fitted / t - 1).max())
