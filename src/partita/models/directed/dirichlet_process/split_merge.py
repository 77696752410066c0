r"""Split and merge moves that redraw whole clusters: sequentially allocated proposals (Dahl 2005),
parameters integrated out.

.. math:: \frac{p(z^{\text{split}})\, p(x \mid z^{\text{split}})}{p(z)\, p(x \mid z)}\,
          \frac{1}{q(z^{\text{split}})}, \qquad
          q = \prod_t \frac{n_{s_t}\, p(x_t \mid s_t)}{\sum_s n_s\, p(x_t \mid s)}
          (theory/dirichlet.md, eq. 20.12)

Two rows i, j drawn at random found two sides. The other rows of their cluster, or clusters, join
one after the other in proportion to size times predictive; after ``learn`` of them the two sides
stand still, at plug-in parameters, so that a proposal costs a pass over its rows in vector
instructions and no more. A merge is one way only; a hopeless one is seen from its evidence alone,
for q is at most one.

Letters: n rows, D columns, K clusters.
"""

import math

import numpy as np

from partita.models.directed.dirichlet_process.blocks import BLOCK, cluster_scores, exponentials
from partita.models.directed.dirichlet_process.collapsed import settle_nothing
from partita.models.directed.dirichlet_process.incremental import (
    GAUSSIAN,
    log_marginal,
    log_predictive,
    move_row,
    settle_cluster,
)
from partita.models.directed.dirichlet_process.kernels import ClusterMoments, Target
from partita.runtime.numba_cache import njit


@njit(cache=True)
def chosen(clusters: ClusterMoments, which: np.ndarray) -> ClusterMoments:
    """Some of the clusters."""
    return ClusterMoments(clusters.count[which], clusters.mean[which], clusters.scatter[which])


@njit(cache=True)
def put(clusters: ClusterMoments, a: int, other: ClusterMoments) -> None:
    """Put the first of other clusters in the place of cluster a."""
    clusters.count[a], clusters.mean[a] = other.count[0], other.mean[0]
    clusters.scatter[a] = other.scatter[0]


@njit(cache=True)
def merged(clusters: ClusterMoments) -> ClusterMoments:
    """Two clusters as one."""
    count, mean, scatter = clusters
    D, total = mean.shape[1], count[0] + count[1]
    apart = mean[1] - mean[0]
    middle = mean[0] + apart * (count[1] / total)
    both = scatter[0] + scatter[1]
    if both.size:
        share = count[0] * count[1] / total
        for a in range(D):
            for b in range(D):
                both[a, b] += share * apart[a] * apart[b]
    return ClusterMoments(np.array([total]), middle.reshape(1, D), np.expand_dims(both, 0))


@njit(cache=True)
def log_weight(target: Target, alpha: float, clusters: ClusterMoments, empty: np.ndarray) -> float:
    """What these clusters add to log p(z) + log p(x | z)."""
    (count, mean, scatter), total, stat = clusters, 0.0, np.empty_like(empty)
    for k in range(len(count)):
        settle_cluster(target, count[k], mean[k], scatter[k], stat)
        marginal = log_marginal(target, count[k], stat, empty)
        total += math.log(alpha) + math.lgamma(count[k]) + marginal
    return total


@njit(cache=True)
def log_sigmoid(t: float) -> float:
    return -math.log(1.0 + math.exp(-t)) if t > 0 else t - math.log(1.0 + math.exp(t))


@njit(cache=True)
def allocate(
    target: Target,
    rows: np.ndarray,
    seeds: tuple[int, int],
    side: np.ndarray,
    forced: bool,
    empty: np.ndarray,
    learn: int,
) -> float:
    """Send ``rows`` to the two sides, or follow ``side`` where it is ``forced``; returns log q.
    ``rows`` is shuffled at its head.
    """
    size, work, log_q = len(rows), np.empty(target.x.shape[1]), 0.0
    stats, count = np.empty((2, len(empty))), np.ones(2, np.int64)
    for s in range(2):
        stats[s] = empty
        move_row(target, seeds[s], 0, 1, stats, s, work)
    for t in range(min(learn, size)):
        # drawn at random, whichever way the move goes
        other = t + int(np.random.random() * (size - t))
        rows[t], rows[other] = rows[other], rows[t]
        side[t], side[other] = side[other], side[t]
        i = rows[t]
        odds = log_predictive(target, i, count[1], stats, 1, work)
        odds -= log_predictive(target, i, count[0], stats, 0, work)
        if not forced:
            side[t] = np.random.random() * (1.0 + math.exp(-odds)) < 1.0
        s = side[t]
        log_q += log_sigmoid(odds if s else -odds)
        move_row(target, i, int(count[s]), 1, stats, s, work)
        count[s] += 1
    for at in range(min(learn, size), size, BLOCK):
        log_q += _allocate_block(
            target, rows[at : at + BLOCK], side[at : at + BLOCK], forced, count, stats
        )
    return log_q


