r"""The Potts model: sites with K states, a field for every state and a coupling for every pair of
states on every edge.

.. math:: F(x) = -\sum_i h_i(x_i) - \sum_{(i,j) \in E} J_{ij}(x_i, x_j), \qquad
          \log p(x_i = v \mid x_{\setminus i}) = h_i(v) + \textstyle\sum_j J_{ij}(v, x_j) +
          \text{const}
          (theory/discrete.md, eq. 12.1, 12.7)

All site conditionals of a batch come from one product of its one-hot rows with the matrix of
couplings.

Letters: N data, B batch, D visible, K states, E edges.
"""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from partita.core.arguments import PositiveInt, Several, check_categories
from partita.core.registry import MODELS
from partita.core.support import Categorical
from partita.models.energy.graphs import Edges, Graph, as_edges
from partita.models.energy.pairwise import PairwiseModel, Sites


@MODELS.register
class Potts(PairwiseModel):
    """Categories 0 to K - 1 with fields ``h`` (D x K) and couplings ``J`` (E x K x K), first index
    the site of smaller number.

    The parameters are not unique: a constant can move between fields and couplings (a gauge). A
    penalty picks one; :func:`zero_sum` brings couplings to the gauge in which they are smallest.

    Arguments:
        visible: Number of sites D.
        states: Number of states K of each.
        edges: Pairs of sites that are coupled; None couples all pairs.
        generator: Says where the parameters live; they start at zero.

    >>> model = Potts(3, 4, generator=torch.Generator())
    >>> model.J.shape, model.conditional_logits(torch.tensor([[0.0, 3.0, 1.0]])).shape
    (torch.Size([3, 4, 4]), torch.Size([1, 3, 4]))
    """

    examples = {
        "Potts, few columns": {"visible": 4, "states": 3},
        "Potts, many columns": {"visible": 12, "states": 4},
    }

    def __init__(
        self,
        visible: PositiveInt,
        states: Several,
        *,
        edges: Edges = None,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.support = Categorical(visible, states)
        self.graph = Graph(visible, as_edges("Potts", edges, visible))
        self.h = nn.Parameter(torch.zeros(visible, states, device=generator.device))
        self.J = nn.Parameter(self.h.new_zeros(len(self.graph.edges), states, states))
        self.register_product(self.h)

    @property
    def states(self) -> int:
        """K."""
        return self.h.shape[1]

    def exponent(self, x: Tensor) -> Tensor:
        code, (i, j) = (
            check_categories("Potts", "x", x, self.states),
            self.graph.edges.to(x.device).unbind(1),
        )
        place = torch.arange(len(i), device=x.device) * self.states**2
        own = _look_up(self.h, torch.arange(x.shape[-1], device=x.device) * self.states + code)
        return own.sum(-1) + _look_up(
            self.J, place + code[..., i] * self.states + code[..., j]
        ).sum(-1)

    def own_logits(self, x: Tensor) -> Tensor:
        """One product of one-hot rows with the couplings, ``(*, D) -> (*, D, K)``."""
        hot = (
            functional.one_hot(check_categories("Potts", "x", x, self.states), self.states)
            .to(self.h.dtype)
            .reshape(-1, self.h.numel())
        )
        return torch.addmm(self.h.flatten(), hot, self.couplings()).view(*x.shape, self.states)

    def couplings(self) -> Tensor:
        """J as a symmetric matrix over (site, state), ``(D K, D K)``; blocks of pairs that are not
        coupled are zero.
        """
        i, j = self.graph.edges.unbind(1)
        d, k = self.h.shape
        blocks = self.J.new_zeros(d, d, k, k).index_put((i, j), self.J).index_put((j, i), self.J.mT)
        return blocks.transpose(1, 2).reshape(d * k, d * k)

    def site_logits(self, x: Tensor, i: int) -> Tensor:
        a, b = self.graph.starts[i : i + 2].tolist()
        felt = self._directed(slice(a, b))  # (neighbors, K, K)
        code = x[..., self.graph.neighbors[a:b]].long()
        return self.h[i] + felt[torch.arange(b - a, device=x.device), code].sum(-2)

    def sites(self, x: Tensor, beta: Tensor | None, *, generator: Generator) -> Sites:
        return Sites(
            self.graph,
            self.support.values().to(x),
            self._directed(slice(None)),
            self.h,
            self.reference_logits,
        )

    @torch.no_grad()
    def start_at(self, logits: Tensor) -> None:
        self.h.copy_(logits)

    def _sizes(self) -> tuple[int, ...]:
        return (self.support.width, self.states)

    def _directed(self, bonds: slice) -> Tensor:
        """Couplings as a site feels them, first index the neighbor's state, ``(bonds, K, K)``."""
        J, backwards = (
            self.J[self.graph.bonds[bonds]],
            self.graph.backwards[bonds].to(self.J.device),
        )
        return torch.where(backwards[:, None, None], J, J.mT)


def _look_up(table: Tensor, index: Tensor) -> Tensor:
    """Entries of a flattened table by number; its gradient adds up in place, without sorting."""
    return table.flatten().index_select(0, index.flatten()).view(index.shape)


def zero_sum(J: Tensor) -> Tensor:
    r"""Couplings in the gauge whose rows and columns sum to zero, which makes them smallest, ``(*,
    K, K)`` (eq. 12.8).

    .. math:: J'(a, b) = J(a, b) - J(\cdot, b) - J(a, \cdot) + J(\cdot, \cdot)
    """
    return J - J.mean(-1, keepdim=True) - J.mean(-2, keepdim=True) + J.mean((-2, -1), keepdim=True)


def contact_scores(model: Potts, skip: Sequence[int] = ()) -> Tensor:
    r"""How strongly each pair of sites is coupled, corrected for sites that couple to all, ``(D,
    D)`` (Ekeberg et al. 2013; eq. 12.9).

    .. math:: S_{ij} = \|J'_{ij}\| - \frac{\|J'_{i \cdot}\|\, \|J'_{\cdot j}\|}{\|J'_{\cdot\cdot}\|}

    Arguments:
        model: A fitted Potts model.
        skip: States left out of the norms, such as the gap of an alignment.
    """
    kept = [state for state in range(model.states) if state not in set(skip)]
    norms = zero_sum(model.J.detach())[:, kept][:, :, kept].flatten(1).norm(dim=1)
    i, j = model.graph.edges.unbind(1)
    matrix = norms.new_zeros(model.support.width, model.support.width).index_put((i, j), norms)
    matrix = matrix + matrix.mT
    means = matrix.sum(0) / max(1, len(matrix) - 1)
    overall = (matrix.sum() / max(1, len(matrix) * (len(matrix) - 1))).clamp_min(1e-30)
    return (matrix - means[:, None] * means / overall).fill_diagonal_(0.0)
