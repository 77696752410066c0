"""Conjugate gradients on compressed rows, in machine code: one right-hand side, or ``WIDTH`` of
them side by side.

Side by side, an entry of the matrix is read once for all of them and each arithmetic step is one
vector instruction. The update of the direction p runs just ahead of the product A p, as far as the
rows reach, so that p is still in the cache when the product reads it. Column numbers are unsigned,
so that no test for negative ones slows the inner loop. Sums are kept in float64.

Letters: n unknowns, A matrix (first, columns, values), x solution, p direction, q = A p, r
residual, L lower factor.
"""

import numpy as np
from numba import uint64

from partita.optim.lanes import LANES, WIDTH, follow, multiply, retreat
from partita.runtime.numba_cache import njit

__all__ = ["WIDTH", "burst", "incomplete_cholesky", "substitute"]
RUNNING, CONVERGED, BUDGET, BREAKDOWN, INDEFINITE = range(5)
# what may be reordered; nan and infinity keep their meaning
SUMS = {"reassoc", "contract", "nsz", "arcp"}


@njit(nogil=True, cache=True, fastmath=SUMS)
def _turn(
    first: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    reach: np.ndarray,
    x: np.ndarray,
    p: np.ndarray,
    r: np.ndarray,
    q: np.ndarray,
    alpha: float,
    beta: float,
) -> float:
    """x += alpha p and p = r + beta p, then q = A p; returns p . q."""
    total, k, front = 0.0, uint64(first[0]), uint64(0)
    for i in range(len(q)):
        while front < uint64(reach[i]):
            old = p[front]
            x[front] += alpha * old
            p[front] = r[front] + beta * old
            front += uint64(1)
        value = 0.0
        while k < uint64(first[i + 1]):
            value += values[k] * p[columns[k]]
            k += uint64(1)
        q[i] = value
        total += value * p[i]
    return total


@njit(nogil=True, cache=True)
def _turn_side_by_side(
    first: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    reach: np.ndarray,
    x: np.ndarray,
    p: np.ndarray,
    r: np.ndarray,
    q: np.ndarray,
    alpha: np.ndarray,
    beta: np.ndarray,
    sums: np.ndarray,
) -> None:
    """The same for every column; p . q into ``sums``."""
    sums[:] = 0.0
    front = 0
    for i in range(len(q)):
        while front < reach[i]:
            follow(x, p, r, alpha, beta, front)  # type: ignore[call-arg]
            front += 1
        multiply(columns, values, first[i], first[i + 1], p, q, i, sums)  # type: ignore[call-arg]


@njit(nogil=True, cache=True, fastmath=SUMS)
def _descend(r: np.ndarray, q: np.ndarray, alpha: float) -> float:
    """r -= alpha q; returns r . r."""
    total = 0.0
    for i in range(len(r)):
        value = r[i] - alpha * q[i]
        r[i] = value
        total += value * value
    return total


@njit(nogil=True, cache=True)
def _descend_side_by_side(
    r: np.ndarray, q: np.ndarray, alpha: np.ndarray, sums: np.ndarray
) -> None:
    """The same for every column; r . r into ``sums``."""
    sums[:] = 0.0
    for i in range(len(r)):
        retreat(r, q, alpha, i, sums)  # type: ignore[call-arg]


