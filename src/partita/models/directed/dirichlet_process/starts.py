r"""Where chains of partitions begin: many small pieces of the data, joined while that raises the
joint probability.

.. math:: \log \frac{\Gamma(n_a + n_b)\, p(x_a \cup x_b)}{\alpha\, \Gamma(n_a)\, p(x_a)\,
          \Gamma(n_b)\, p(x_b)} > 0
          (theory/dirichlet.md, eq. 20.20)

Split and merge moves are exact but cannot undo, on many rows, a bad first partition: a pass through
the labels of all rows in one step has next to no probability. Joining pieces looks at their
statistics alone.

Letters: n rows, D columns, K pieces.
"""

import numpy as np
import torch

from partita.models.directed.dirichlet_process.collapsed import accumulate, settle_nothing
from partita.models.directed.dirichlet_process.incremental import GAUSSIAN
from partita.models.directed.dirichlet_process.kernels import (
    ClusterMoments,
    Clusters,
    Kernel,
    Target,
)
from partita.models.directed.dirichlet_process.split_merge import (
    chosen,
    drop_cluster,
    log_weight,
    merged,
    put,
)
from partita.runtime.numba_cache import njit

PIECES = 50
ROWS = 10_000  # that are joined; the others follow
ROUNDS = 10  # of k-means
AT_ONCE = 1 << 20  # rows x clusters


def first_partition(kernel: Kernel, x: np.ndarray, alpha: float, seed: int) -> np.ndarray:
    """Labels of all rows: some rows in pieces, joined; the others where they are most probable,
    ``(n,)``.
    """
    rng = np.random.default_rng(seed)
    some = x if len(x) <= ROWS else x[np.sort(rng.choice(len(x), ROWS, replace=False))]
    z = pieces_of(some, rng)
    # no predictive is needed, and no constant of one
    join(Target(kernel.code, kernel.prior.numpy(), np.zeros((0, 2)), some), z, alpha)
    if len(x) > ROWS:
        count, mean, scatter = map(
            torch.from_numpy, accumulate(some, z, int(z.max()) + 1, kernel.scatters)
        )
        clusters = Clusters(count.double(), mean, scatter)
        parts = torch.from_numpy(x).split(max(1, AT_ONCE // len(count)))
        z = torch.cat(
            [(kernel.log_predictive(part, clusters) + count.log()).argmax(-1) for part in parts]
        ).numpy()
    return np.unique(z, return_inverse=True)[1].astype(np.int32)


def pieces_of(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels of about sqrt(n) pieces, at most ``PIECES``, by a few rounds of k-means from rows
    drawn at random, ``(n,)``.
    """
    from sklearn.cluster import KMeans

    distinct = np.unique(x, axis=0)
    count = min(PIECES, int(len(x) ** 0.5) + 1, len(distinct))
    start = distinct[rng.choice(len(distinct), count, replace=False)]
    rounds = KMeans(count, init=start, n_init=1, max_iter=ROUNDS)  # type: ignore[arg-type]
    return rounds.fit_predict(x).astype(np.int32)


@njit(cache=True)
def join(target: Target, z: np.ndarray, alpha: float) -> None:
    """Join the pair of clusters that gains most, again and again, while any gains; ``z`` changes in
    place.
    """
    clusters = accumulate(target.x, z, z.max() + 1, target.kind == GAUSSIAN)
    K = len(clusters.count)
    gain = np.full((K, K), -np.inf)
    for a in range(K):
        _gains_with(target, alpha, clusters, a, gain)
    while len(gain) > 1 and gain.max() > 0:
        best = int(gain.argmax())
        a, b, last = best // len(gain), best % len(gain), len(gain) - 1
        put(clusters, a, merged(chosen(clusters, np.array([a, b]))))
        clusters = drop_cluster(z, a, b, clusters)
        gain[b], gain[:, b] = gain[last].copy(), gain[:, last].copy()
        gain = gain[:last, :last].copy()
        if b < last:
            gain[b, b] = -np.inf
        _gains_with(target, alpha, clusters, b if a == last else a, gain)


@njit(cache=True)
def _gains_with(
    target: Target, alpha: float, clusters: ClusterMoments, a: int, gain: np.ndarray
) -> None:
    """What joining cluster a with each other one would gain, into ``gain``'s row and column a."""
    empty = settle_nothing(target)
    for b in range(len(clusters.count)):
        if b != a:
            pair = chosen(clusters, np.array([a, b]))
            found = log_weight(target, alpha, merged(pair), empty)
            found -= log_weight(target, alpha, pair, empty)
            gain[a, b] = gain[b, a] = found
