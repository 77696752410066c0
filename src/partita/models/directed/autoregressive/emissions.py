r"""The distribution of one value: log masses or densities from numbers that a network gives, and
draws from them.

.. math:: p(x) = \sum_k \pi_k\, N(x;\, m_k, s_k^2) \text{ for real values}; \quad \mathrm{softmax},
          \; \sigma \text{ for discrete ones}
    (theory/sequences.md, eq. 24.3)

Tables of different kinds of columns go one column after the other, each by its own law:

.. math:: p(x) = \prod_{i=1}^{D} p_i(x_i \mid x_{<i})          (theory/mixed_tables.md, eq. 45.6)

A real column is a mixture of normals, a count one of Poissons or, where it is overdispersed, of
negative binomials, zeros and ones a Bernoulli, a category a softmax, with numbers from one masked
network, which sees categories one by one, counts by their logarithm, and real columns as they are.

Letters: B batch, D columns, K states or components, P numbers, l logits, pi weights, m means, s
deviations, T temperature.
"""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.distributions import NegativeBinomial, Poisson
from torch.nn import functional

from partita.core import rng
from partita.core.arguments import PositiveInt, Sizes, check_real
from partita.core.protocols import Capability, Data, DirectedModel
from partita.core.registry import MODELS
from partita.errors import invalid
from partita.nets.masked import MaskedColumns
from partita.tables.schema import Law, Laws, kinds_in_words, support_of

# of standardized values: a density cannot grow without bound at a value that repeats
LEAST_LOG_SCALE = -7.0
MOST_LOG_RATE = 20.0  # of counts: beyond it a rate is no number that was counted
LEAST_MEAN = 1e-3
MOST_LOG_SIZE = 9.0  # of negative binomials: beyond it they are all but Poisson


class Sharpness(NamedTuple):
    """How draws are sharpened: from p^(1/T), cut to the likeliest states that hold ``top_p`` of
    it.
    """

    temperature: float = 1.0
    top_p: float = 1.0

    def check(self, owner: str, discrete: bool) -> None:
        """A temperature above 0, and a share of the mass in (0, 1] that only states that can be
        ranked may be cut to.
        """
        check_real(owner, "temperature", self.temperature, 0, open_low=True)
        check_real(owner, "top_p", self.top_p, 0, 1, open_low=True)
        if not discrete and self.top_p < 1:
            allowed = "be 1 for real values, whose densities have no list to cut"
            remedy = "Lower the temperature instead."
            raise invalid(owner, "top_p", allowed, self.top_p, remedy)


PLAIN = Sharpness()


class Emission(ABC):
    """One kind of value: ``numbers`` of a network say how it is distributed, ``inputs`` say to a
    network what it is.
    """

    numbers: int
    inputs: int = 1

    @abstractmethod
    def log_prob(self, numbers: Tensor, x: Tensor) -> Tensor:
        """``(*, P), (*) -> (*)``."""

    @abstractmethod
    def draw(self, numbers: Tensor, sharpness: Sharpness, generator: Generator) -> Tensor:
        """``(*, P) -> (*)``."""

    def seen(self, x: Tensor) -> Tensor:
        """What a network sees of values, ``(*) -> (*, inputs)``."""
        return x[..., None]

    def start(self, mean: Tensor, deviation: Tensor, n: int) -> Tensor | None:
        """Numbers that say what the base rates of ``n`` rows do, ``(*) -> (*, P)``; None where
        they say nothing.
        """
        return None


class BinaryEmission(Emission):
    """Zeros and ones from log-odds."""

    numbers = 1

    def log_prob(self, numbers: Tensor, x: Tensor) -> Tensor:
        return bernoulli_log_prob(numbers.squeeze(-1), x)

    def draw(self, numbers: Tensor, sharpness: Sharpness, generator: Generator) -> Tensor:
        return draw_categorical(
            torch.cat([torch.zeros_like(numbers), numbers], -1), sharpness, generator
        )

    def seen(self, x: Tensor) -> Tensor:
        return x[..., None] - 0.5

    def start(self, mean: Tensor, deviation: Tensor, n: int) -> Tensor:
        return torch.logit((mean * n + 0.5) / (n + 1))[..., None]