@njit(cache=True)
def _allocate_block(
    target: Target,
    rows: np.ndarray,
    side: np.ndarray,
    forced: bool,
    count: np.ndarray,
    stats: np.ndarray,
) -> float:
    """Send rows to two sides that no longer learn; returns log q."""
    x, B = target.x, len(rows)
    D = x.shape[1]
    block = np.empty((D, B))
    work = np.empty((D, B))
    scores = np.empty((2, B))
    power = np.empty(B, np.int64)
    for r in range(B):
        for a in range(D):
            block[a, r] = x[rows[r], a]
    for s in range(2):
        cluster_scores(target, count[s], stats[s], block, scores[s], work)
    top = np.maximum(scores[0], scores[1])
    for s in range(2):
        exponentials(scores[s], top, power)
    log_q, product = 0.0, 1.0
    for r in range(B):
        total = scores[0, r] + scores[1, r]
        if not forced:
            side[r] = np.random.random() * total < scores[1, r]
        product *= scores[side[r], r] / total
        if product < 1e-3:  # one logarithm for many rows; a factor is at least exp(-700)
            log_q, product = log_q + math.log(product), 1.0
    return log_q + math.log(product)


@njit(cache=True)
def two_sides(
    target: Target, rows: np.ndarray, side: np.ndarray, seeds: tuple[int, int]
) -> ClusterMoments:
    """What both sides hold, seeds included, summed about the seeds."""
    x, scatters = target.x, target.kind == GAUSSIAN
    D = x.shape[1]
    count, total = np.ones(2, np.int64), np.zeros((2, D))
    square, off = np.zeros((2, D if scatters else 0, D if scatters else 0)), np.empty(D)
    for t in range(len(rows)):
        s = side[t]
        count[s] += 1
        for a in range(D):
            off[a] = x[rows[t], a] - x[seeds[s], a]
            total[s, a] += off[a]
        if scatters:
            for a in range(D):
                for b in range(D):
                    square[s, a, b] += off[a] * off[b]
    mean = np.empty((2, D))
    for s in range(2):
        mean[s] = x[seeds[s]] + total[s] / count[s]
        if scatters:
            square[s] -= total[s].reshape(D, 1) * total[s].reshape(1, D) / count[s]
    return ClusterMoments(count, mean, square)


@njit(cache=True)
def _members(
    z: np.ndarray, a: int, b: int, i: int, j: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of clusters a and b other than i and j, and whether each is b's."""
    rows, side, at = np.empty(size, np.int64), np.empty(size, np.int8), 0
    for row in range(len(z)):
        if (z[row] == a or z[row] == b) and row != i and row != j:
            rows[at], side[at] = row, z[row] == b
            at += 1
    return rows, side


@njit(cache=True, nogil=True)
def split_or_merge(
    target: Target,
    z: np.ndarray,
    clusters: ClusterMoments,
    alpha: float,
    moves: int,
    learn: int,
    seed: int,
) -> tuple[ClusterMoments, int]:
    """Propose ``moves`` times; ``z`` changes in place. Returns what all clusters hold and how many
    were accepted.
    """
    np.random.seed(seed)
    n, accepted, empty = len(z), 0, settle_nothing(target)
    for _ in range(moves):
        i = int(np.random.random() * n)
        j = (i + 1 + int(np.random.random() * (n - 1))) % n
        a, b, log_u = z[i], z[j], math.log(1.0 - np.random.random())
        if a == b:
            rows, side = _members(z, a, a, i, j, int(clusters.count[a]) - 2)
            log_q = allocate(target, rows, (i, j), side, False, empty, learn)
            sides, before = two_sides(target, rows, side, (i, j)), chosen(clusters, np.array([a]))
            gain = log_weight(target, alpha, sides, empty) - log_q
            if log_u < gain - log_weight(target, alpha, before, empty):
                z[rows[side == 1]] = len(clusters.count)
                z[j] = len(clusters.count)
                put(clusters, a, sides)
                clusters = ClusterMoments(
                    np.append(clusters.count, sides.count[1:]),
                    np.concatenate((clusters.mean, sides.mean[1:])),
                    np.concatenate((clusters.scatter, sides.scatter[1:])),
                )
                accepted += 1
            continue
        before = chosen(clusters, np.array([a, b]))
        both = merged(before)
        gain = log_weight(target, alpha, both, empty)
        gain -= log_weight(target, alpha, before, empty)
        if log_u < gain:
            rows, side = _members(z, a, b, i, j, int(before.count.sum()) - 2)
            if log_u < gain + allocate(target, rows, (i, j), side, True, empty, learn):
                put(clusters, a, both)
                clusters = drop_cluster(z, a, b, clusters)
                accepted += 1
    return clusters, accepted


@njit(cache=True)
def drop_cluster(z: np.ndarray, a: int, b: int, clusters: ClusterMoments) -> ClusterMoments:
    """Rows of b become a's; the last cluster takes b's place."""
    last = len(clusters.count) - 1
    for row in range(len(z)):
        if z[row] == b:
            z[row] = a
    if b != last:
        for row in range(len(z)):
            if z[row] == last:
                z[row] = b
        put(clusters, b, chosen(clusters, np.array([last])))
    return chosen(clusters, np.arange(last))
