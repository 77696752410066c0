r"""The E-step of prototypical contrastive learning: clusters of embeddings at several granularities, and how dense each is.

.. math:: \phi_c = \frac{\sum_{z=1}^{Z} \|v_z - c\|_2}{Z \log(Z + \alpha)}, \qquad
          \text{rescaled so that the } \phi \text{ of one granularity have mean } \tau          (theory/contrastive.md, eq. 51.4)

Letters: N rows, E dimensions, k prototypes, c prototype, v embedding, Z rows of a cluster, phi concentration, tau temperature.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.core import rng

QUANTILES = (0.1, 0.9)  # between which concentrations are held, as the authors do
ROUNDS = 50  # of k-means


class Prototypes(NamedTuple):
    """One granularity: prototypes (k, E), their phi (k,), infinite where a cluster is empty, and every row's cluster (N,)."""

    centres: Tensor
    phi: Tensor
    member: Tensor


def no_prototypes(k: int, n: int, like: Tensor) -> Prototypes:
    """Before the first E-step: every cluster is empty; at most one for each row."""
    k = min(k, n)
    member = torch.full((n,), -1, dtype=torch.long, device=like.device)
    return Prototypes(like.new_zeros(k, like.shape[-1]), like.new_full((k,), torch.inf), member)


def find_prototypes(v: Tensor, k: int, temperature: float, alpha: float, *, generator: torch.Generator) -> Prototypes:
    """Spherical k-means of unit vectors ``v`` (N, E), and the concentrations; k is at most the number of different rows."""
    blank = no_prototypes(k, len(v), v)
    points = v.double().cpu().numpy()
    distinct = len(np.unique(points.round(9), axis=0))
    centres, member = spherical_k_means(points, min(len(blank.centres), distinct), rng.seed(generator))
    c, m = torch.from_numpy(centres).to(v), torch.from_numpy(member).to(v.device)
    blank.centres[: len(c)] = c
    blank.phi[: len(c)] = concentration(v, c, m, temperature, alpha)
    return blank._replace(member=m)


def spherical_k_means(points: np.ndarray, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit centres (k, E) and the cluster of every point (N,): scikit-learn's k-means, then rounds with centres on the sphere."""
    from sklearn.cluster import KMeans

    start: Any = KMeans(k, n_init=1, max_iter=ROUNDS, random_state=seed).fit(points)  # type: ignore[arg-type]
    centres, member = start.cluster_centers_, start.labels_.astype(np.int64)
    for _ in range(ROUNDS):
        centres = centres / np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-12)
        nearest = (points @ centres.T).argmax(1)
        if (nearest == member).all():
            break
        member = nearest
        sums = np.zeros_like(centres)
        np.add.at(sums, member, points)
        centres = np.where((np.bincount(member, minlength=k) > 0)[:, None], sums, centres)
    return centres, member


def concentration(v: Tensor, centres: Tensor, member: Tensor, temperature: float, alpha: float = 10.0) -> Tensor:
    """phi of every cluster, (k,): small where it is dense; a cluster of one takes the largest, an empty one is infinite.

    >>> v = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> concentration(v, torch.tensor([[1.0, 0.0]]), torch.tensor([0, 0]), 0.2).tolist()  # one cluster: phi is tau
    [0.2000...]
    """
    k = len(centres)
    size = torch.bincount(member, minlength=k).to(v)
    spread = v.new_zeros(k).index_add_(0, member, (v - centres[member]).norm(dim=1))
    phi = spread / (size * torch.log(size + alpha)).clamp_min(1e-12)
    several = size > 1
    if not several.any() or float(phi[several].max()) <= 0:  # nothing to compare: all alike
        return torch.where(size > 0, temperature, torch.inf)
    low, high = torch.quantile(phi[several], torch.tensor(QUANTILES, dtype=v.dtype, device=v.device))
    phi = torch.where(several, phi.clamp(low, high), phi[several].clamp(low, high).max()).clamp_min(1e-3 * float(high))
    return torch.where(size > 0, temperature * phi / phi[size > 0].mean(), torch.inf)
