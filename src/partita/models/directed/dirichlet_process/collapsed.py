r"""Collapsed Gibbs sampling of a partition: every row in turn leaves its cluster and chooses one,
parameters integrated out.

.. math:: p(z_i = k \mid z_{\setminus i}, x) \propto n_k^{(-i)}\, p(x_i \mid x_{k \setminus i}),
          \qquad
          p(z_i = \text{new}) \propto \alpha\, p(x_i)          (theory/dirichlet.md, eq. 20.10)

Letters: n rows, D columns, K clusters, G numbers in a cluster's row.
"""

import math

import numpy as np

from partita.models.directed.dirichlet_process.incremental import (
    GAUSSIAN,
    log_marginal,
    log_predictive,
    move_row,
    settle_cluster,
    stat_size,
)
from partita.models.directed.dirichlet_process.kernels import ClusterMoments, Target
from partita.runtime.numba_cache import njit

ROOM = 16  # clusters that fit before the arrays grow


@njit(cache=True, nogil=True)
def accumulate(x: np.ndarray, z: np.ndarray, clusters: int, scatters: bool) -> ClusterMoments:
    """What every cluster holds, by Welford's recursion."""
    n, D = x.shape
    count, mean = np.zeros(clusters, np.int64), np.zeros((clusters, D))
    scatter, old = np.zeros((clusters, D if scatters else 0, D if scatters else 0)), np.empty(D)
    for i in range(n):
        k = z[i]
        count[k] += 1
        for a in range(D):
            old[a] = x[i, a] - mean[k, a]
            mean[k, a] += old[a] / count[k]
        if scatters:
            for a in range(D):
                for b in range(D):
                    scatter[k, a, b] += old[a] * (x[i, b] - mean[k, b])
    return ClusterMoments(count, mean, scatter)


@njit(cache=True)
def settle_all(target: Target, clusters: ClusterMoments, room: int) -> np.ndarray:
    """The rows of all clusters and, last, that of an empty one, ``(room + 1, G)``."""
    stats = np.empty((room + 1, stat_size(target.kind, target.x.shape[1])))
    for k in range(len(clusters.count)):
        settle_cluster(target, clusters.count[k], clusters.mean[k], clusters.scatter[k], stats[k])
    stats[room] = settle_nothing(target)
    return stats


@njit(cache=True)
def settle_nothing(target: Target) -> np.ndarray:
    """The row of a cluster without members, ``(G,)``."""
    D = target.x.shape[1]
    stat = np.empty(stat_size(target.kind, D))
    settle_cluster(target, 0, np.zeros(D), np.zeros((D, D)), stat)
    return stat


@njit(cache=True, nogil=True)
def sweep(target: Target, z: np.ndarray, alpha: float, seed: int) -> None:
    """Move every row once; ``z`` (labels 0 to K - 1, all in use) changes in place."""
    np.random.seed(seed)
    n, D = target.x.shape
    K = z.max() + 1
    clusters = accumulate(target.x, z, K, target.kind == GAUSSIAN)
    stats = settle_all(target, clusters, K + ROOM)  # the last is empty
    count, names = np.append(clusters.count, np.zeros(ROOM, np.int64)), np.arange(K + ROOM)
    work, weight, log_alpha = np.empty(D), np.empty(K + ROOM + 1), math.log(alpha)
    for i in range(n):  # names[:K] are the labels in use, names[K:] those that are free
        K = _leave(target, z, i, count, stats, names, K, work)
        for k in range(K):
            weight[k] = log_predictive(target, i, int(count[names[k]]), stats, int(names[k]), work)
        weight[K] = log_alpha + log_predictive(target, i, 0, stats, len(count), work)
        k = choose_by_weight(weight, K + 1)
        if k == K:
            if len(count) == K:
                count, stats, names, weight = _grow(count, stats, names)
            stats[names[K]] = stats[len(count)]
            K += 1
        z[i] = names[k]
        move_row(target, i, int(count[z[i]]), 1, stats, z[i], work)
        count[z[i]] += 1
    _renumber(z, names[:K], len(count))


@njit(cache=True)
def _leave(
    target: Target,
    z: np.ndarray,
    i: int,
    count: np.ndarray,
    stats: np.ndarray,
    names: np.ndarray,
    K: int,
    work: np.ndarray,
) -> int:
    """Row i leaves its cluster; the label of one left empty becomes free. Returns K."""
    k = z[i]
    z[i] = -1
    count[k] -= 1
    if count[k] == 0:
        place = 0
        while names[place] != k:
            place += 1
        names[place], names[K - 1] = names[K - 1], k
        return K - 1
    if not move_row(target, i, int(count[k]) + 1, -1, stats, k, work):
        _rebuild(target, z, k, stats[k])
    return K


@njit(cache=True)
def _renumber(z: np.ndarray, names: np.ndarray, room: int) -> None:
    """Labels from 0 to K - 1."""
    number = np.empty(room, np.int64)
    for k in range(len(names)):
        number[names[k]] = k
    for i in range(len(z)):
        z[i] = number[z[i]]


@njit(cache=True)
def _rebuild(target: Target, z: np.ndarray, k: int, stat: np.ndarray) -> None:
    """A cluster's row from its members, where taking one out by a downdate would lose too many
    digits.
    """
    members = np.flatnonzero(z == k)
    count, mean, scatter = accumulate(
        target.x[members], np.zeros(len(members), np.int64), 1, target.kind == GAUSSIAN
    )
    settle_cluster(target, count[0], mean[0], scatter[0], stat)


@njit(cache=True)
def _grow(
    count: np.ndarray, stats: np.ndarray, names: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Twice the room."""
    K = len(count)
    wider = np.empty((2 * K + 1, stats.shape[1]))
    wider[:K], wider[2 * K] = stats[:K], stats[K]
    return (
        np.append(count, np.zeros(K, np.int64)),
        wider,
        np.append(names, np.arange(K, 2 * K)),
        np.empty(2 * K + 1),
    )


@njit(cache=True)
def choose_by_weight(weight: np.ndarray, size: int) -> int:
    """A number below ``size`` with probability proportional to exp(weight), which is used up."""
    top = weight[0]
    for k in range(1, size):
        top = max(top, weight[k])
    total = 0.0
    for k in range(size):
        total += math.exp(weight[k] - top)
        weight[k] = total
    u = np.random.random() * total
    for k in range(size - 1):
        if u < weight[k]:
            return k
    return size - 1


@njit(cache=True)
def log_evidence(target: Target, clusters: ClusterMoments) -> float:
    """log p(x | partition), base terms left out: the sum of the clusters' log marginals."""
    K = len(clusters.count)
    stats, total = settle_all(target, clusters, K), 0.0
    for k in range(K):
        total += log_marginal(target, clusters.count[k], stats[k], stats[K])
    return total
