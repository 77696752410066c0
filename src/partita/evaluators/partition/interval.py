"""Intervals for log Z from standard errors."""

from scipy.stats import norm


def half_width(se: float, level: float) -> float:
    """Half the width of a normal interval."""
    return float(norm.isf((1 - level) / 2)) * se
