r"""Pairwise models of sites with two values, in matrix form.

.. math:: F(x) = -h^\top x - \tfrac12 x^\top J x, \qquad a = h + J x, \qquad
          \log \frac{p(x_i = v' \mid x_{\setminus i})}{p(x_i = v \mid x_{\setminus i})} = (v' - v)\,
          a_i
          (theory/discrete.md, eq. 12.4, 12.5)

J is symmetric with an empty diagonal; its parameters are those of the edges, so that sparse
couplings stay cheap.

Letters: D visible, E edges, G largest number of neighbors.
"""

from abc import abstractmethod

import torch
from torch import Generator, Tensor
from torch.nn import functional

from partita.models.energy.pairwise import PairwiseModel, Sites

MOST_FOR_EIGENVECTORS = 2048  # sites


class TwoValuedPairs(PairwiseModel):
    """Biases and couplings of sites whose value enters the energy as a number."""

    @property
    @abstractmethod
    def bias(self) -> Tensor:
        """h, ``(D,)``."""

    def exponent(self, x: Tensor) -> Tensor:
        return x @ self.bias + self.pair_sum(x)

    def pair_sum(self, x: Tensor) -> Tensor:
        """Sum over edges of J_ij x_i x_j, ``(*, D) -> (*)``: one product with the upper triangle,
        or one term for each edge.
        """
        if self.graph.dense:
            return (x * (x @ self._upper().mT)).sum(-1)
        i, j = self.graph.edges.unbind(1)
        return (x[..., i] * x[..., j]) @ self.J

    def local_input(self, x: Tensor) -> Tensor:
        """a = h + J x, ``(*, D) -> (*, D)``: what every site feels."""
        if self.graph.dense:
            return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.couplings()).view(
                x.shape
            )
        near, bond = self.graph.padded
        return self.bias + (functional.pad(self.J, (0, 1))[bond] * x[..., near]).sum(-1)

    def couplings(self) -> Tensor:
        """J as a symmetric matrix, ``(D, D)``."""
        upper = self._upper()
        return upper + upper.mT

    def own_logits(self, x: Tensor) -> Tensor | None:
        return self.local_input(x)[..., None] * self.support.values().to(x)

    def site_logits(self, x: Tensor, i: int) -> Tensor:
        a, b = self.graph.starts[i : i + 2].tolist()
        own = self.bias[i] + x[..., self.graph.neighbors[a:b]] @ self.J[self.graph.bonds[a:b]]
        return own[..., None] * self.support.values().to(x)

    def sites(self, x: Tensor, beta: Tensor | None, *, generator: Generator) -> Sites:
        values = self.support.values().to(x)
        step = values[1] - values[0]
        start = self.reference_logits[..., 1] - self.reference_logits[..., 0]
        return Sites(self.graph, values, step * self.J[self.graph.bonds], step * self.bias, start)

    @torch.no_grad()
    def landmarks(self, n: int) -> Tensor:
        """All sites alike, and the signs of the couplings' leading eigenvectors, both ways: the
        patterns that a memory stores.
        """
        values, even = self.support.values().to(self.J), super().landmarks(n)
        assert even is not None
        if self.support.width > MOST_FOR_EIGENVECTORS:
            return even
        leading = (
            torch.linalg.eigh(self.couplings().double())
            .eigenvectors.flip(-1)
            .mT[: max(0, (n - len(even)) // 2)]
        )
        return torch.cat([even, values[(torch.cat([leading, -leading]) > 0).long()]])

    def _upper(self) -> Tensor:
        return self.J.new_zeros(self.support.width, self.support.width).index_put(
            tuple(self.graph.edges.unbind(1)), self.J
        )
