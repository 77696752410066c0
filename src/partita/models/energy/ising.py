r"""The Ising model: spins with fields and symmetric couplings, on all pairs or on a given graph.

.. math:: F(x) = -\sum_i h_i x_i - \sum_{(i,j) \in E} J_{ij} x_i x_j, \quad x_i \in \{-1, +1\},
          \qquad
          p(x_i = 1 \mid x_{\setminus i}) = \sigma\big(2 (h_i + \textstyle\sum_j J_{ij} x_j)\big)
          (theory/discrete.md, eq. 12.4, 12.5)

Temperature is in the parameters: the physicist's -K sum x_i x_j at inverse temperature one.

Letters: N data, C chains, D visible, E edges.
"""

import torch
from torch import Generator, Tensor, nn

from partita.core.arguments import Moderate, PositiveInt
from partita.core.registry import MODELS
from partita.core.support import Spin
from partita.models.energy.graphs import Edges, Graph, as_edges, torus
from partita.models.energy.two_valued import TwoValuedPairs


@MODELS.register
class Ising(TwoValuedPairs):
    """Spins -1 and +1 with fields ``h`` (D) and one coupling ``J`` for each edge (E).

    Arguments:
        visible: Number of spins D.
        edges: Pairs of sites that are coupled, as :func:`torus` and :func:`lattice` make them; None
            couples all pairs.
        couplings: What every J starts at.
        fields: What every h starts at.
        generator: Says where the parameters live; they start as given.

    >>> from partita.models import torus
    >>> model = Ising(16, edges=torus(4, 4), couplings=0.44, generator=torch.Generator())
    >>> round(model.free_energy(torch.ones(16)).item(), 3)  # 32 bonds
    -14.08
    """

    examples = {
        "Ising, few spins": {"visible": 10},
        "Ising, a torus": {"visible": 64, "edges": torus(8, 8)},
    }
    unsaved = ("couplings", "fields")

    def __init__(
        self,
        visible: PositiveInt,
        *,
        edges: Edges = None,
        couplings: Moderate = 0.0,
        fields: Moderate = 0.0,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.support = Spin(visible)
        self.graph = Graph(visible, as_edges("Ising", edges, visible))
        self.h = nn.Parameter(torch.full((visible,), fields, device=generator.device))
        self.J = nn.Parameter(self.h.new_full((len(self.graph.edges),), couplings))
        self.register_product(self.h)

    @property
    def bias(self) -> Tensor:
        return self.h

    @torch.no_grad()
    def start_at(self, logits: Tensor) -> None:
        self.h.copy_(0.5 * (logits[:, 1] - logits[:, 0]))
