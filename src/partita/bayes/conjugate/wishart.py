r"""Gaussian vectors: unknown precision matrix, with the mean known or not.

.. math:: \nu_n = \nu + n, \qquad S_n = S + \sum_i (x_i - \mu)(x_i - \mu)^\top, \qquad
          \log p(X) = -\tfrac{nD}2 \log \pi + \log\frac{\Gamma_D(\nu_n/2)}{\Gamma_D(\nu/2)} +
          \tfrac\nu2 \log|S| - \tfrac{\nu_n}2 \log|S_n|
          (theory/bayes.md, eq. 8.7)

S is the inverse of the Wishart's scale matrix, so that data simply add their scatter.

Letters: n data, D width, nu degrees of freedom, S scatter, m mean, k pseudo-rows of the mean.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.constraints import Constraint

from partita.bayes.conjugate.base import (
    Conjugate,
    Definite,
    Positive,
    RealVector,
    scatter_matrix,
    vector_moments,
)
from partita.bayes.distributions import MultivariateStudentT, Wishart, half_log_det
from partita.bayes.joint import NormalWishart
from partita.core.arguments import check_width
from partita.errors import invalid


@dataclass(frozen=True, eq=False)
class _Scattered(Conjugate):
    """What the two pairs share: a mean, a scatter matrix and degrees of freedom above D - 1."""

    m: RealVector
    S: Definite
    nu: Positive

    event_dim = 1

    def check_shapes(self) -> None:
        m, S = self.m.shape, self.S.shape
        if not m or len(S) < 2 or S[-2:] != (m[-1], m[-1]):
            got = f"{tuple(m)} and {tuple(S)}"
            raise invalid(self.owner, "m and S", "have shapes (*, D) and (*, D, D)", got)

    @property
    def constraints(self) -> dict[str, Constraint]:
        above = constraints.greater_than(float(self.D - 1))
        return {**super().constraints, "nu": above}

    @property
    def D(self) -> int:
        """Width of a datum."""
        return self.m.shape[-1]

    @cached_property
    def tril(self) -> Tensor:
        """The Cholesky factor of S."""
        return torch.linalg.cholesky(self.S)

    @property
    def df(self) -> Tensor:
        """Degrees of freedom of the predictive."""
        return self.nu - self.D + 1

    def log_normalizer(self) -> Tensor:
        """log of the Wishart's integral, without the powers of 2 that meet those of the data."""
        return torch.mvlgamma(self.nu / 2, self.D) - self.nu * half_log_det(self.tril)

    def log_base(self, x: Tensor, w: Tensor) -> Tensor:
        return -0.5 * self.D * math.log(math.pi) * w.sum(0)

    def check_columns(self, x: Tensor) -> None:
        check_width(f"{self.owner}.update", "data", x, self.D, self.owner)


@dataclass(frozen=True, eq=False)
class GaussianWishart(_Scattered):
    """Unknown precision matrix, Wishart with nu degrees of freedom and scale matrix 1/S, of data
    with known mean m (eq. 8.7).

    >>> pair = GaussianWishart(m=[0.0, 0.0], S=torch.eye(2).double(), nu=3.0).update(
    ...     [[1.0, 0.0], [0.0, 2.0]]
    ... )
    >>> pair.map.diag().round(decimals=6).tolist()
    [1.0, 0.4]
    """

    @property
    def posterior(self) -> Distribution:
        return Wishart(self.nu, covariance_matrix=torch.cholesky_inverse(self.tril))

    @property
    def predictive(self) -> Distribution:
        return MultivariateStudentT(self.df, self.m, self.tril / self.df[..., None, None].sqrt())

    def absorb(self, x: Tensor, w: Tensor) -> "GaussianWishart":
        return replace(self, S=self.S + scatter_matrix(x - self.m, w), nu=self.nu + w.sum(0))


@dataclass(frozen=True, eq=False)
class GaussianMeanWishart(_Scattered):
    """Unknown mean and precision matrix: Lambda ~ Wishart(nu, 1/S), mu ~ N(m, 1 / (k Lambda)) (eq.
    8.8).

    The pair behind Bayesian Gaussian mixtures; its predictive is the multivariate t.
    """

    k: Positive = 1.0

    @property
    def posterior(self) -> Distribution:
        return NormalWishart(self.m, self.k, self.nu, self.tril)

    @property
    def predictive(self) -> Distribution:
        factor = torch.sqrt((1 + 1 / self.k) / self.df)
        return MultivariateStudentT(self.df, self.m, self.tril * factor[..., None, None])

    def absorb(self, x: Tensor, w: Tensor) -> "GaussianMeanWishart":
        seen = vector_moments(x, w)
        k, away = self.k + seen.n, seen.mean - self.m
        pull = (self.k * seen.n / k)[..., None, None] * away[..., :, None] * away[..., None, :]
        return replace(
            self,
            m=self.m + (seen.n / k)[..., None] * away,
            S=self.S + seen.scatter + pull,
            nu=self.nu + seen.n,
            k=k,
        )

    def log_normalizer(self) -> Tensor:
        return super().log_normalizer() - 0.5 * self.D * torch.log(self.k)
