r"""Bernoulli, categorical, Poisson and negative binomial components: columns independent given the
component.

.. math:: p_k(x) = \prod_i p(x_i \mid \theta_{ki}), \qquad
          \theta_{ki} = \frac{\sum_n r_{nk} m_{ni} t(x_{ni})}{\sum_n r_{nk} m_{ni}}
          (theory/mixtures.md, eq. 10.7)

Probabilities and rates are kept above ``FLOOR``: the maximizer under that constraint is the clamped
mean, so the likelihood still never falls, and no row is impossible.

A negative binomial of mean m and size r has the variance m + m^2 / r. Its sizes are those of a
list, whose terms lgamma(x + r) are features too, so that the M-step is exact in both.

Letters: B rows, D columns, K components, S states or sizes, m observed.
"""

from abc import abstractmethod

import torch
from torch import Generator, Tensor, nn
from torch.distributions import NegativeBinomial, Poisson
from torch.nn import functional

from partita.core import rng
from partita.core.support import Binary, Categorical, Count
from partita.models.directed.components.base import Factorized, Statistics, means_of, observed

FLOOR = 1e-6
SIZES = 2.0 ** torch.arange(-6, 15, dtype=torch.float64)  # the last is all but Poisson


class Discrete(Factorized):
    """A factorized component whose columns have listed values, so that the most probable one can be
    found.
    """

    @abstractmethod
    def values(self) -> Tensor:
        """The values among which the most probable one lies, ``(V,)``."""

    @abstractmethod
    def log_mass(self, values: Tensor) -> Tensor:
        """log p of each value in each column, ``(V,) -> (K, D, V)``."""

    def mode(self, r: Tensor) -> Tensor:
        """The most probable value of each column under mixed components, ``(K, B) -> (B, D)``."""
        values = self.values()
        mass = self.log_mass(values).exp()
        return values[torch.einsum("kb,kdv->bdv", r, mass).argmax(-1)]

    def fill_likely(self, x: Tensor, r: Tensor) -> Tensor:
        return torch.where(x.isnan(), self.mode(r), x)


class BernoulliComponent(Discrete):
    """Zeros and ones with probabilities sigmoid(``logits``), (K, D)."""

    def __init__(self, count: int, visible: int, *, device: torch.device) -> None:
        super().__init__()
        self.count, self.support = count, Binary(visible)
        self.logits = nn.Parameter(torch.zeros(count, visible, dtype=torch.float64, device=device))

    def features(self, x: Tensor) -> Tensor:
        return torch.stack(observed(x))

    def natural(self) -> Tensor:
        return torch.stack([-functional.softplus(self.logits), self.logits], 1)

    def mean(self) -> Tensor:
        return torch.sigmoid(self.logits)

    @torch.no_grad()
    def maximize(self, statistics: Statistics) -> None:
        n, ones = statistics["t"].unbind(1)
        self.logits.copy_(torch.logit(means_of(ones, n, self.mean()).clamp(FLOOR, 1 - FLOOR)))

    @torch.no_grad()
    def spread(self, mean: Tensor, variance: Tensor, generator: Generator) -> None:
        self.logits.copy_(torch.logit(mean.clamp(FLOOR, 1 - FLOOR)).expand_as(self.logits))

    def draw(self, index: Tensor, *, generator: Generator) -> Tensor:
        return rng.bernoulli(self.mean()[index], generator)

    def values(self) -> Tensor:
        return self.support.values().to(self.logits)

    def log_mass(self, values: Tensor) -> Tensor:
        return functional.logsigmoid(self.logits[..., None] * (2 * values - 1))

    def freedom(self) -> int:
        return self.logits.numel()


class CategoricalComponent(Discrete):
    """States 0 to S-1 with log probabilities log_softmax(``logits``), (K, D, S)."""

    def __init__(self, count: int, visible: int, states: int, *, device: torch.device) -> None:
        super().__init__()
        self.count, self.support = count, Categorical(visible, states)
        self.logits = nn.Parameter(
            torch.zeros(count, visible, states, dtype=torch.float64, device=device)
        )

    def features(self, x: Tensor) -> Tensor:
        """One indicator per state, zero where missing, ``(S, D, B)``: they sum to the mask, so the
        mask itself is left out.
        """
        states = range(self.logits.shape[-1])
        return torch.stack([(x.mT == state).to(self.logits) for state in states])

    def natural(self) -> Tensor:
        return torch.log_softmax(self.logits, -1).movedim(-1, 1)

    def mean(self) -> Tensor:
        return torch.softmax(self.logits, -1) @ self.values()

    @torch.no_grad()
    def maximize(self, statistics: Statistics) -> None:
        counts = statistics["t"].movedim(1, -1)
        p = means_of(counts, counts.sum(-1, keepdim=True), torch.softmax(self.logits, -1))
        low = p < FLOOR
        rest = torch.where(low, 0.0, p).sum(-1, keepdim=True)
        share = (1 - FLOOR * low.sum(-1, keepdim=True)) / rest
        self.logits.copy_(torch.where(low, FLOOR, p * share).log())

    @torch.no_grad()
    def spread(self, mean: Tensor, variance: Tensor, generator: Generator) -> None:
        self.logits.zero_()

    def draw(self, index: Tensor, *, generator: Generator) -> Tensor:
        edges = torch.softmax(self.logits, -1).cumsum(-1)[index]
        u = rng.uniform((*edges.shape[:-1], 1), edges, generator)
        return (u > edges[..., :-1]).sum(-1).to(edges)

    def values(self) -> Tensor:
        return self.support.values().to(self.logits)

    def log_mass(self, values: Tensor) -> Tensor:
        return torch.log_softmax(self.logits, -1)

    def embed(self, x: Tensor) -> Tensor:
        return self.features(x).flatten(0, 1).mT

    def freedom(self) -> int:
        return self.logits.numel() - self.logits[..., 0].numel()


