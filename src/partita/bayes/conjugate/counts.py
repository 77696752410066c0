r"""Events and counts: Bernoulli with beta, multinomial with Dirichlet, Poisson with gamma.

.. math:: \alpha_n = \alpha + \sum_i x_i, \qquad
          \log p(X) = \log B(\alpha_n) - \log B(\alpha) + \sum_i \log \binom{|x_i|}{x_i}, \qquad
          \log B(\alpha) =
          \sum_k \log \Gamma(\alpha_k) - \log \Gamma(\textstyle\sum_k \alpha_k)
          (theory/bayes.md, eqs. 8.9 to 8.11)

Letters: n data, K categories, alpha concentration, a and b counts of ones and zeros (or shape and
rate).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Beta,
    Dirichlet,
    Distribution,
    Gamma,
    NegativeBinomial,
    constraints,
)

from partita.bayes.conjugate.base import ONE_MODE, USE_MEAN, Conjugate, Positive, PositiveVector
from partita.bayes.conjugate.gaussian import gamma_normalizer
from partita.bayes.distributions import DirichletMultinomial
from partita.core.arguments import check_count, check_width
from partita.errors import invalid


@dataclass(frozen=True, eq=False)
class BernoulliBeta(Conjugate):
    """Unknown probability of a one, Beta(a, b) (eq. 8.9).

    >>> pair = BernoulliBeta(1.0, 1.0).update([1, 1, 0])
    >>> float(pair.predictive.probs), round(float(pair.log_evidence.exp() * 12), 6)
    (0.6, 1.0)
    """

    a: Positive
    b: Positive

    data = constraints.boolean

    @property
    def posterior(self) -> Distribution:
        return Beta(self.a, self.b)

    @property
    def predictive(self) -> Distribution:
        return Bernoulli(self.a / (self.a + self.b))

    @property
    def map(self) -> Tensor:
        check_one_mode(self.owner, torch.stack(torch.broadcast_tensors(self.a, self.b), -1))
        return super().map

    def absorb(self, x: Tensor, w: Tensor) -> "BernoulliBeta":
        return replace(self, a=self.a + (w * x).sum(0), b=self.b + (w * (1 - x)).sum(0))

    def log_normalizer(self) -> Tensor:
        return torch.lgamma(self.a) + torch.lgamma(self.b) - torch.lgamma(self.a + self.b)


@dataclass(frozen=True, eq=False)
class MultinomialDirichlet(Conjugate):
    """Unknown probabilities of K categories, Dirichlet(alpha) (eq. 8.10); a datum is a row of K
    counts, one-hot for single draws.

    Arguments:
        alpha: Concentration, ``(*, K)``.
        trials: Draws of the datum that ``predictive`` is about; rows of data may have any total.
    """

    alpha: PositiveVector
    trials: int = 1

    event_dim = 1
    data = constraints.nonnegative_integer

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.owner, "trials", self.trials)

    @property
    def posterior(self) -> Distribution:
        return Dirichlet(self.alpha)

    @property
    def predictive(self) -> Distribution:
        return DirichletMultinomial(self.trials, self.alpha)

    @property
    def map(self) -> Tensor:
        check_one_mode(self.owner, self.alpha)
        return super().map

    def absorb(self, x: Tensor, w: Tensor) -> "MultinomialDirichlet":
        return replace(self, alpha=self.alpha + (w[..., None] * x).sum(0))

    def log_normalizer(self) -> Tensor:
        return torch.lgamma(self.alpha).sum(-1) - torch.lgamma(self.alpha.sum(-1))

    def log_base(self, x: Tensor, w: Tensor) -> Tensor:
        return (w * (torch.lgamma(x.sum(-1) + 1) - torch.lgamma(x + 1).sum(-1))).sum(0)

    def check_columns(self, x: Tensor) -> None:
        check_width(f"{self.owner}.update", "data", x, self.alpha.shape[-1], "alpha")


@dataclass(frozen=True, eq=False)
class PoissonGamma(Conjugate):
    """Unknown rate of counts, Gamma(a, b) (eq. 8.11); the predictive is negative binomial.

    >>> PoissonGamma(2.0, 1.0).update([3, 5]).predictive.mean.item()
    3.33...
    """

    a: Positive
    b: Positive

    data = constraints.nonnegative_integer

    @property
    def posterior(self) -> Distribution:
        return Gamma(self.a, self.b)

    @property
    def predictive(self) -> Distribution:
        return NegativeBinomial(self.a, logits=-torch.log(self.b))

    def absorb(self, x: Tensor, w: Tensor) -> "PoissonGamma":
        return replace(self, a=self.a + (w * x).sum(0), b=self.b + w.sum(0))

    def log_normalizer(self) -> Tensor:
        return gamma_normalizer(self.a, self.b)

    def log_base(self, x: Tensor, w: Tensor) -> Tensor:
        return -(w * torch.lgamma(x + 1)).sum(0)


def check_one_mode(owner: str, alpha: Tensor) -> None:
    """A Dirichlet whose concentrations are all at most 1 is flat, or piles up at more than one
    corner.
    """
    if (alpha <= 1).all(-1).any():
        raise invalid(owner, "map", ONE_MODE, "concentrations that are all at most 1", USE_MEAN)
