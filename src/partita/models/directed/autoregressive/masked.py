r"""Rows of fixed length, one column after the other, all conditionals from one pass of a masked
network.

.. math:: p(x) = \prod_{i=1}^{D} p(x_i \mid x_{<i})
          (theory/sequences.md, eq. 24.1)

Letters: B batch, D columns, K states of a column or components of a mixture.
"""

from typing import Annotated

import torch
from torch import Tensor

from partita.core.constraints import Several, Size, Sizes, one_of
from partita.core.protocols import Capability, Data, DirectedModel
from partita.core.support import Binary, Categorical, Real
from partita.models.directed.autoregressive import emissions
from partita.nets.masked import MaskedMLP

CELLS = 1 << 24  # numbers of one layer that are kept at once where no gradient is needed


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

    capabilities = frozenset({Capability.LOG_PROB})

    def __init__(
        self,
        visible: Size,
        element: Annotated[str, one_of("binary", "categorical", "real")] = "binary",
        *,
        states: Several = 2,
        components: Size = 8,
        widths: Sizes = (512,),
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.element, self.states, self.components = element, states, components
        self.support = (
            Categorical(visible, states)
            if element == "categorical"
            else {"binary": Binary, "real": Real}[element](visible)
        )
        outputs = {"binary": 1, "categorical": states, "real": 3 * components}[element]
        self.net = MaskedMLP(visible, outputs, widths=widths, generator=generator)

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x), exact, ``(*, D) -> (*)``."""
        self.support.check(x, "MaskedAutoregressive")
        if torch.is_grad_enabled():
            return self._terms(self.net(self._inputs(x)), x).sum(-1)
        size = max(1, CELLS // (max(self.arguments["widths"]) + self.net.outputs * x.shape[-1]))
        rows = x.reshape(-1, x.shape[-1])
        parts = [self._terms(self.net(self._inputs(x)), x).sum(-1) for x in rows.split(size)]
        return torch.cat(parts).view(x.shape[:-1])

    @torch.no_grad()
    def draw(
        self, n: int, *, temperature: float = 1.0, top_p: float = 1.0, generator: torch.Generator
    ) -> Tensor:
        emissions.check_sharpness("draw", temperature, top_p, self.support.discrete)
        x = self.like.new_zeros(n, self.support.width)
        for i in range(self.support.width):
            numbers = self.net(self._inputs(x))[:, i]
            if self.element == "real":
                x[:, i] = emissions.draw_mixture(numbers, temperature, generator)
            elif self.element == "binary":
                odds = numbers.squeeze(-1)
                x[:, i] = emissions.draw_bernoulli(odds, temperature, top_p, generator)
            else:
                x[:, i] = emissions.draw_categorical(numbers, temperature, top_p, generator)
        return x

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: torch.Generator) -> None:
        """Biases of binary columns at their base rates; means of mixtures spread over what columns
        hold, and hardly moved yet.
        """
        bias = self.net.last.layer.bias.view(self.support.width, -1)
        if self.element == "binary":
            p = (data.mean() * len(data) + 0.5) / (len(data) + 1)
            bias.copy_(p.logit().unsqueeze(-1))
        if self.element == "real":
            self.net.last.soften()
            self.net.direct.soften()
            K = self.components
            spread = torch.linspace(-1.5, 1.5, K).to(bias) if K > 1 else bias.new_zeros(1)
            mean, deviation = data.mean().to(bias), data.variance().sqrt().to(bias)
            bias[:, :K] = 0
            bias[:, K : 2 * K] = mean[:, None] + deviation[:, None] * spread
            bias[:, 2 * K :] = deviation.log()[:, None] - 0.7

    def title(self) -> str:
        return f"MaskedAutoregressive({self.support.width}, {self.element})"

    def _inputs(self, x: Tensor) -> Tensor:
        """Columns about their middle."""
        return x if self.element == "real" else x / (self.states - 1) - 0.5

    def _terms(self, numbers: Tensor, x: Tensor) -> Tensor:
        if self.element == "binary":
            return emissions.bernoulli_log_prob(numbers.squeeze(-1), x)
        if self.element == "categorical":
            return emissions.categorical_log_prob(numbers, x)
        return emissions.mixture_log_prob(numbers, x)
