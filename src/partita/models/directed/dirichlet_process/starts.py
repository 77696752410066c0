r"""Where chains of partitions begin: many small pieces of the data, joined while that raises the joint probability.

.. math:: \log \frac{\Gamma(n_a + n_b)\, p(x_a \cup x_b)}{\alpha\, \Gamma(n_a)\, p(x_a)\, \Gamma(n_b)\, p(x_b)} > 0
          (theory/dirichlet.md, eq. 20.20)

Split and merge moves are exact but cannot undo, on many rows, a bad first partition: a pass through the labels of all rows in one step
has next to no probability. Joining pieces looks at their statistics alone.

Letters: n rows, D columns, K pieces.
"""

import numpy as np
from numba import njit

from partita.models.directed.dirichlet_process.collapsed import accumulate, settle_all
from partita.models.directed.dirichlet_process.incremental import GAUSSIAN
from partita.models.directed.dirichlet_process.split_merge import drop_cluster, log_weight, pooled

PIECES = 50
ROWS = 20_000  # from which the pieces are learned
ROUNDS = 10  # of k-means


def pieces(x: np.ndarray, seed: int) -> np.ndarray:
    """Labels of about sqrt(n) pieces, at most ``PIECES``, by a few rounds of k-means from rows drawn at random, ``(n,)``."""
    from sklearn.cluster import KMeans

    rng = np.random.default_rng(seed)
    some = x if len(x) <= ROWS else x[np.sort(rng.choice(len(x), ROWS, replace=False))]
    distinct = np.unique(some, axis=0)
    count = min(PIECES, int(len(x) ** 0.5) + 1, len(distinct))
    start = distinct[rng.choice(len(distinct), count, replace=False)]
    labels = KMeans(count, init=start, n_init=1, max_iter=ROUNDS).fit(some).predict(x)
    return np.unique(labels, return_inverse=True)[1].astype(np.int32)


@njit(cache=True)
def join(kind: int, prior: np.ndarray, x: np.ndarray, z: np.ndarray, alpha: float) -> None:
    """Join the pair of clusters that gains most, again and again, while any gains; ``z`` changes in place."""
    count, mean, scatter = accumulate(x, z, z.max() + 1, kind == GAUSSIAN)
    empty = settle_all(kind, prior, count[:0], mean[:0], scatter[:0], 0)[0]
    gain = np.full((len(count), len(count)), -np.inf)
    for a in range(len(count)):
        _gains_with(kind, prior, alpha, count, mean, scatter, empty, a, gain)
    while len(count) > 1 and gain.max() > 0:
        best = gain.argmax()
        a, b, last = best // len(count), best % len(count), len(count) - 1
        pair = np.array([a, b])
        c, m, s = pooled(count[pair], mean[pair], scatter[pair])
        count[a], mean[a], scatter[a] = c[0], m[0], s[0]
        count, mean, scatter = drop_cluster(z, a, b, count, mean, scatter)
        gain[b], gain[:, b] = gain[last].copy(), gain[:, last].copy()
        gain = gain[:last, :last].copy()
        if b < last:
            gain[b, b] = -np.inf
        _gains_with(kind, prior, alpha, count, mean, scatter, empty, b if a == last else a, gain)


@njit(cache=True)
def _gains_with(
    kind: int, prior: np.ndarray, alpha: float, count: np.ndarray, mean: np.ndarray, scatter: np.ndarray, empty: np.ndarray, a: int,
    gain: np.ndarray,
) -> None:  # fmt: skip
    """What joining cluster a with each other one would gain, into ``gain``'s row and column a."""
    for b in range(len(count)):
        if b != a:
            pair = np.array([a, b])
            c, m, s = pooled(count[pair], mean[pair], scatter[pair])
            found = log_weight(kind, prior, alpha, c, m, s, empty)
            found -= log_weight(kind, prior, alpha, count[pair], mean[pair], scatter[pair], empty)
            gain[a, b] = gain[b, a] = found
