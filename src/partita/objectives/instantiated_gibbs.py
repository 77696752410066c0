r"""Gibbs sampling with weights and parameters drawn, then all rows at once; clusters come and go by
split and merge moves.

.. math:: \pi \sim \mathrm{Dir}(n_1, \ldots, n_K, \alpha), \qquad \theta_k \sim p(\theta \mid x_k),
          \qquad
          p(z_i = k) \propto \pi_k\, \mathcal K(x_i \mid \theta_k)
          (theory/dirichlet.md, eq. 20.11 and 20.13)

Letters: n rows, C chains, K clusters.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch.distributions import Gamma

from partita.core import rng
from partita.models.directed.dirichlet_process.kernels import ClusterMoments, Clusters
from partita.objectives.partition_chain import (
    LEARN,
    ChainArrays,
    PartitionChain,
    PartitionProblem,
)
from partita.runtime.threads import map_in_threads

Drawn = tuple[np.ndarray, np.ndarray, np.ndarray]  # constants, centers and matrices of a chain


@dataclass(frozen=True)
class InstantiatedGibbs(PartitionChain):
    """For many rows: one pass reads them once, in parallel and in vector instructions; only split
    and merge moves change K.

    >>> import partita
    >>> from partita.models import DPMixture
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.cat([torch.randn(40, 1, generator=g), 20 + torch.randn(40, 1, generator=g)])
    >>> model = DPMixture(1, generator=g)
    >>> run = partita.fit(model, x, InstantiatedGibbs(), epochs=50, generator=g)
    >>> model.partitions.shape[1:], len(run.series("clusters"))
    (torch.Size([2, 80]), 50)
    """

    largest = LEARN + 2
    fewest_moves = 1

    def advance(
        self, problem: PartitionProblem, chains: ChainArrays, *, generator: torch.Generator
    ) -> list[ClusterMoments]:
        drawn = _weighted_parameters(problem, chains.clusters, generator)
        found = []
        for z, alpha, seeds, parameters in zip(
            chains.z, chains.alpha, chains.seeds, drawn, strict=True
        ):
            clusters = _pass(problem.target.x, z, parameters, int(seeds[0]))
            found.append(problem.split_or_merge(z, clusters, alpha, self.moves, seeds[1]))
        return found


def _weighted_parameters(
    problem: PartitionProblem, clusters: list[ClusterMoments], generator: torch.Generator
) -> Iterator[Drawn]:
    """For every chain log pi_k plus the constant of K(. | theta_k), its centers and its matrices,
    all chains' clusters drawn at once.
    """
    count, mean, scatter = (
        torch.from_numpy(np.concatenate(parts)) for parts in zip(*clusters, strict=True)
    )
    drawn = problem.kernel.parameters(Clusters(count.double(), mean, scatter), generator=generator)
    # the share of clusters yet unseen is not needed
    weight = rng.draw(Gamma(count.double(), torch.ones_like(mean[:, 0])), generator)
    ends = np.cumsum([len(one) for one, *_ in clusters])[:-1]
    parts = (drawn.constant + weight.log(), drawn.center, drawn.matrix)
    return zip(*(np.split(part.numpy(), ends) for part in parts), strict=True)


def _pass(x: np.ndarray, z: np.ndarray, parameters: Drawn, seed: int) -> ClusterMoments:
    """Redraw every row's cluster; returns the clusters."""
    from partita.models.directed.dirichlet_process.instantiated import (
        CHUNK,
        first_rows,
        moments_about,
        reassign,
    )

    n, center = len(z), parameters[1]
    offset, key = seed % n, seed * 0x9E3779B9 % 2**62
    first = first_rows(z, len(center), offset)
    parts = map_in_threads(
        reassign,
        [
            (x, z, at, min(at + CHUNK, n), offset, first, *parameters, key)
            for at in range(0, n, CHUNK)
        ],
    )
    count, total, square = (np.sum(part, axis=0) for part in zip(*parts, strict=True))
    return moments_about(count, total, square, center)
