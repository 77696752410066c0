r"""Distances between partitions, and the search for the one of least expected distance, in numba.

Moving row i into cluster k of a changes the expected distance to draws b by

.. math:: \Delta_k = f'(a_k) - \frac2S \sum_s f'\big(n^s_{k\, b_s(i)}\big), \qquad f'(m) = f(m + 1)
          - f(m)
          (theory/dirichlet.md, eq. 20.18)

Letters: n rows, K clusters, S draws.
"""

import numpy as np

from partita.runtime.numba_cache import njit

SWEEPS = 20  # over the rows, or fewer where none moves


@njit(cache=True)
def renumber(partitions: np.ndarray) -> np.ndarray:
    """Labels in order of appearance."""
    out = np.empty_like(partitions)
    for s in range(len(partitions)):
        low = partitions[s].min()
        number, K = np.full(partitions[s].max() - low + 1, -1, np.int32), 0
        for i in range(partitions.shape[1]):
            label = partitions[s, i] - low
            if number[label] < 0:
                number[label] = K
                K += 1
            out[s, i] = number[label]
    return out


@njit(cache=True)
def all_distances(a: np.ndarray, b: np.ndarray, table: np.ndarray) -> np.ndarray:
    """d(a, b) of all pairs, ``(A, n), (B, n) -> (A, B)``; ``table`` holds f."""
    found = np.empty((len(a), len(b)))
    for s in range(len(a)):
        for t in range(len(b)):
            found[s, t] = _distance(a[s], b[t], table)
    return found


@njit(cache=True)
def _distance(a: np.ndarray, b: np.ndarray, table: np.ndarray) -> float:
    K, J, total = a.max() + 1, b.max() + 1, 0.0
    both = np.zeros((K, J), np.int64)
    for i in range(len(a)):
        both[a[i], b[i]] += 1
    for k in range(K):
        total += _parted(both[k], table)
    for j in range(J):
        total += _parted(both[:, j], table)
    return total


@njit(cache=True)
def _parted(sizes: np.ndarray, table: np.ndarray) -> float:
    """f of a cluster less f of its parts: exactly zero where it has only one."""
    total = float(table[sizes.sum()])
    for size in sizes:
        total -= float(table[size])
    return total


@njit(cache=True)
def improve(a: np.ndarray, draws: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Move rows of ``a``, one by one, to the cluster or a new one that lowers the expected distance
    most, until none does.
    """
    S, n = draws.shape
    rise, room = table[1:] - table[:-1], a.max() + 2
    sizes, both = _overlaps(a, draws, room)
    for _ in range(SWEEPS):
        moved = False
        for i in range(n):
            old = a[i]
            _shift(sizes, both, draws, i, old, -1)
            best, least, empty = old, np.inf, False
            for k in range(len(sizes)):
                if sizes[k] == 0 and empty and k != old:
                    continue  # one empty cluster is like another
                empty |= sizes[k] == 0
                total = 0.0
                for s in range(S):
                    total += rise[both[s, k, draws[s, i]]]
                change = rise[sizes[k]] - 2 * total / S
                if change < least - 1e-12 or (k == old and change < least + 1e-12):
                    best, least = k, change
            a[i] = best
            moved |= best != old
            _shift(sizes, both, draws, i, best, 1)
            if sizes.min() > 0:
                sizes, both = _overlaps(a, draws, len(sizes) + 4)
        if not moved:
            break
    return a


@njit(cache=True)
def _overlaps(a: np.ndarray, draws: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of the clusters of ``a``, and of their intersections with those of every draw, ``(S,
    room, J)``.
    """
    sizes, both = np.zeros(room, np.int64), np.zeros((len(draws), room, draws.max() + 1), np.int32)
    for i in range(len(a)):
        _shift(sizes, both, draws, i, a[i], 1)
    return sizes, both


@njit(cache=True)
def _shift(
    sizes: np.ndarray, both: np.ndarray, draws: np.ndarray, i: int, k: int, step: int
) -> None:
    sizes[k] += step
    for s in range(len(draws)):
        both[s, k, draws[s, i]] += step
