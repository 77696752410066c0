"""Where EM begins: k-means++ centers on some rows (Arthur and Vassilvitskii 2007), a few rounds of
k-means, softened clusters.
"""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from partita.core import rng
from partita.core.protocols import Data
from partita.models.directed.components.base import Component

ROWS = 20_000  # that a start looks at
ROUNDS = 10
SOFT = 0.1  # share of every cluster that is spread over all rows


def some_rows(data: Data, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
    """All rows, or a random ``ROWS`` of them, with their weights."""
    n = len(data)
    index = (
        torch.arange(n) if n <= ROWS else rng.permutation(n, generator)[:ROWS].cpu().sort().values
    )
    batch = data.batch(index, generator=generator)
    return batch.x, batch.weight


def hard_start(
    component: Component, data: Data, generator: torch.Generator
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Rows, their weights, and responsibilities ``(K, B)`` of a clustering of them."""
    x, weight = some_rows(data, generator)
    mean = data.mean().to(x)
    points = component.embed(torch.where(x.isnan(), mean, x)).double().cpu().numpy()
    labels = clusters(
        points,
        None if weight is None else weight.double().cpu().numpy(),
        component.count,
        rng.seed(generator),
    )
    hard = torch.nn.functional.one_hot(labels, component.count).mT.to(x)
    return x, weight, (1 - SOFT) * hard + SOFT / component.count


def clusters(points: np.ndarray, weight: np.ndarray | None, count: int, seed: int) -> Tensor:
    """Labels of points after k-means++ and a few rounds of k-means."""
    from sklearn.cluster import KMeans, kmeans_plusplus
    from sklearn.exceptions import ConvergenceWarning

    centers, _ = kmeans_plusplus(points, count, sample_weight=weight, random_state=seed)
    rounds: dict[str, Any] = {"init": centers, "n_init": 1, "max_iter": ROUNDS}
    with warnings.catch_warnings():  # fewer distinct rows than clusters are no harm to a start
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(count, random_state=seed, **rounds).fit(points, sample_weight=weight)
    return torch.from_numpy(found.labels_).long()
