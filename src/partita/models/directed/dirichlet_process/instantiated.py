r"""One pass over the data with weights and parameters drawn: every row chooses a cluster by itself,
so rows can go in parallel.

.. math:: p(z_i = k \mid \pi, \theta) \propto \pi_k\, \mathcal K(x_i \mid \theta_k)\, 1[a_k < i],
          \qquad z_{a_k} = k
          (theory/dirichlet.md, eq. 20.13)

No cluster may empty, for no single row could found it again: its first row a_k, in an order drawn
anew for each sweep (a rotation of the data's), stays, and earlier rows cannot join. Given those
first rows the choices are independent, and the posterior is left invariant.

Letters: n rows, D columns, K clusters.
"""

import numpy as np
from numba import uint64

from partita.models.directed.dirichlet_process.blocks import BLOCK, exponentials, parameter_scores
from partita.models.directed.dirichlet_process.kernels import ClusterMoments
from partita.runtime.numba_cache import njit

CHUNK = 1 << 15  # rows of one task; sums do not depend on the number of threads


@njit(cache=True, nogil=True)
def first_rows(z: np.ndarray, clusters: int, offset: int) -> np.ndarray:
    """Place of the first row of every cluster when the rows are read from ``offset`` on and around,
    ``(K,)``.
    """
    first, found, n = np.full(clusters, -1, np.int64), 0, len(z)
    for place in range(n):
        k = z[(place + offset) % n]
        if first[k] < 0:
            first[k] = place
            found += 1
            if found == clusters:
                break
    return first


@njit(inline="always")
def _uniform(key: int, i: int) -> float:
    """Number i of a stream: a finalizer of splitmix64 on a Weyl sequence, so that rows need no
    common state.
    """
    bits = uint64(key) + uint64(i) * uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> uint64(27))) * uint64(0x94D049BB133111EB)
    return (float((bits ^ (bits >> uint64(31))) >> uint64(11)) + 0.5) * 2.0**-53


@njit(cache=True, nogil=True)
def _pick(
    block: np.ndarray,
    places: np.ndarray,
    first: np.ndarray,
    constant: np.ndarray,
    center: np.ndarray,
    matrix: np.ndarray,
    u: np.ndarray,
    chosen: np.ndarray,
) -> None:
    """A cluster whose first row came before, for every column of ``block``, by inversion."""
    B, K, last = block.shape[1], len(constant), first.max()
    scores = np.empty((K, B))
    top = np.full(B, -np.inf)
    total = np.zeros(B)
    work = np.empty(B)
    power = np.empty(B, np.int64)
    for k in range(K):
        parameter_scores(block, constant[k], center[k], matrix[k], scores[k], work)
        if places.min() <= last:
            for r in range(B):
                if first[k] >= places[r]:
                    scores[k, r] = -np.inf
        for r in range(B):
            top[r] = max(top[r], scores[k, r])
    for k in range(K):
        exponentials(scores[k], top, power)
        for r in range(B):
            total[r] += scores[k, r]
            scores[k, r] = total[r]
    chosen[:] = 0
    for k in range(K - 1):
        for r in range(B):
            chosen[r] += u[r] * total[r] >= scores[k, r]


@njit(cache=True, nogil=True)
def reassign(
    x: np.ndarray,
    z: np.ndarray,
    start: int,
    stop: int,
    offset: int,
    first: np.ndarray,
    constant: np.ndarray,
    center: np.ndarray,
    matrix: np.ndarray,
    key: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Redraw ``z[start:stop]``; returns count, sum and sum of squares of each cluster there, about
    ``center`` if there is a matrix.
    """
    n, D = x.shape
    K, W = len(constant), matrix.shape[1]
    count, total, square = np.zeros(K, np.int64), np.zeros((K, D)), np.zeros((K, W, W))
    for at in range(start, stop, BLOCK):
        B = min(BLOCK, stop - at)
        block = np.empty((D, B))
        places = np.empty(B, np.int64)
        u = np.empty(B)
        chosen = np.empty(B, np.int64)
        for r in range(B):
            i = at + r
            places[r], u[r] = i - offset if i >= offset else i - offset + n, _uniform(key, i)
            for a in range(D):
                block[a, r] = x[i, a]
        _pick(block, places, first, constant, center, matrix, u, chosen)
        for r in range(B):
            if first[z[at + r]] != places[r]:
                z[at + r] = chosen[r]
            k = z[at + r]
            count[k] += 1
            for a in range(D):
                total[k, a] += block[a, r] - center[k, a] if W else block[a, r]
            for a in range(W):
                for b in range(a + 1):
                    square[k, a, b] += (block[a, r] - center[k, a]) * (block[b, r] - center[k, b])
    return count, total, square


@njit(cache=True)
def moments_about(
    count: np.ndarray, total: np.ndarray, square: np.ndarray, center: np.ndarray
) -> ClusterMoments:
    """What every cluster holds from sums about ``center``."""
    K, D = total.shape
    mean, scatter = np.empty((K, D)), square.copy()
    for k in range(K):
        mean[k] = total[k] / count[k]
        for a in range(scatter.shape[1]):
            for b in range(a + 1):
                scatter[k, a, b] -= count[k] * mean[k, a] * mean[k, b]
                scatter[k, b, a] = scatter[k, a, b]
        if scatter.shape[1]:
            mean[k] += center[k]
    return ClusterMoments(count, mean, scatter)