class PoissonComponent(Discrete):
    """Counts with rates exp(``log_rate``), (K, D)."""

    def __init__(self, count: int, visible: int, *, device: torch.device) -> None:
        super().__init__()
        self.count, self.support = count, Count(visible)
        self.log_rate = nn.Parameter(
            torch.zeros(count, visible, dtype=torch.float64, device=device)
        )

    def features(self, x: Tensor) -> Tensor:
        return torch.stack(observed(x))

    def natural(self) -> Tensor:
        return torch.stack([-self.log_rate.exp(), self.log_rate], 1)

    def base(self, x: Tensor) -> Tensor:
        return -torch.lgamma(torch.where(x.isnan(), 0.0, x) + 1).sum(-1)

    def mean(self) -> Tensor:
        return self.log_rate.exp()

    @torch.no_grad()
    def maximize(self, statistics: Statistics) -> None:
        n, total = statistics["t"].unbind(1)
        self.log_rate.copy_(means_of(total, n, self.mean()).clamp_min(FLOOR).log())

    @torch.no_grad()
    def spread(self, mean: Tensor, variance: Tensor, generator: Generator) -> None:
        self.log_rate.copy_(mean.clamp_min(FLOOR).log().expand_as(self.log_rate))

    def draw(self, index: Tensor, *, generator: Generator) -> Tensor:
        return rng.draw(Poisson(self.mean()[index], validate_args=False), generator)

    def values(self) -> Tensor:
        """Up to the largest rate: beyond the largest mode of its parts the mass of a mixture only
        falls.
        """
        return torch.arange(int(self.mean().max()) + 1).to(self.log_rate)

    def log_mass(self, values: Tensor) -> Tensor:
        rate = self.log_rate[..., None]
        return values * rate - rate.exp() - torch.lgamma(values + 1)

    def embed(self, x: Tensor) -> Tensor:
        return x.sqrt()  # whose spread does not grow with the rate

    def freedom(self) -> int:
        return self.log_rate.numel()


class NegativeBinomialComponent(Factorized):
    """Counts with means exp(``log_mean``) and sizes exp(``log_size``), both (K, D)."""

    def __init__(self, count: int, visible: int, *, device: torch.device) -> None:
        super().__init__()
        self.count, self.support = count, Count(visible)
        zeros = torch.zeros(count, visible, dtype=torch.float64, device=device)
        self.log_mean = nn.Parameter(zeros)
        self.log_size = nn.Parameter(zeros.clone(), requires_grad=False)  # one of SIZES

    def features(self, x: Tensor) -> Tensor:
        """Mask, count, and lgamma(x + r) for every size r."""
        mask, x = observed(x)
        sizes = SIZES.to(x)[:, None, None]
        return torch.cat([torch.stack([mask, x]), torch.lgamma(x + sizes) * mask])

    def natural(self) -> Tensor:
        size = self.log_size.exp()
        both = torch.logaddexp(self.log_size, self.log_mean)
        normalizer = size * (self.log_size - both) - torch.lgamma(size)
        chosen = functional.one_hot(_nearest_size(size), len(SIZES)).to(size).movedim(-1, 1)
        return torch.cat([torch.stack([normalizer, self.log_mean - both], 1), chosen], 1)

    def base(self, x: Tensor) -> Tensor:
        return -torch.lgamma(torch.where(x.isnan(), 0.0, x) + 1).sum(-1)

    def mean(self) -> Tensor:
        return self.log_mean.exp()

    @torch.no_grad()
    def maximize(self, statistics: Statistics) -> None:
        """The mean is that of the counts whatever the size, which is then the best of the list."""
        n, total, terms = statistics["t"].tensor_split((1, 2), 1)
        mean = means_of(total, n, self.mean()[:, None]).clamp_min(FLOOR)
        size = SIZES.to(mean)[:, None]
        both = torch.log(size + mean)
        gain = terms + n * (size * (size.log() - both) - torch.lgamma(size))
        best = (gain + total * (mean.log() - both)).argmax(1)
        self.log_mean.copy_(mean.log().squeeze(1))
        found = SIZES.to(mean).log()[best]
        self.log_size.copy_(torch.where(n.squeeze(1) > 0, found, self.log_size))

    @torch.no_grad()
    def spread(self, mean: Tensor, variance: Tensor, generator: Generator) -> None:
        mean = mean.clamp_min(FLOOR)
        size = mean.square() / (variance - mean).clamp_min(FLOOR)
        self.log_mean.copy_(mean.log().expand_as(self.log_mean))
        sizes = SIZES.to(self.log_size)
        self.log_size.copy_(sizes.log()[_nearest_size(size.to(sizes))].expand_as(self.log_size))

    def draw(self, index: Tensor, *, generator: Generator) -> Tensor:
        odds = (self.log_mean - self.log_size)[index]
        counts = NegativeBinomial(self.log_size.exp()[index], logits=odds, validate_args=False)
        return rng.draw(counts, generator)

    def fill_likely(self, x: Tensor, r: Tensor) -> Tensor:
        """Means to the next count: the most probable one of a skewed law is often 0."""
        return super().fill_likely(x, r).round()

    def cells(self, missing: bool) -> int:
        return super().cells(missing) + len(SIZES) * self.support.width

    def embed(self, x: Tensor) -> Tensor:
        return x.log1p()

    def freedom(self) -> int:
        return 2 * self.log_mean.numel()


def _nearest_size(size: Tensor) -> Tensor:
    """The place of the closest of the listed sizes."""
    return (size.log()[..., None] - SIZES.to(size).log()).abs().argmin(-1)
