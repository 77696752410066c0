r"""The Boltzmann machine: binary units that all see one another, some of them hidden (Ackley,
Hinton and Sejnowski 1985).

.. math:: E(x, h) = -b^\top x - c^\top h - \tfrac12 x^\top J x - x^\top W h - \tfrac12 h^\top L h,
          \qquad
          F(x) = -b^\top x - \tfrac12 x^\top J x - \log \sum_h \exp\big(h^\top (c + W^\top x) +
          \tfrac12 h^\top L h\big)
          (theory/discrete.md, eq. 12.6)

Hidden units that see one another are summed state by state, so there must be few; those of an RBM,
which do not, may be many.

Letters: N data, C chains, D visible, H hidden, E edges, S = 2^H hidden states.
"""

import math
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn

from partita.core import rng
from partita.core.arguments import NonNegativeFloat, NonNegativeInt, PositiveInt
from partita.core.protocols import Data, Field
from partita.core.registry import MODELS
from partita.core.support import Binary
from partita.errors import invalid
from partita.models.energy.graphs import Edges, Graph, as_edges, complete
from partita.models.energy.pairwise import Sites
from partita.models.energy.two_valued import TwoValuedPairs

MOST_HIDDEN = 12  # their states are summed at every row


@MODELS.register
class Boltzmann(TwoValuedPairs):
    """Binary units with biases ``b`` (D), ``c`` (H) and couplings ``J`` (E), ``W`` (D x H), ``L``
    (H (H - 1) / 2).

    Arguments:
        visible: Number of visible units D.
        hidden: Number of hidden units H, at most 12.
        edges: Pairs of visible units that are coupled; None couples all pairs.
        scale: Deviation of the initial W; without hidden units nothing is random.
        generator: Source of the initial W.

    >>> model = Boltzmann(3, 2, generator=torch.Generator().manual_seed(0))
    >>> model.hidden_given_visible_probs(torch.zeros(1, 3)).shape
    torch.Size([1, 4])
    """

    examples = {
        "Boltzmann, few units": {"visible": 10},
        "Boltzmann, hidden units": {"visible": 22, "hidden": 2},
    }
    penalized = ("J", "W", "L")
    unsaved = ("scale",)

    def __init__(
        self,
        visible: PositiveInt,
        hidden: NonNegativeInt = 0,
        *,
        edges: Edges = None,
        scale: NonNegativeFloat = 0.1,
        generator: Generator,
    ) -> None:
        super().__init__()
        if hidden > MOST_HIDDEN:
            allowed = (
                f"be at most {MOST_HIDDEN}, for the states of hidden units that see one another "
                "are summed one by one"
            )
            raise invalid(
                "Boltzmann", "hidden", allowed, hidden, "Use an RBM, whose hidden units do not."
            )
        self.support, self.hidden = Binary(visible), hidden
        self.graph = Graph(visible, as_edges("Boltzmann", edges, visible))
        self.b = nn.Parameter(torch.zeros(visible, device=generator.device))
        self.J = nn.Parameter(self.b.new_zeros(len(self.graph.edges)))
        self.c = nn.Parameter(self.b.new_zeros(hidden))
        self.W = nn.Parameter(
            scale * torch.randn(visible, hidden, generator=generator, device=generator.device)
        )
        self.L = nn.Parameter(self.b.new_zeros(hidden * (hidden - 1) // 2))
        self.register_product(self.b)

    @property
    def bias(self) -> Tensor:
        return self.b

    def energy(self, x: Tensor, h: Tensor) -> Tensor:
        """E(x, h), ``(*, D), (*, H) -> (*)``."""
        pairs = (h * (h @ self._hidden_upper().mT)).sum(-1)
        return -super().exponent(x) - (h * (self.c + x @ self.W)).sum(-1) - pairs

    def exponent(self, x: Tensor) -> Tensor:
        return super().exponent(x) + torch.logsumexp(self._hidden_exponents(x), -1)

    def hidden_given_visible_probs(self, x: Tensor, beta: Tensor | None = None) -> Tensor:
        """p(h | x) of every hidden state, in the order of ``Binary(H).states``, ``(*, D) -> (*,
        S)``.
        """
        exponents = self._hidden_exponents(x)
        return torch.softmax(exponents if beta is None else beta[..., None] * exponents, -1)

    def field(self, x: Tensor) -> Field:
        start = replace(self.product, offset=0.0).free_energy(x)
        ends = torch.stack([start, -super().exponent(x)], -1)
        return Field(x, torch.cat([ends, self._hidden_exponents(x)], -1))

    def energy_along(self, field: Field, beta: Tensor) -> Tensor:
        assert field.input is not None
        start, end = field.input[..., :2].unbind(-1)
        return torch.lerp(start, end, beta.to(end)) - torch.logsumexp(
            beta[..., None] * field.input[..., 2:], -1
        )

    def own_logits(self, x: Tensor) -> Tensor | None:
        return None if self.hidden else super().own_logits(x)

    def site_energies(
        self, x: Tensor, i: int, values: Tensor, beta: Tensor | None = None
    ) -> Tensor:
        own = super().site_energies(x, i, values, beta)
        if not self.hidden:
            return own
        others = (
            self._hidden_exponents(x) - (x[..., i, None] * self.W[i]) @ self._hidden_states().mT
        )
        exponents = (
            others + (values.view(-1, *[1] * x.dim()) * self.W[i]) @ self._hidden_states().mT
        )
        return own - torch.logsumexp(exponents if beta is None else beta[..., None] * exponents, -1)

    def sites(self, x: Tensor, beta: Tensor | None, *, generator: Generator) -> Sites:
        """Tables for a sweep; hidden units are drawn from p(h | x) first, and move every chain's
        biases.
        """
        tables = super().sites(x, beta, generator=generator)
        if not self.hidden:
            return tables
        state = rng.categories(self.hidden_given_visible_probs(x, beta).log(), generator)
        return tables._replace(bias=tables.bias + self._hidden_states()[state] @ self.W.mT)

    @property
    def hidden_nats(self) -> float:
        return self.hidden * math.log(2)

    @torch.no_grad()
    def start_at(self, logits: Tensor) -> None:
        self.b.copy_(logits[:, 1] - logits[:, 0])

    def data_warnings(self, data: Data, *, generator: Generator) -> list[str]:
        return [] if self.hidden else super().data_warnings(data, generator=generator)

    def _sizes(self) -> tuple[int, ...]:
        return (self.support.width, self.hidden) if self.hidden else (self.support.width,)

    def _hidden_exponents(self, x: Tensor) -> Tensor:
        """h'(c + W'x) + h'Lh / 2 of every hidden state, ``(*, S)``; one zero where there are no
        hidden units.
        """
        states = self._hidden_states()
        pairs = (states * (states @ self._hidden_upper().mT)).sum(-1)
        return (self.c + x @ self.W) @ states.mT + pairs

    def _hidden_states(self) -> Tensor:
        return (
            Binary(self.hidden).states(0, 2**self.hidden, self.W)
            if self.hidden
            else self.W.new_zeros(1, 0)
        )

    def _hidden_upper(self) -> Tensor:
        return self.L.new_zeros(self.hidden, self.hidden).index_put(
            tuple(complete(self.hidden).unbind(1)), self.L
        )
