r"""Tables of different kinds of columns, one column after the other: each by its own law, given the
columns before it.

.. math:: p(x) = \prod_{i=1}^{D} p_i(x_i \mid x_{<i})          (theory/mixed_tables.md, eq. 45.6)

A real column is a mixture of normals, a count one of Poissons, zeros and ones a Bernoulli, a
category a softmax, with numbers from one masked network, which sees categories one by one, counts
by their logarithm, and real columns as they are.

Letters: B batch, D columns, K states of a column or components of a mixture.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from partita.core import rng
from partita.core.checks import check_count, check_counts
from partita.core.protocols import Capability, Data, DirectedModel, Settings
from partita.models.directed.autoregressive import emissions
from partita.nets.masked import MaskedColumns
from partita.tables.column_kinds import Law, check_laws, kinds_in_words, support_of

MOST_LOG_RATE = 20.0  # of counts: beyond it a rate is no number that was counted
LEAST_MEAN = 1e-3


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

    capabilities = frozenset({Capability.LOG_PROB})

    def __init__(
        self,
        laws: Sequence[Law],
        *,
        components: int = 8,
        widths: Sequence[int] = (512,),
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.laws = check_laws("MixedAutoregressive", laws)
        self.components = check_count("MixedAutoregressive", "components", components)
        self.widths = check_counts("MixedAutoregressive", "widths", widths)
        self.support = support_of(self.laws)
        numbers = {"real": 3 * components, "count": 2 * components, "binary": 1}
        given = [law if isinstance(law, int) else numbers[law] for law in self.laws]
        taken = [law if isinstance(law, int) else 1 for law in self.laws]
        self.net = MaskedColumns(taken, given, widths=widths, generator=generator)

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x), exact, ``(*, D) -> (*)``."""
        self.support.check(x, "MixedAutoregressive")
        terms = (
            column_log_prob(law, own, x[..., i])
            for i, (law, own) in enumerate(zip(self.laws, self.net(self.seen(x)), strict=True))
        )
        return torch.stack(list(terms), -1).sum(-1)

    @torch.no_grad()
    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        x = self.like.new_zeros(n, len(self.laws))
        for i, law in enumerate(self.laws):
            x[:, i] = column_draw(law, self.net(self.seen(x))[i], generator)
        return x

    def seen(self, x: Tensor) -> Tensor:
        """What the network sees of x: a number for each column, or one for each state of a
        category.
        """
        return torch.cat([_seen(law, x[..., i]) for i, law in enumerate(self.laws)], -1)

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: torch.Generator) -> None:
        """Biases at base rates; means of mixtures spread over what real columns hold."""
        self.net.last.soften()
        self.net.direct.soften()
        n, K, mean, deviation = len(data), self.components, data.mean(), data.variance().sqrt()
        spread = torch.linspace(-1.5, 1.5, K) if K > 1 else torch.zeros(1)
        for i, (law, bias) in enumerate(zip(self.laws, self.net.biases(), strict=True)):
            if law == "binary":
                bias.fill_(torch.logit((mean[i] * n + 0.5) / (n + 1)))
            elif law == "count":
                log_rate = mean[i].clamp_min(LEAST_MEAN).log() + 0.5 * spread
                bias.copy_(torch.cat([torch.zeros(K), log_rate]))
            elif law == "real":
                center, log_scale = mean[i] + deviation[i] * spread, deviation[i].log() - 0.7
                bias.copy_(torch.cat([torch.zeros(K), center, log_scale.expand(K)]))

    def title(self) -> str:
        return f"MixedAutoregressive({kinds_in_words(self.laws)})"

    def settings(self) -> Settings:
        return {"laws": list(self.laws), "components": self.components, "widths": list(self.widths)}


def column_log_prob(law: Law, numbers: Tensor, x: Tensor) -> Tensor:
    """log p of one column, ``(*, K), (*) -> (*)``."""
    if isinstance(law, int):
        return emissions.categorical_log_prob(numbers, x)
    if law == "real":
        return emissions.mixture_log_prob(numbers, x)
    if law == "binary":
        return emissions.bernoulli_log_prob(numbers.squeeze(-1), x)
    log_weight, log_rate = _poissons(numbers)
    terms = log_weight + x[..., None] * log_rate - log_rate.exp()
    return torch.logsumexp(terms, -1) - torch.lgamma(x + 1)


def column_draw(law: Law, numbers: Tensor, generator: torch.Generator) -> Tensor:
    """One value for each row, ``(*, K) -> (*)``."""
    if isinstance(law, int):
        return emissions.draw_categorical(numbers, 1.0, 1.0, generator)
    if law == "real":
        return emissions.draw_mixture(numbers, 1.0, generator)
    if law == "binary":
        return emissions.draw_bernoulli(numbers.squeeze(-1), 1.0, 1.0, generator)
    log_weight, log_rate = _poissons(numbers)
    k = emissions.draw_categorical(log_weight, 1.0, 1.0, generator).long()
    rate = log_rate.gather(-1, k[..., None]).squeeze(-1).exp()
    return rng.draw(torch.distributions.Poisson(rate, validate_args=False), generator)


def _poissons(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Log weights and log rates of a mixture, each ``(*, K)``."""
    weight, log_rate = numbers.chunk(2, -1)
    return weight.log_softmax(-1), log_rate.clamp_max(MOST_LOG_RATE)


def _seen(law: Law, x: Tensor) -> Tensor:
    """``(*) -> (*, 1)``, or ``(*, K)`` of a category."""
    if isinstance(law, int):
        return nn.functional.one_hot(x.long(), law).to(x.dtype)
    if law == "count":
        x = x.log1p()
    elif law == "binary":
        x = x - 0.5
    return x[..., None]
