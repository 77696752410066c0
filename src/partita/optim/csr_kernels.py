"""Conjugate gradients on compressed rows, in machine code: one right-hand side, or ``WIDTH`` of them side by side.

Side by side, an entry of the matrix is read once for all of them and each arithmetic step is one vector instruction. The update of the
direction p runs just ahead of the product A p, as far as the rows reach, so that p is still in the cache when the product reads it.
Column numbers are unsigned, so that no test for negative ones slows the inner loop. Sums are kept in float64.

Letters: n unknowns, A matrix (first, columns, values), x solution, p direction, q = A p, r residual, L lower factor.
"""

import numpy as np
from numba import njit, uint64

WIDTH = 8
RUNNING, CONVERGED, BUDGET, BREAKDOWN, INDEFINITE = range(5)


@njit(nogil=True, cache=True, fastmath=True)
def _turn(
    first: np.ndarray, columns: np.ndarray, values: np.ndarray, reach: np.ndarray,
    x: np.ndarray, p: np.ndarray, r: np.ndarray, q: np.ndarray, alpha: float, beta: float,
) -> float:  # fmt: skip
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


@njit(nogil=True, cache=True, fastmath=True)
def _turn_side_by_side(
    first: np.ndarray, columns: np.ndarray, values: np.ndarray, reach: np.ndarray,
    x: np.ndarray, p: np.ndarray, r: np.ndarray, q: np.ndarray, alpha: np.ndarray, beta: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """The same for every column; p . q into ``out``."""
    k, front = uint64(first[0]), uint64(0)
    for c in range(WIDTH):
        out[c] = 0.0
    for i in range(len(q)):
        while front < uint64(reach[i]):
            ahead, solution, residual = p[front], x[front], r[front]
            for c in range(WIDTH):
                old = ahead[c]
                solution[c] += alpha[c] * old
                ahead[c] = residual[c] + beta[c] * old
            front += uint64(1)
        row = q[i]
        for c in range(WIDTH):
            row[c] = 0.0
        while k < uint64(first[i + 1]):
            value, other = values[k], p[columns[k]]
            for c in range(WIDTH):
                row[c] += value * other[c]
            k += uint64(1)
        own = p[i]
        for c in range(WIDTH):
            out[c] += row[c] * own[c]


@njit(nogil=True, cache=True, fastmath=True)
def _descend(r: np.ndarray, q: np.ndarray, alpha: np.ndarray, out: np.ndarray) -> None:
    """r -= alpha q for every column of (n, W); r . r into ``out`` (W,)."""
    if len(alpha) == 1:
        total, step, residual, change = 0.0, alpha[0], r.reshape(-1), q.reshape(-1)
        for i in range(len(residual)):
            value = residual[i] - step * change[i]
            residual[i] = value
            total += value * value
        out[0] = total
        return
    for c in range(WIDTH):
        out[c] = 0.0
    for i in range(len(r)):
        for c in range(WIDTH):
            new = r[i, c] - alpha[c] * q[i, c]
            r[i, c] = new
            out[c] += new * new


@njit(nogil=True, cache=True)
def _flat(p: np.ndarray, q: np.ndarray, c: int) -> float:
    """The curvature p . q that rounding alone could make."""
    sizes = np.zeros(2)
    for i in range(len(p)):
        sizes += np.array([p[i, c] ** 2, q[i, c] ** 2])
    return np.finfo(np.float64).eps * np.sqrt(sizes[0] * sizes[1])


@njit(nogil=True, cache=True)
def burst(
    first: np.ndarray, columns: np.ndarray, values: np.ndarray, reach: np.ndarray,
    x: np.ndarray, p: np.ndarray, r: np.ndarray, q: np.ndarray, alpha: np.ndarray, beta: np.ndarray, rr: np.ndarray,
    least: np.ndarray, left: np.ndarray, codes: np.ndarray, alphas: np.ndarray, betas: np.ndarray,
) -> int:  # fmt: skip
    """Some steps, (n, W) arrays in place: as many as ``alphas`` (S, W) has rows, or until no column is ``RUNNING``; how many were taken.

    ``rr`` is r . r, ``least`` the value at which it is converged, ``left`` the steps that each column may still take. The last
    x += alpha p is left to the next burst, or to the caller.
    """
    m = len(rr)
    curvature, new = np.zeros(m), np.zeros(m)
    for step in range(len(alphas)):
        if not (codes == RUNNING).any():
            return step
        if m == 1:
            flat = (x.reshape(-1), p.reshape(-1), r.reshape(-1), q.reshape(-1))  # contiguous, which a column is not to the compiler
            curvature[0] = _turn(first, columns, values, reach, flat[0], flat[1], flat[2], flat[3], alpha[0], beta[0])
        else:
            _turn_side_by_side(first, columns, values, reach, x, p, r, q, alpha, beta, curvature)
        for c in range(m):
            if codes[c] == RUNNING and left[c] <= 0:
                codes[c] = BUDGET
            if codes[c] == RUNNING and not curvature[c] > 0:
                codes[c] = INDEFINITE if curvature[c] < -_flat(p, q, c) else BREAKDOWN
            alpha[c] = rr[c] / curvature[c] if codes[c] == RUNNING else 0.0
            left[c] -= codes[c] == RUNNING
        _descend(r, q, alpha, new)
        for c in range(m):
            beta[c] = new[c] / rr[c] if codes[c] == RUNNING else 0.0
            alphas[step, c], betas[step, c], rr[c] = alpha[c], beta[c], new[c]
            if codes[c] == RUNNING and rr[c] <= least[c]:
                codes[c] = CONVERGED
    return len(alphas)


@njit(nogil=True, cache=True)
def incomplete_cholesky(first: np.ndarray, columns: np.ndarray, values: np.ndarray, shift: float) -> int:
    """Overwrite the lower triangle of A + shift diag(A), diagonal last in each row, by L; the row of a pivot not positive, or -1."""
    n = len(first) - 1
    for i in range(n):
        last = first[i + 1] - 1
        for a in range(first[i], last + 1):
            j, total = columns[a], values[a]
            if a == last:
                total *= 1 + shift
            s, t = first[i], first[j]
            while s < a and t < first[j + 1] - 1:  # rows i and j of L meet at the columns they share
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
