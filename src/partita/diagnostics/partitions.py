r"""What many draws of a partition say: how many clusters, which rows belong together, one
partition for all, and how sure that is.

.. math:: d(a, b) = \sum_k f(a_k) + \sum_j f(b_j) - 2 \sum_{kj} f(n_{kj}), \qquad
          f(m) = \tfrac{m}{n} \log m \;\text{(variation of information)} \quad\text{or}\quad
          \tfrac{m^2}{n^2} \;\text{(Binder)}
          (theory/dirichlet.md, eq. 20.17)

with a_k, b_j the sizes of the clusters of two partitions and n_kj of their intersections. None of
it depends on labels.

Letters: n rows, K clusters, S draws, C chains.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch

from partita.core.arguments import PositiveInt, Share, validated
from partita.diagnostics.chains import ChainReport, summarize_chains
from partita.errors import invalid

Loss = Literal["vi", "binder"]
MOST_ENUMERATED = 9  # rows, of which there are 21,147 partitions
WORK = 200_000_000  # labels compared when draws are tried as point estimates


class CredibleBall(NamedTuple):
    """The partitions nearest to a center that hold the posterior probability ``level`` (Wade and
    Ghahramani 2018).
    """

    center: np.ndarray  # (n,)
    level: float
    radius: float
    upper: np.ndarray  # fewest clusters inside, farthest first
    lower: np.ndarray  # most clusters inside
    horizontal: np.ndarray  # farthest inside


class PartitionPosterior(NamedTuple):
    """An exactly enumerated posterior."""

    labels: np.ndarray  # (B, n), B the Bell number
    log_prob: np.ndarray  # (B,)
    log_evidence: float

    @property
    def cluster_count_probs(self) -> np.ndarray:
        """P(K = k) at index k, ``(n + 1,)``."""
        return np.bincount(
            self.labels.max(1) + 1,
            weights=np.exp(self.log_prob),
            minlength=self.labels.shape[1] + 1,
        )

    @property
    def coclustering(self) -> np.ndarray:
        """P(i and j together), ``(n, n)``."""
        together = self.labels[:, :, None] == self.labels[:, None, :]
        return np.tensordot(np.exp(self.log_prob), together, 1)


@validated
def all_partitions(n: PositiveInt) -> np.ndarray:
    """Every partition of n rows as labels in order of appearance, ``(B, n)``.

    >>> [len(all_partitions(n)) for n in range(1, 7)]
    [1, 2, 5, 15, 52, 203]
    """
    if n > MOST_ENUMERATED:
        allowed = f"be at most {MOST_ENUMERATED}"
        raise invalid("all_partitions", "n", allowed, n, "Sample them instead.")
    labels = np.zeros((1, 1), np.int64)
    for _ in range(n - 1):
        room = labels.max(1) + 2  # an old label or the next new one
        following = np.concatenate([np.arange(k) for k in room])
        labels = np.column_stack([np.repeat(labels, room, axis=0), following])
    return labels


def enumerate_posterior(
    n: int,
    log_prior: Callable[[torch.Tensor], torch.Tensor],
    log_evidence: Callable[[np.ndarray], float],
) -> PartitionPosterior:
    """The posterior of all partitions of n rows.

    Arguments:
        n: Rows, at most 9.
        log_prior: log p of partitions from the sizes of their clusters, ``(B, n) -> (B,)``, zeros
            where there are fewer.
        log_evidence: log p(x) of the rows with these numbers as one cluster.

    >>> urn = enumerate_posterior(
    ...     3, lambda sizes: torch.lgamma(sizes.clamp_min(1).double()).sum(-1), lambda rows: 0.0
    ... )  # alpha = 1
    >>> urn.cluster_count_probs.round(4).tolist()
    [0.0, 0.3333, 0.5, 0.1667]
    """
    labels = all_partitions(n)
    masks = (np.arange(1, 2**n)[:, None] >> np.arange(n)) & 1
    evidence = np.array([0.0, *(log_evidence(np.flatnonzero(mask)) for mask in masks)])
    # (B, n) as numbers of masks
    members = np.stack([((labels == k) << np.arange(n)).sum(1) for k in range(n)], -1)
    counts = torch.from_numpy((labels[:, :, None] == np.arange(n)).sum(1))
    joint = evidence[members].sum(1) + log_prior(counts).numpy()
    total = float(np.logaddexp.reduce(joint))
    return PartitionPosterior(labels, joint - total, total)


def cluster_counts(partitions: np.ndarray) -> np.ndarray:
    """K of every partition, ``(*, n) -> (*)``; labels may be any whole numbers."""
    ordered = np.sort(partitions, axis=-1)
    return 1 + (np.diff(ordered, axis=-1) != 0).sum(-1)


def cluster_count_probs(partitions: np.ndarray) -> np.ndarray:
    """Share of the draws with k clusters at index k.

    >>> cluster_count_probs(np.array([[0, 0, 1], [0, 1, 2]]))
    array([0. , 0. , 0.5, 0.5])
    """
    counts = cluster_counts(partitions).ravel()
    return np.bincount(counts) / len(counts)


def coclustering(partitions: np.ndarray) -> np.ndarray:
    """Share of the draws in which two rows are together, ``(*, n) -> (n, n)``."""
    flat = partitions.reshape(-1, partitions.shape[-1])
    together = np.zeros((flat.shape[1],) * 2)
    for labels in flat:
        together += labels[:, None] == labels[None, :]
    return together / len(flat)


def distance(a: np.ndarray, b: np.ndarray, loss: Loss = "vi") -> float:
    """Between two partitions: variation of information in nats, or the share of ordered pairs that
    they treat differently (Binder).

    >>> (
    ...     distance(np.array([0, 0, 1, 1]), np.array([5, 5, 2, 2])),
    ...     distance(np.array([0, 0]), np.array([0, 1]), "binder"),
    ... )
    (0.0, 0.5)
    """
    return float(distances(np.atleast_2d(a), np.atleast_2d(b), loss)[0, 0])


@validated
def distances(a: np.ndarray, b: np.ndarray, loss: Loss = "vi") -> np.ndarray:
    """Between all of two lists of partitions, ``(A, n), (B, n) -> (A, B)``."""
    from partita.diagnostics.partition_search import all_distances

    return all_distances(renumbered(a), renumbered(b), terms(a.shape[-1], loss))


def terms(n: int, loss: Loss) -> np.ndarray:
    """f(m) for m from 0 to n."""
    m = np.arange(n + 1, dtype=np.float64)
    return m * np.log(np.maximum(m, 1)) / n if loss == "vi" else m**2 / n**2


@validated
def point_estimate(partitions: np.ndarray, loss: Loss = "vi") -> np.ndarray:
    """The partition of least expected loss that a search finds, ``(*, n) -> (n,)``, labels by
    falling size of cluster.

    It starts from the best of the draws themselves and moves rows one by one while that lowers the
    expected loss.
    """
    from partita.diagnostics.partition_search import all_distances, improve

    draws = renumbered(partitions.reshape(-1, partitions.shape[-1]))
    S, n = draws.shape
    table = terms(n, loss)
    tried = draws[:: max(1, S * S * n // WORK)]
    best = tried[all_distances(tried, draws, table).mean(1).argmin()]
    return by_size(improve(best.copy(), draws, table))


@validated
def credible_ball(
    partitions: np.ndarray, center: np.ndarray, level: Share = 0.95, loss: Loss = "vi"
) -> CredibleBall:
    """The ball about ``center`` that holds ``level`` of the draws, and its extreme members."""
    draws = partitions.reshape(-1, partitions.shape[-1])
    away = distances(center[None], draws, loss)[0]
    order = np.argsort(away, kind="stable")
    inside = order[: max(1, int(np.ceil(level * len(order))))][::-1]  # farthest first
    K = cluster_counts(draws[inside])
    return CredibleBall(
        center,
        level,
        float(away[inside[0]]),
        draws[inside[K.argmin()]],
        draws[inside[K.argmax()]],
        draws[inside[0]],
    )


def functionals(partitions: np.ndarray) -> np.ndarray:
    """Numbers that no relabeling changes: K, entropy of the sizes, largest share, pairs together,
    ``(*, n) -> (*, 4)``.
    """
    n, flat = partitions.shape[-1], renumbered(partitions.reshape(-1, partitions.shape[-1]))
    found = np.empty((len(flat), 4))
    for row, labels in zip(found, flat, strict=True):
        share = np.bincount(labels) / n
        row[:] = len(share), -(share * np.log(share)).sum(), share.max(), (share**2).sum()
    return found.reshape(*partitions.shape[:-1], 4)


def summarize_partitions(partitions: np.ndarray) -> ChainReport:
    """R-hat and effective sample size of label-free functionals, the worst of them, ``(S, C,
    n)``.
    """
    return summarize_chains(torch.from_numpy(functionals(partitions)).transpose(0, 1), redrawn=True)


def renumbered(partitions: np.ndarray) -> np.ndarray:
    """Labels 0 to K - 1 in order of appearance, ``(S, n)``."""
    from partita.diagnostics.partition_search import renumber

    return renumber(np.ascontiguousarray(partitions, dtype=np.int32))


def by_size(labels: np.ndarray) -> np.ndarray:
    """Labels by falling size of cluster; of equal ones the first row decides."""
    labels = renumbered(labels[None])[0]
    rank = np.empty(labels.max() + 1, np.int64)
    rank[np.argsort(-np.bincount(labels), kind="stable")] = np.arange(len(rank))
    return rank[labels]
