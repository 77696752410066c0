r"""Gaussian data in one dimension: unknown mean, unknown precision, or both.

.. math:: k_n = k + n, \quad m_n = \frac{k m + n \bar x}{k + n}, \quad a_n = a + \frac n2, \quad
          b_n = b + \tfrac12 \sum_i (x_i - \bar x)^2 + \frac{k n (\bar x - m)^2}{2 (k + n)}
          (theory/bayes.md, eq. 8.6)

Letters: n data, m prior mean, t its precision, s known precision of the data, k pseudo-rows, a
shape and b rate of the precision's gamma.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributions import Distribution, Gamma, Normal, StudentT

from partita.bayes.conjugate.base import Conjugate, Positive, Real, scalar_moments
from partita.bayes.joint import NormalGamma

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True, eq=False)
class GaussianMean(Conjugate):
    r"""Unknown mean mu ~ N(m, 1/t) of data with known precision s (eq. 8.4).

    .. math:: t_n = t + n s, \qquad m_n = (t m + s \textstyle\sum_i x_i) / t_n

    >>> pair = GaussianMean(m=0.0, t=1.0, s=1.0).update([2.0, 4.0, 3.0])
    >>> float(pair.map), pair.predictive
    (2.25, Normal(loc: 2.25, scale: 1.1180...))
    """

    m: Real
    t: Positive
    s: Positive

    @property
    def posterior(self) -> Distribution:
        return Normal(self.m, self.t**-0.5)

    @property
    def predictive(self) -> Distribution:
        return Normal(self.m, torch.sqrt(1 / self.t + 1 / self.s))

    def absorb(self, x: Tensor, w: Tensor) -> "GaussianMean":
        seen = scalar_moments(x, w)
        t = self.t + seen.n * self.s
        return replace(self, m=self.m + seen.n * self.s * (seen.mean - self.m) / t, t=t)

    def log_normalizer(self) -> Tensor:
        return -0.5 * torch.log(self.t + 0 * self.like)

    def log_base(self, x: Tensor, w: Tensor) -> Tensor:
        """With the square completed about the data's mean: differences of large squares would
        cancel.
        """
        seen = scalar_moments(x, w)
        shrunk = self.t * seen.n * self.s / (self.t + seen.n * self.s)
        noise = seen.n * (torch.log(self.s) - LOG_2PI) - self.s * seen.scatter
        return 0.5 * (noise - shrunk * (seen.mean - self.m).square())


@dataclass(frozen=True, eq=False)
class GaussianPrecision(Conjugate):
    r"""Unknown precision lambda ~ Gamma(a, b) of data with known mean m (eq. 8.5).

    .. math:: a_n = a + n/2, \qquad b_n = b + \tfrac12 \textstyle\sum_i (x_i - m)^2
    """

    a: Positive
    b: Positive
    m: Real = 0.0

    @property
    def posterior(self) -> Distribution:
        return Gamma(self.a, self.b)

    @property
    def predictive(self) -> Distribution:
        return StudentT(2 * self.a, self.m, torch.sqrt(self.b / self.a))

    def absorb(self, x: Tensor, w: Tensor) -> "GaussianPrecision":
        return replace(
            self, a=self.a + 0.5 * w.sum(0), b=self.b + 0.5 * (w * (x - self.m).square()).sum(0)
        )

    def log_normalizer(self) -> Tensor:
        return gamma_normalizer(self.a, self.b)

    def log_base(self, x: Tensor, w: Tensor) -> Tensor:
        return -0.5 * LOG_2PI * w.sum(0)


@dataclass(frozen=True, eq=False)
class GaussianMeanPrecision(Conjugate):
    """Unknown mean and precision: lambda ~ Gamma(a, b), mu ~ N(m, 1 / (k lambda)) (eq. 8.6)."""

    m: Real
    k: Positive
    a: Positive
    b: Positive

    @property
    def posterior(self) -> Distribution:
        return NormalGamma(self.m, self.k, self.a, self.b)

    @property
    def predictive(self) -> Distribution:
        return StudentT(2 * self.a, self.m, torch.sqrt(self.b * (1 + 1 / self.k) / self.a))

    def absorb(self, x: Tensor, w: Tensor) -> "GaussianMeanPrecision":
        seen = scalar_moments(x, w)
        away = seen.mean - self.m
        k = self.k + seen.n
        b = self.b + 0.5 * (seen.scatter + self.k * seen.n * away.square() / k)
        return replace(self, m=self.m + seen.n * away / k, k=k, a=self.a + 0.5 * seen.n, b=b)

    def log_normalizer(self) -> Tensor:
        return gamma_normalizer(self.a, self.b) - 0.5 * torch.log(self.k)

    def log_base(self, x: Tensor, w: Tensor) -> Tensor:
        return -0.5 * LOG_2PI * w.sum(0)


def gamma_normalizer(a: Tensor, b: Tensor) -> Tensor:
    """log of the integral of lambda^(a-1) exp(-b lambda)."""
    return torch.lgamma(a) - a * torch.log(b)