class CategoricalEmission(Emission):
    """Whole numbers 0 to K - 1 from logits."""

    def __init__(self, states: int) -> None:
        self.numbers = self.inputs = states

    def log_prob(self, numbers: Tensor, x: Tensor) -> Tensor:
        return categorical_log_prob(numbers, x)

    def draw(self, numbers: Tensor, sharpness: Sharpness, generator: Generator) -> Tensor:
        return draw_categorical(numbers, sharpness, generator)

    def seen(self, x: Tensor) -> Tensor:
        return functional.one_hot(x.long(), self.inputs).to(x.dtype)


class MixtureEmission(Emission):
    """A mixture of K distributions, their log weights first among the numbers."""

    parts: int  # numbers of each component

    def __init__(self, components: int) -> None:
        self.components, self.numbers = components, self.parts * components

    def spread(self) -> Tensor:
        """Where components start about the middle of all, ``(K,)``."""
        return torch.linspace(-1.5, 1.5, self.components) if self.components > 1 else torch.zeros(1)


class NormalMixtureEmission(MixtureEmission):
    """Real values; weights, means and log deviations side by side."""

    parts = 3

    def log_prob(self, numbers: Tensor, x: Tensor) -> Tensor:
        log_weight, mean, log_scale = self._split(numbers)
        z = (x.unsqueeze(-1) - mean) * torch.exp(-log_scale)
        return torch.logsumexp(
            log_weight - log_scale - 0.5 * z.square() - 0.5 * math.log(2 * math.pi), -1
        )

    def draw(self, numbers: Tensor, sharpness: Sharpness, generator: Generator) -> Tensor:
        """A temperature sharpens the weights and multiplies variances."""
        log_weight, mean, log_scale = self._split(numbers)
        k = draw_categorical(log_weight, sharpness, generator).long().unsqueeze(-1)
        mean, scale = (part.gather(-1, k).squeeze(-1) for part in (mean, log_scale.exp()))
        noise = rng.normal(mean.shape, mean, generator)
        return mean + sharpness.temperature**0.5 * scale * noise

    def start(self, mean: Tensor, deviation: Tensor, n: int) -> Tensor:
        """Means spread over what there is."""
        spread = self.spread()
        center = mean.to(spread)[..., None] + deviation.to(spread)[..., None] * spread
        log_scale = (deviation.log() - 0.7)[..., None].expand_as(center)
        return torch.cat([torch.zeros_like(center), center, log_scale], -1)

    def _split(self, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weight, mean, log_scale = numbers.chunk(3, -1)
        return weight.log_softmax(-1), mean, log_scale.clamp_min(LEAST_LOG_SCALE)


class PoissonMixtureEmission(MixtureEmission):
    """Counts; weights and log rates side by side."""

    parts = 2

    def log_prob(self, numbers: Tensor, x: Tensor) -> Tensor:
        log_weight, log_rate = self._split(numbers)
        terms = log_weight + x[..., None] * log_rate - log_rate.exp()
        return torch.logsumexp(terms, -1) - torch.lgamma(x + 1)

    def draw(self, numbers: Tensor, sharpness: Sharpness, generator: Generator) -> Tensor:
        log_weight, log_rate = self._split(numbers)
        k = draw_categorical(log_weight, sharpness, generator).long()
        rate = log_rate.gather(-1, k[..., None]).squeeze(-1).exp()
        return rng.draw(Poisson(rate, validate_args=False), generator)

    def seen(self, x: Tensor) -> Tensor:
        return x.log1p()[..., None]

    def start(self, mean: Tensor, deviation: Tensor, n: int) -> Tensor:
        spread = self.spread()
        log_rate = mean.clamp_min(LEAST_MEAN).log().to(spread)[..., None] + 0.5 * spread
        return torch.cat([torch.zeros_like(log_rate), log_rate], -1)

    def _split(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        weight, log_rate = numbers.chunk(2, -1)
        return weight.log_softmax(-1), log_rate.clamp_max(MOST_LOG_RATE)


class NegativeBinomialMixtureEmission(MixtureEmission):
    """Overdispersed counts; weights, log means and log sizes side by side."""

    parts = 3

    def log_prob(self, numbers: Tensor, x: Tensor) -> Tensor:
        log_weight, log_mean, log_size = self._split(numbers)
        return torch.logsumexp(
            log_weight + negative_binomial_log_prob(log_mean, log_size, x[..., None]), -1
        )

    def draw(self, numbers: Tensor, sharpness: Sharpness, generator: Generator) -> Tensor:
        log_weight, *parts = self._split(numbers)
        k = draw_categorical(log_weight, sharpness, generator).long()[..., None]
        log_mean, log_size = (part.gather(-1, k).squeeze(-1) for part in parts)
        counts = NegativeBinomial(log_size.exp(), logits=log_mean - log_size, validate_args=False)
        return rng.draw(counts, generator)

    def seen(self, x: Tensor) -> Tensor:
        return x.log1p()[..., None]

    def start(self, mean: Tensor, deviation: Tensor, n: int) -> Tensor:
        """Means spread by what the size that the moments have says, on the scale of logarithms."""
        spread, log_size = self.spread(), log_size_of(mean, deviation.square())
        width = (-log_size).exp().log1p().sqrt().to(spread)[..., None]
        log_mean = mean.clamp_min(LEAST_MEAN).log().to(spread)[..., None] + width * spread
        sizes = log_size.to(spread)[..., None].expand_as(log_mean)
        return torch.cat([torch.zeros_like(log_mean), log_mean, sizes], -1)

    def _split(self, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weight, log_mean, log_size = numbers.chunk(3, -1)
        return (
            weight.log_softmax(-1),
            log_mean.clamp_max(MOST_LOG_RATE),
            log_size.clamp(-MOST_LOG_SIZE, MOST_LOG_SIZE),
        )


def negative_binomial_log_prob(log_mean: Tensor, log_size: Tensor, x: Tensor) -> Tensor:
    """log p of counts with variance m + m^2 / r, in float64 inside: large terms cancel.

    >>> x = torch.arange(2000.0)
    >>> p = negative_binomial_log_prob(torch.tensor(3.0), torch.tensor(0.5), x).exp()
    >>> round(p.sum().item(), 4), round((p * x).sum().log().item(), 4)
    (1.0, 3.0)
    """
    m, r, count = log_mean.double(), log_size.double(), x.double()
    size, both = r.exp(), torch.logaddexp(m, r)
    terms = torch.lgamma(count + size) - torch.lgamma(size) - torch.lgamma(count + 1)
    return (terms + size * (r - both) + count * (m - both)).to(x.dtype)


def log_size_of(mean: Tensor, variance: Tensor) -> Tensor:
    """log r of the moments, within what is told apart from Poisson."""
    beyond = (variance - mean).clamp_min(LEAST_MEAN)
    size = mean.clamp_min(LEAST_MEAN).square() / beyond
    return size.log().clamp(-MOST_LOG_SIZE, MOST_LOG_SIZE)


def emission_of(law: Law, components: int) -> Emission:
    """The emission of a column; real ones and counts are mixtures of ``components``."""
    if isinstance(law, int):
        return CategoricalEmission(law)
    if law == "binary":
        return BinaryEmission()
    if law == "overdispersed":
        return NegativeBinomialMixtureEmission(components)
    return (NormalMixtureEmission if law == "real" else PoissonMixtureEmission)(components)


def categorical_log_prob(logits: Tensor, x: Tensor) -> Tensor:
    """log softmax(l) at whole numbers x, ``(*, K), (*) -> (*)``."""
    return -functional.cross_entropy(
        logits.flatten(0, -2), x.long().flatten(), reduction="none"
    ).view_as(x)


def bernoulli_log_prob(logits: Tensor, x: Tensor) -> Tensor:
    """x log sigma(l) + (1 - x) log sigma(-l), ``(*)``."""
    return -functional.binary_cross_entropy_with_logits(logits, x, reduction="none")


def draw_categorical(logits: Tensor, sharpness: Sharpness, generator: Generator) -> Tensor:
    """One state for each row of logits, ``(*, K) -> (*)``."""
    p = torch.softmax(logits.double() / sharpness.temperature, -1)
    if sharpness.top_p < 1:
        ranked, order = p.sort(-1, descending=True)
        ranked = ranked.where(ranked.cumsum(-1) - ranked < sharpness.top_p, 0.0)
        p = torch.zeros_like(p).scatter(-1, order, ranked)
    edges = p.cumsum(-1)
    u = rng.uniform((*p.shape[:-1], 1), p, generator) * edges[..., -1:]
    found = torch.searchsorted(edges, u, right=True).squeeze(-1)
    return found.clamp_max(p.shape[-1] - 1).to(logits.dtype)


@MODELS.register
class MixedAutoregressive(DirectedModel):
    """Exact ``log_prob`` and exact draws of mixed columns.

    Arguments:
        laws: What each column holds: ``"real"``, ``"binary"``, ``"count"``, ``"overdispersed"``,
            or a number of states.
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
