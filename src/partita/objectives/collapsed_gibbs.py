r"""Collapsed Gibbs sampling of a Dirichlet process mixture (Neal 2000, algorithm 3), with split and
merge moves (Dahl 2005).

.. math:: p(z_i = k \mid z_{\setminus i}, x) \propto n_k^{(-i)}\, p(x_i \mid x_{k \setminus i}),
          \qquad
          p(z_i = \text{new}) \propto \alpha\, p(x_i)          (theory/dirichlet.md, eq. 20.10)

Letters: n rows, C chains.
"""

from dataclasses import dataclass

import numpy as np
import torch

from partita.models.directed.dirichlet_process.kernels import ClusterMoments
from partita.objectives.partition_chain import (
    ChainArrays,
    PartitionChain,
    PartitionProblem,
    gather,
)
from partita.runtime.threads import map_in_threads


@dataclass(frozen=True)
class CollapsedGibbs(PartitionChain):
    """Every row in turn, parameters integrated out: mixes best per sweep; one pass costs n K
    predictives in sequence.

    >>> import partita
    >>> from partita.models import DPMixture
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.cat([torch.randn(40, 1, generator=g), 20 + torch.randn(40, 1, generator=g)])
    >>> model = DPMixture(1, generator=g)
    >>> run = partita.fit(model, x, CollapsedGibbs(), epochs=50, generator=g)
    >>> partita.evaluate(model, x, generator=g).kind
    'estimate'
    """

    def advance(
        self, problem: PartitionProblem, chains: ChainArrays, *, generator: torch.Generator
    ) -> list[ClusterMoments]:
        return map_in_threads(
            self._sweep,
            [(problem, *chain) for chain in zip(chains.z, chains.alpha, chains.seeds, strict=True)],
        )

    def _sweep(
        self, problem: PartitionProblem, z: np.ndarray, alpha: float, seeds: np.ndarray
    ) -> ClusterMoments:
        from partita.models.directed.dirichlet_process.collapsed import sweep

        sweep(problem.target, z, alpha, seeds[0])
        clusters = gather(problem.kernel, problem.target.x, z)
        if not self.moves:
            return clusters
        return problem.split_or_merge(z, clusters, alpha, self.moves, seeds[1])
