"""Scores and exponentials of blocks of rows in numba: the loops over rows are innermost and become
vector instructions.

Letters: D columns, B rows of a block; a block is ``(D, B)``.
"""

import math

import numpy as np

from partita.models.directed.dirichlet_process.incremental import (
    BERNOULLI,
    GAUSSIAN,
    KNOWN_SCALE,
)
from partita.models.directed.dirichlet_process.kernels import Target
from partita.runtime.numba_cache import njit

BLOCK = 256  # rows scored together, few enough to stay in the nearest cache
LOOSE = {"contract", "reassoc", "nsz", "arcp"}  # freedoms in rounding that vector instructions need


@njit(cache=True, nogil=True, fastmath=LOOSE)
def parameter_scores(
    block: np.ndarray,
    constant: float,
    center: np.ndarray,
    matrix: np.ndarray,
    score: np.ndarray,
    y: np.ndarray,
) -> None:
    """log pi_k + log K(x | theta_k) - log h(x) of the columns of ``block``, ``(B,)``; ``matrix`` is
    upper triangular, or empty.
    """
    D, B = block.shape
    score[:] = constant
    if matrix.shape[0] == 0:
        for a in range(D):
            for r in range(B):
                score[r] += block[a, r] * center[a]
        return
    for a in range(D):
        y[:] = 0.0
        for b in range(a, D):
            factor, middle = matrix[a, b], center[b]
            for r in range(B):
                y[r] += factor * (block[b, r] - middle)
        for r in range(B):
            score[r] -= 0.5 * y[r] * y[r]


@njit(cache=True, nogil=True, fastmath=LOOSE)
def cluster_scores(
    target: Target,
    count: int,
    stat: np.ndarray,
    block: np.ndarray,
    score: np.ndarray,
    work: np.ndarray,
) -> None:
    """log count + log K(x | theta) - log h(x) at the posterior's plug-in parameter of a cluster
    (``stat`` as in ``incremental``).
    """
    kind, prior, (D, B) = target.kind, target.prior, block.shape
    score[:] = math.log(count) + (stat[2 * D] if kind == BERNOULLI else 0.0)
    if kind == GAUSSIAN:
        _gaussian_scores(prior[1] + count, stat, block, score, work)
        return
    for a in range(D):
        if kind == KNOWN_SCALE:
            slope = stat[D + a] / prior[a]
            score -= 0.5 * stat[D + a] * slope
        else:
            slope = stat[D + a] if kind == BERNOULLI else math.log(stat[a] / stat[D])
        for r in range(B):
            score[r] += block[a, r] * slope


@njit(cache=True, nogil=True, fastmath=LOOSE)
def _gaussian_scores(
    nu: float, stat: np.ndarray, block: np.ndarray, score: np.ndarray, work: np.ndarray
) -> None:
    """score += log N(x; m, S / nu) without its constant, by forward substitution in U."""
    D, B = block.shape
    at = D + D * D
    score += 0.5 * D * math.log(nu) - stat[at + D]
    for a in range(D):
        for r in range(B):
            work[a, r] = block[a, r] - stat[a]
    for a in range(D):
        inverse = stat[at + a]
        for r in range(B):
            work[a, r] *= inverse
            score[r] -= 0.5 * nu * work[a, r] * work[a, r]
        for b in range(a + 1, D):
            factor = stat[D + a * D + b]
            for r in range(B):
                work[b, r] -= factor * work[a, r]


@njit(cache=True, nogil=True, fastmath=LOOSE)
def exponentials(score: np.ndarray, top: np.ndarray, power: np.ndarray) -> None:
    """score <- exp(score - top), for score <= top, at least exp(-700). Cody and Waite's reduction,
    Taylor's series to r^11.
    """
    two = power.view(np.float64)
    for r in range(len(score)):
        v = max(score[r] - top[r], -700.0)
        whole = math.floor(v * 1.4426950408889634 + 0.5)
        v = (v - whole * 0.693145751953125) - whole * 1.4286068203094172e-06
        p = 2.505210838544172e-08
        for c in (
            2.755731922398589e-07,
            2.7557319223985893e-06,
            2.48015873015873e-05,
            1.984126984126984e-04,
            1.388888888888889e-03,
            8.333333333333333e-03,
            4.1666666666666664e-02,
            1.6666666666666666e-01,
            0.5,
            1.0,
            1.0,
        ):
            p = p * v + c
        power[r] = (np.int64(whole) + 1023) << 52
        score[r] = p
    for r in range(len(score)):
        score[r] *= two[r]
