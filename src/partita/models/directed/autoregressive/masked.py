r"""Rows of fixed length, one column after the other, all conditionals from one pass of a masked
network.

.. math:: p(x) = \prod_{i=1}^{D} p(x_i \mid x_{<i})
          (theory/sequences.md, eq. 24.1)

Letters: B batch, D columns, K states of a column or components of a mixture.
"""

from typing import Annotated

import torch
from torch import Generator, Tensor

from partita.core.arguments import PositiveInt, Several, Sizes, one_of
from partita.core.protocols import Capability, Data, DirectedModel
from partita.core.registry import MODELS
from partita.models.directed.autoregressive.emissions import Sharpness, emission_of
from partita.nets.masked import MaskedMLP
from partita.tables.schema import support_of_one

CELLS = 1 << 24  # numbers of one layer that are kept at once where no gradient is needed


@MODELS.register
class MaskedAutoregressive(DirectedModel):
    """NADE's factorization with MADE's masks, exact ``log_prob`` and exact draws.

    Arguments:
        visible: D.
        element: ``"binary"``, ``"categorical"`` (``states`` of them) or ``"real"`` (a mixture of
            ``components`` normals per column).
        widths: Hidden units of each layer.
        generator: Source of the first weights.

    >>> model = MaskedAutoregressive(3, widths=(8,), generator=torch.Generator().manual_seed(0))
    >>> states = model.support.states(0, 8, torch.zeros(()))
    >>> round(model.log_prob(states).exp().sum().item(), 5)
    1.0
    """

    examples = {
        "MaskedAutoregressive": {"visible": 64, "widths": (32,)},
    }
    capabilities = frozenset({Capability.LOG_PROB})

    def __init__(
        self,
        visible: PositiveInt,
        element: Annotated[str, one_of("binary", "categorical", "real")] = "binary",
        *,
        states: Several = 2,
        components: PositiveInt = 8,
        widths: Sizes = (512,),
        generator: Generator,
    ) -> None:
        super().__init__()
        self.element, self.states = element, states
        law = states if element == "categorical" else element
        self.support, self.emission = support_of_one(law, visible), emission_of(law, components)
        self.net = MaskedMLP(visible, self.emission.numbers, widths=widths, generator=generator)

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x), exact, ``(*, D) -> (*)``."""
        self.support.check(x, "MaskedAutoregressive")
        if torch.is_grad_enabled():
            return self._log_prob(x)
        size = max(1, CELLS // (max(self.arguments["widths"]) + self.net.outputs * x.shape[-1]))
        rows = x.reshape(-1, x.shape[-1])
        return torch.cat([self._log_prob(part) for part in rows.split(size)]).view(x.shape[:-1])

    @torch.no_grad()
    def draw(
        self, n: int, *, temperature: float = 1.0, top_p: float = 1.0, generator: Generator
    ) -> Tensor:
        sharpness = Sharpness(temperature, top_p)
        sharpness.check("draw", self.support.discrete)
        x = self.like.new_zeros(n, self.support.width)
        for i in range(self.support.width):
            numbers = self.net(self._inputs(x))[:, i]
            x[:, i] = self.emission.draw(numbers, sharpness, generator)
        return x

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        """Biases of binary columns at their base rates; means of mixtures spread over what columns
        hold, and hardly moved yet.
        """
        bias = self.net.last.layer.bias.view(self.support.width, -1)
        if self.element == "real":
            self.net.last.soften()
            self.net.direct.soften()
        deviation = data.variance().sqrt().to(bias)
        start = self.emission.start(data.mean(), deviation, len(data))
        if start is not None:
            bias.copy_(start)

    def title(self) -> str:
        return f"MaskedAutoregressive({self.support.width}, {self.element})"

    def _inputs(self, x: Tensor) -> Tensor:
        """Columns about their middle."""
        return x if self.element == "real" else x / (self.states - 1) - 0.5

    def _log_prob(self, x: Tensor) -> Tensor:
        return self.emission.log_prob(self.net(self._inputs(x)), x).sum(-1)
