r"""The E-step of prototypical contrastive learning: clusters of embeddings at several
granularities, and how dense each is.

.. math:: \phi_c = \frac{\sum_{z=1}^{Z} \|v_z - c\|_2}{Z \log(Z + \alpha)}, \qquad
          \text{rescaled so that the } \phi \text{ of one granularity have mean } \tau
          (theory/contrastive.md, eq. 51.4)

Letters: N rows, E dimensions, k prototypes, c prototype, v embedding, Z rows of a cluster, phi
concentration, tau temperature.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.core import rng
from partita.errors import Diverged

QUANTILES = (0.1, 0.9)  # between which concentrations are held, as the authors do
ROUNDS = 50  # of k-means
SAME, DIRECTION = 1e-6, 51  # within which points are one, along a direction of this seed


class Prototypes(NamedTuple):
    """One granularity: prototypes (k, E), their phi (k,), infinite where a cluster is empty, and
    every row's cluster (N,).
    """

    centers: Tensor
    phi: Tensor
    member: Tensor


def no_prototypes(k: int, n: int, like: Tensor) -> Prototypes:
    """Before the first E-step: every cluster is empty; at most one for each row."""
    k = min(k, n)
    member = torch.full((n,), -1, dtype=torch.long, device=like.device)
    return Prototypes(like.new_zeros(k, like.shape[-1]), like.new_full((k,), torch.inf), member)


def find_prototypes(
    v: Tensor, k: int, temperature: float, alpha: float, *, generator: torch.Generator
) -> Prototypes:
    """Spherical k-means of unit vectors ``v`` (N, E), and the concentrations; k is at most the
    number of different rows.
    """
    blank = no_prototypes(k, len(v), v)
    points = v.double().cpu().numpy()
    centers, member = spherical_k_means(
        points, _most_clusters(points, len(blank.centers)), rng.seed(generator)
    )
    c, m = torch.from_numpy(centers).to(v), torch.from_numpy(member).to(v.device)
    blank.centers[: len(c)] = c
    blank.phi[: len(c)] = concentration(v, c, m, temperature, alpha)
    return blank._replace(member=m)


def spherical_k_means(points: np.ndarray, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit centers (k, E) and the cluster of every point (N,), each with its nearest center; an
    emptied cluster keeps its center.

    The start is faiss's k-means where it is installed, else scikit-learn's; rounds with centers on
    the sphere follow.
    """
    centers = _on_sphere(_start(points, k, seed))
    member = (points @ centers.T).argmax(1)
    for _ in range(ROUNDS):
        centers = _on_sphere(_sums(points, member, centers))
        nearest = (points @ centers.T).argmax(1)
        if (nearest == member).all():
            break
        member = nearest
    return centers, member


def _start(points: np.ndarray, k: int, seed: int) -> np.ndarray:
    if not np.isfinite(points).all():
        raise Diverged(
            "PCL: embeddings must be finite to find prototypes among them; got nan or infinity. "
            "Lower learning_rate."
        )
    try:
        return _by_faiss(points, k, seed)
    except ImportError:
        return _by_scikit_learn(points, k, seed)


def _by_scikit_learn(points: np.ndarray, k: int, seed: int) -> np.ndarray:
    from sklearn.cluster import KMeans

    rounds = KMeans(k, n_init=1, max_iter=ROUNDS, random_state=seed)  # type: ignore[arg-type]
    found = rounds.fit(points.astype(np.float32))
    return found.cluster_centers_.astype(np.float64)


def _by_faiss(points: np.ndarray, k: int, seed: int) -> np.ndarray:
    from faiss import Kmeans  # type: ignore[import-not-found]

    all_points = {"min_points_per_centroid": 1, "max_points_per_centroid": -(-len(points) // k)}
    found = Kmeans(
        points.shape[1], k, niter=ROUNDS, spherical=True, seed=seed % 2**31, **all_points
    )
    found.train(points.astype(np.float32))
    return found.centroids.astype(np.float64)


def _sums(points: np.ndarray, member: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Of the points of every cluster, (k, E); the center itself where there are none."""
    from scipy.sparse import csr_array

    n, k = len(points), len(centers)
    belongs = csr_array((np.ones(n), member, np.arange(n + 1)), shape=(n, k))
    return np.where((np.bincount(member, minlength=k) > 0)[:, None], belongs.T @ points, centers)


def _on_sphere(centers: np.ndarray) -> np.ndarray:
    return centers / np.maximum(np.linalg.norm(centers, axis=1, keepdims=True), 1e-12)


def _most_clusters(points: np.ndarray, k: int) -> int:
    """At most one for each different point. Along a random direction different points lie apart,
    and those that only rounding tells apart do not.
    """
    direction = np.random.default_rng(DIRECTION).standard_normal(points.shape[1])
    gaps: np.ndarray = np.diff(np.sort(points @ (direction / np.linalg.norm(direction))))
    return min(k, 1 + int((gaps > SAME).sum()))


def concentration(
    v: Tensor, centers: Tensor, member: Tensor, temperature: float, alpha: float = 10.0
) -> Tensor:
    """phi of every cluster, (k,): small where it is dense; a cluster of one takes the largest, an
    empty one is infinite.

    >>> v = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> concentration(
    ...     v, torch.tensor([[1.0, 0.0]]), torch.tensor([0, 0]), 0.2
    ... ).tolist()  # one cluster: phi is tau
    [0.2000...]
    """
    k = len(centers)
    size = torch.bincount(member, minlength=k).to(v)
    spread = v.new_zeros(k).index_add_(0, member, (v - centers[member]).norm(dim=1))
    phi = spread / (size * torch.log(size + alpha)).clamp_min(1e-12)
    several = size > 1
    if not several.any() or float(phi[several].max()) <= 0:  # nothing to compare: all alike
        return torch.where(size > 0, temperature, torch.inf)
    low, high = torch.quantile(phi[several], v.new_tensor(QUANTILES))
    phi = torch.where(several, phi.clamp(low, high), phi[several].clamp(low, high).max()).clamp_min(
        1e-3 * float(high)
    )
    return torch.where(size > 0, temperature * phi / phi[size > 0].mean(), torch.inf)