@njit(nogil=True, cache=True)
def burst(
    first: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    reach: np.ndarray,
    x: np.ndarray,
    p: np.ndarray,
    r: np.ndarray,
    q: np.ndarray,
    alpha: np.ndarray,
    beta: np.ndarray,
    rr: np.ndarray,
    least: np.ndarray,
    left: np.ndarray,
    codes: np.ndarray,
    alphas: np.ndarray,
    betas: np.ndarray,
    size: np.ndarray,
    steepest: np.ndarray,
    rounding: float,
) -> int:
    """Some steps, (n, W) arrays in place: as many as ``alphas`` (S, W) has rows, or until no column
    is ``RUNNING``; how many were taken.

    ``rr`` is r . r, ``least`` the value at which it is converged, ``left`` the steps that each
    column may still take, ``size`` p . p, ``steepest`` the largest p . q / p . p so far;
    ``rounding`` of that is no curvature. The last x += alpha p is left to the next burst, or to the
    caller.
    """
    m = len(rr)
    curvature, new, sums = np.zeros(m), np.zeros(m), np.zeros((LANES, m))
    # contiguous to the compiler
    flat_x, flat_p, flat_r, flat_q = x.reshape(-1), p.reshape(-1), r.reshape(-1), q.reshape(-1)
    for step in range(len(alphas)):
        if not (codes == RUNNING).any():
            return step
        if m == 1:
            curvature[0] = _turn(
                first, columns, values, reach, flat_x, flat_p, flat_r, flat_q, alpha[0], beta[0]
            )
        else:
            _turn_side_by_side(first, columns, values, reach, x, p, r, q, alpha, beta, sums)
            curvature[:] = sums.sum(0)
        for c in range(m):
            if codes[c] == RUNNING and left[c] <= 0:
                codes[c] = BUDGET
            if codes[c] == RUNNING:
                size[c] = rr[c] + beta[c] ** 2 * size[c]
                steepest[c] = max(steepest[c], abs(curvature[c]) / size[c])
                flat = rounding * steepest[c] * size[c]
                if not curvature[c] > flat:
                    codes[c] = INDEFINITE if curvature[c] < -flat else BREAKDOWN
            alpha[c] = rr[c] / curvature[c] if codes[c] == RUNNING else 0.0
            left[c] -= codes[c] == RUNNING
        if m == 1:
            new[0] = _descend(flat_r, flat_q, alpha[0])
        else:
            _descend_side_by_side(r, q, alpha, sums)
            new[:] = sums.sum(0)
        for c in range(m):
            beta[c] = new[c] / rr[c] if codes[c] == RUNNING else 0.0
            alphas[step, c], betas[step, c], rr[c] = alpha[c], beta[c], new[c]
            if codes[c] == RUNNING and rr[c] <= least[c]:
                codes[c] = CONVERGED
    return len(alphas)


@njit(nogil=True, cache=True)
def incomplete_cholesky(
    first: np.ndarray, columns: np.ndarray, values: np.ndarray, shift: float
) -> int:
    """Overwrite the lower triangle of A + shift diag(A), diagonal last in each row, by L; the row
    of a pivot not positive, or -1.
    """
    n = len(first) - 1
    for i in range(n):
        last = first[i + 1] - 1
        for a in range(first[i], last + 1):
            j, total = columns[a], values[a]
            if a == last:
                total *= 1 + shift
            s, t = first[i], first[j]
            # rows i and j of L meet at the columns they share
            while s < a and t < first[j + 1] - 1:
                if columns[s] == columns[t]:
                    total -= values[s] * values[t]
                    s, t = s + 1, t + 1
                elif columns[s] < columns[t]:
                    s += 1
                else:
                    t += 1
            if a < last:
                values[a] = total / values[first[j + 1] - 1]
            elif total > 0:
                values[a] = np.sqrt(total)
            else:
                return i
    return -1


@njit(nogil=True, cache=True)
def substitute(first: np.ndarray, columns: np.ndarray, values: np.ndarray, z: np.ndarray) -> None:
    """Overwrite z (n, m) by the solution of L L' z = z."""
    n, m = z.shape
    for i in range(n):
        last = first[i + 1] - 1
        for a in range(first[i], last):
            for c in range(m):
                z[i, c] -= values[a] * z[columns[a], c]
        for c in range(m):
            z[i, c] /= values[last]
    for i in range(n - 1, -1, -1):
        last = first[i + 1] - 1
        for c in range(m):
            z[i, c] /= values[last]
        for a in range(first[i], last):
            for c in range(m):
                z[columns[a], c] -= values[a] * z[i, c]
