"""ClusterSummary of a file's rows: the component of a mixture that each row belongs to, with its
probability.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.diagnostics.partitions import point_estimate
from partita.errors import invalid
from partita.experiment.input_table import InputTable, destination, read_input, write_results
from partita.experiment.saved import SavedRun, open_run
from partita.models import DPMixture
from partita.models.directed.mixture import Mixing
from partita.tables import Column
from partita.tables.on_disk import gather_rows
from partita.tables.write import check_ending


class ClusterSummary(NamedTuple):
    """How many of a file's rows belong to each cluster, and where their labels were written."""

    path: Path
    model: str
    sizes: np.ndarray  # (K,), rows of each cluster
    mean_probability: np.ndarray  # (K,), of a cluster's rows to be in it; NaN where it has none


def cluster_file(
    folder: Path,
    source: Path,
    out: Path | None = None,
    *,
    probabilities: bool = False,
    allow_diverged: bool = False,
) -> ClusterSummary:
    """Write a file with the cluster of each row beside it; all probabilities too, on request."""
    saved = open_run(folder, allow_diverged=allow_diverged)
    membership = membership_of(saved)
    path = destination(source, out, "cluster", "clusters")
    table = read_input(saved, source, "cluster")
    check_ending(path, "cluster")
    results, sizes, sums = _assign(membership, table, probabilities)
    columns = [Column("cluster", "count", "int64"), Column("cluster_probability", "real")]
    if probabilities:
        columns += [Column(f"cluster_{k}", "real") for k in range(len(sizes))]
    write_results(table, path, columns, results)
    mean = np.divide(sums, sizes, out=np.full(len(sizes), np.nan), where=sizes > 0)
    return ClusterSummary(path, saved.run.model.title(), sizes, mean)


def membership_of(saved: SavedRun) -> Callable[[np.ndarray], np.ndarray]:
    """p(cluster | row) as a function of rows, ``(N, D) -> (N, K)``; missing values are integrated
    out.
    """
    model, encoding = saved.run.model, saved.encoding
    if not isinstance(model, Mixing | DPMixture):
        allowed = "be of a mixture: mixture, mixture-ppca or dpmm"
        raise invalid("cluster", "RUN", allowed, model.title())
    labels = point_estimate(model.partitions.numpy()) if isinstance(model, DPMixture) else None

    @torch.no_grad()
    def membership(x: np.ndarray) -> np.ndarray:
        z = torch.from_numpy(encoding.encode(encoding.check(x, "cluster")))
        if isinstance(model, DPMixture) and labels is not None:
            return consensus_membership(model, z, labels)
        return model.responsibilities(z).double().numpy()

    return membership


def consensus_membership(model: DPMixture, z: Tensor, labels: np.ndarray) -> np.ndarray:
    """Probability of each cluster of a partition of the training rows, ``(N, D) -> (N, K)``: where
    each posterior draw would put a row, by the training rows that are there (eq. 20.19).
    """
    owner = model.owner.numpy()
    partitions = model.partitions.numpy().reshape(-1, len(labels))
    starts = np.searchsorted(owner, np.arange(len(partitions)))
    shared = np.zeros((len(owner), labels.max() + 1))
    for start, draw in zip(starts, partitions, strict=True):
        np.add.at(shared, (start + draw, labels), 1.0)
    shared /= shared.sum(1, keepdims=True)
    return model.responsibilities(z).numpy() @ shared / len(partitions)


def _assign(
    membership: Callable[[np.ndarray], np.ndarray], table: InputTable, probabilities: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The columns to write, ``(N, 2)`` or ``(N, 2 + K)``, in memory or on disk; of each cluster the
    number of rows and the sum of their probabilities.
    """
    chunks = (membership(x) for _, x in table.chunks())
    first = next(chunks)
    K = first.shape[1]
    sizes, sums = np.zeros(K, dtype=int), np.zeros(K)

    def results() -> Iterator[np.ndarray]:
        for p in chain([first], chunks):
            label, most = p.argmax(1), p.max(1)
            np.add.at(sizes, label, 1)
            np.add.at(sums, label, most)
            yield np.column_stack([label, most, p if probabilities else p[:, :0]])

    columns = gather_rows(results(), (len(table), 2 + K * probabilities), np.float64)
    return columns, sizes, sums
