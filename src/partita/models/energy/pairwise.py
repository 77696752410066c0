r"""What models of pairs share: a graph of couplings, the straight path to the reference, and tables
for fast sweeps.

.. math:: F(x) = -\sum_i h_i(x_i) - \sum_{(i,j) \in E} J_{ij}(x_i, x_j), \qquad F_\beta = (1 -
          \beta) F_0 + \beta F
          (theory/discrete.md, eq. 12.1, 12.3)

Letters: N data, C chains, D visible, E edges, K states of a site.
"""

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from partita.core.arguments import check_width
from partita.core.protocols import Capability, Data, Field, Settings
from partita.models.energy.graphs import Graph
from partita.models.energy.paths import FromProduct
from partita.runtime.seeds import stretches

PAIR_CELLS = 1 << 22  # rows x edges counted together


class Sites(NamedTuple):
    """All that a site feels, for a sampler's kernel: its log-odds are linear in its neighbors'
    states.

    With two values, ``odds(x_i) = bias_i + sum over neighbors j of weights_ij x_j`` is log p(second
    value) - log p(first value); with K values, ``logits(x_i) = bias_i + sum over j of
    weights_ij[x_j]``. ``start`` is the same for the reference, at beta = 0.
    """

    graph: Graph
    values: Tensor  # (K,)
    weights: Tensor  # (2 E,) or (2 E, K, K), in the order of graph.neighbors
    bias: Tensor  # (D,), or (*, D) where each chain has its own; (D, K)
    start: Tensor  # (D,) or (D, K), or one for each chain


class PairwiseModel(FromProduct):
    """A model with biases and couplings on the edges of a graph; its path to the reference is a
    straight line of energies.
    """

    penalized = ("J",)
    capabilities = frozenset({Capability.PAIRS})
    graph: Graph
    J: Tensor

    @abstractmethod
    def exponent(self, x: Tensor) -> Tensor:
        """-F(x), ``(*, D) -> (*)``."""

    @abstractmethod
    def sites(self, x: Tensor, beta: Tensor | None, *, generator: Generator) -> Sites:
        """Tables for a sweep of chains at ``x``; hidden units, if there are any, are drawn
        given x.
        """

    @abstractmethod
    def start_at(self, logits: Tensor) -> None:
        """Set the biases so that the model without couplings has these logits, ``(D, K)``."""

    def free_energy(self, x: Tensor) -> Tensor:
        """F(x), ``(*, D) -> (*)``."""
        check_width(f"{type(self).__name__}.free_energy", "x", x, self.support.width, self.title())
        return -self.exponent(x)

    def field(self, x: Tensor) -> Field:
        return Field(x, torch.stack([self.reference().free_energy(x), self.free_energy(x)], -1))

    def energy_along(self, field: Field, beta: Tensor) -> Tensor:
        assert field.input is not None
        start, end = field.input.unbind(-1)
        return torch.lerp(start, end, beta.to(end))

    def conditional_logits(self, x: Tensor, beta: Tensor | None = None) -> Tensor:
        """log p(x_i = v | the others) up to a constant of each site, from one product, ``(*, D) ->
        (*, D, K)``.
        """
        check_width(
            f"{type(self).__name__}.conditional_logits", "x", x, self.support.width, self.title()
        )
        return super().conditional_logits(x, beta)

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        self.fit_product(data, len(data), generator)
        self.start_at(self.reference_logits)

    @torch.no_grad()
    def data_warnings(self, data: Data, *, generator: Generator) -> list[str]:
        counts = pair_counts(data, self.graph, self.support.values(), generator)
        empty = (counts == 0).flatten(1).any(1).nonzero().flatten()
        if not len(empty):
            return []
        i, j = self.graph.edges[empty[0]].tolist()
        return [
            f"{len(empty)} of {len(counts)} pairs of columns never show some pair of values (the "
            f"first is columns {i} and {j}), so their couplings have no finite optimum; give a "
            "penalty, such as l2=1e-3."
        ]

    def settings(self) -> Settings:
        edges = None if self.graph.is_complete else self.graph.edges.tolist()
        return {**super().settings(), "edges": edges}

    def title(self) -> str:
        sizes = ", ".join(map(str, self._sizes()))
        edges = "" if self.graph.is_complete else f", {len(self.graph.edges)} edges"
        return f"{type(self).__name__}({sizes}{edges})"

    def _sizes(self) -> tuple[int, ...]:
        return (self.support.width,)


def pair_counts(data: Data, graph: Graph, values: Tensor, generator: Generator) -> Tensor:
    """How many rows of positive weight show each pair of values on each edge, ``(E, K, K)``."""
    k, edges = len(values), len(graph.edges)
    total = torch.zeros(edges * k * k, dtype=torch.long)
    offset = torch.arange(edges) * k * k
    for index in stretches(len(data), max(1, PAIR_CELLS // max(1, edges))):
        batch = data.batch(index, generator=generator)
        x = batch.x.cpu() if batch.weight is None else batch.x.cpu()[batch.weight.cpu() > 0]
        code = torch.bucketize(x, values.to(x))
        total += torch.bincount(
            (code[:, graph.edges[:, 0]] * k + code[:, graph.edges[:, 1]] + offset).flatten(),
            minlength=len(total),
        )
    return total.view(edges, k, k)
