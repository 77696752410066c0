"""Draws of partitions that come from a file: labels are numbers of clusters, by which machine code
reads and writes.

Letters: n rows, R draws, P clusters of all of them together.
"""

import torch
from torch import Tensor

from partita.errors import RunError
from partita.models.directed.dirichlet_process.kernels import Clusters


def check_draws(z: Tensor, alphas: Tensor, owner: Tensor, clusters: Clusters) -> None:
    """Raise unless clusters are those that labels make.

    Arguments:
        z: The label of every row in every draw, ``(R, n)``.
        alphas: The concentration of every draw, ``(R,)``.
        owner: The draw that a cluster belongs to, ``(P,)``.
        clusters: What each of them holds.
    """
    sizes = {len(owner), *map(len, clusters)}
    if (
        len(z) != len(alphas)
        or len(sizes) > 1
        or not _concentrations(alphas)
        or not _numbered(z, owner, clusters.count)
    ):
        raise RunError(
            "load: the draws of a DPMixture must be of the clusters saved with them; got others. "
            "Restore the file."
        )


def _concentrations(alphas: Tensor) -> bool:
    return bool((alphas.isfinite() & (alphas > 0)).all())


def _numbered(z: Tensor, owner: Tensor, count: Tensor) -> bool:
    """Whether labels are 0, 1, ... in every draw, none without rows, and clusters are counted as
    they are.
    """
    if not z.numel():
        return not len(z) and not len(owner)
    if bool((z < 0).any() or (z >= z.shape[1]).any()):
        return False
    members = [torch.bincount(labels) for labels in z]
    owners = torch.cat([torch.full_like(found, draw) for draw, found in enumerate(members)])
    return (
        torch.equal(owners, owner)
        and torch.equal(torch.cat(members).to(count), count)
        and bool((count > 0).all())
    )
