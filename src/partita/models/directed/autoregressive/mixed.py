r"""Tables of different kinds of columns, one column after the other: each by its own law, given the
columns before it.

.. math:: p(x) = \prod_{i=1}^{D} p_i(x_i \mid x_{<i})          (theory/mixed_tables.md, eq. 45.6)

A real column is a mixture of normals, a count one of Poissons, zeros and ones a Bernoulli, a
category a softmax, with numbers from one masked network, which sees categories one by one, counts
by their logarithm, and real columns as they are.

Letters: B batch, D columns, K states of a column or components of a mixture.
"""

import torch
from torch import Generator, Tensor

from partita.core.arguments import PositiveInt, Sizes
from partita.core.protocols import Capability, Data, DirectedModel
from partita.core.registry import MODELS
from partita.models.directed.autoregressive.emissions import PLAIN, emission_of
from partita.nets.masked import MaskedColumns
from partita.tables.column_kinds import Laws, kinds_in_words, support_of


@MODELS.register
class MixedAutoregressive(DirectedModel):
    """Exact ``log_prob`` and exact draws of mixed columns.

    Arguments:
        laws: What each column holds: ``"real"``, ``"binary"``, ``"count"``, or a number of states.
        components: Normals in the mixture of a real column, Poissons in that of a count.
        widths: Hidden units of each layer.
        generator: Source of the first weights.

    >>> model = MixedAutoregressive(
    ...     ("binary", 3), widths=(8,), generator=torch.Generator().manual_seed(0)
    ... )
    >>> states = model.support.states(0, 6, torch.zeros(()))
    >>> round(model.log_prob(states).exp().sum().item(), 5)
    1.0
    """

    examples = {
        "MixedAutoregressive": {"laws": ("real", "count", 3), "widths": (32,)},
    }
    capabilities = frozenset({Capability.LOG_PROB})

    def __init__(
        self,
        laws: Laws,
        *,
        components: PositiveInt = 8,
        widths: Sizes = (512,),
        generator: Generator,
    ) -> None:
        super().__init__()
        self.laws, self.support = laws, support_of(laws)
        self.emissions = [emission_of(law, components) for law in laws]
        self.net = MaskedColumns(
            [emission.inputs for emission in self.emissions],
            [emission.numbers for emission in self.emissions],
            widths=widths,
            generator=generator,
        )

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x), exact, ``(*, D) -> (*)``."""
        self.support.check(x, "MixedAutoregressive")
        columns = zip(self.emissions, self.net(self.seen(x)), x.unbind(-1), strict=True)
        terms = [emission.log_prob(numbers, column) for emission, numbers, column in columns]
        return torch.stack(terms, -1).sum(-1)

    @torch.no_grad()
    def draw(self, n: int, *, generator: Generator) -> Tensor:
        x = self.like.new_zeros(n, len(self.laws))
        for i, emission in enumerate(self.emissions):
            x[:, i] = emission.draw(self.net(self.seen(x))[i], PLAIN, generator)
        return x

    def seen(self, x: Tensor) -> Tensor:
        """What the network sees of x: a number for each column, or one for each state of a
        category.
        """
        columns = zip(self.emissions, x.unbind(-1), strict=True)
        return torch.cat([emission.seen(column) for emission, column in columns], -1)

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        """Biases at base rates; means of mixtures spread over what real columns hold."""
        self.net.last.soften()
        self.net.direct.soften()
        rates = zip(data.mean(), data.variance().sqrt(), strict=True)
        for emission, bias, rate in zip(self.emissions, self.net.biases(), rates, strict=True):
            start = emission.start(*rate, len(data))
            if start is not None:
                bias.copy_(start)

    def title(self) -> str:
        return f"MixedAutoregressive({kinds_in_words(self.laws)})"
