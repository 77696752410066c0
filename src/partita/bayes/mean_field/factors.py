r"""Exponential families as factors of a mean field: natural parameters in, expected statistics and
entropy out.

.. math:: q(\theta) = h\, e^{\eta \cdot t(\theta) - A(\eta)}, \qquad E_q[t] = \nabla A(\eta)
          (theory/bayes.md, eq. 9.3)

A factor is a value. Statistics and natural parameters are dicts with the same names, so that a
gradient with respect to the one is the other.

Letters: D width, K categories, eta natural parameters, t statistics, m mean, k pseudo-rows, nu
degrees of freedom, S scatter.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.distributions import Categorical, Dirichlet, Distribution, Gamma, MultivariateNormal

from partita.bayes.distributions import Wishart, half_log_det
from partita.bayes.joint import NormalWishart

Statistics = dict[str, Tensor]


class Factor(ABC):
    """One q_j(theta_j); its members may be many, along leading dimensions."""

    @property
    @abstractmethod
    def distribution(self) -> Distribution:
        """As a ``torch.distributions`` object."""

    @abstractmethod
    def statistics(self) -> Statistics:
        """E_q[t(theta)] by name."""

    @abstractmethod
    def with_natural(self, eta: Statistics) -> Self:
        """The member of the same family with natural parameters eta; a ValueError says what makes
        them improper.
        """

    def entropy(self) -> Tensor:
        """-E_q[log q], summed over all members."""
        return self.distribution.entropy().sum()


@dataclass(frozen=True, eq=False)
class GammaFactor(Factor):
    """Gamma with shape a and rate b, t = (log theta, theta)."""

    a: Tensor
    b: Tensor

    @property
    def distribution(self) -> Gamma:
        return Gamma(self.a, self.b)

    def statistics(self) -> Statistics:
        return {"log": torch.digamma(self.a) - torch.log(self.b), "value": self.a / self.b}

    def with_natural(self, eta: Statistics) -> "GammaFactor":
        a, b = eta["log"] + 1, -eta["value"]
        proper = ((a > 0) & (b > 0)).all()
        _require(proper, "a gamma needs a positive shape and a positive rate")
        return GammaFactor(a, b)


@dataclass(frozen=True, eq=False)
class GaussianFactor(Factor):
    """Gaussian vector with mean m and covariance V, t = (theta, theta theta')."""

    m: Tensor
    V: Tensor

    @property
    def distribution(self) -> MultivariateNormal:
        return MultivariateNormal(self.m, self.V)

    def statistics(self) -> Statistics:
        return {"value": self.m, "outer": self.V + self.m[..., :, None] * self.m[..., None, :]}

    def with_natural(self, eta: Statistics) -> "GaussianFactor":
        tril = _tril(-2 * eta["outer"], "a Gaussian needs a positive-definite precision")
        V = torch.cholesky_inverse(tril)
        return GaussianFactor((V @ eta["value"][..., None])[..., 0], V)


@dataclass(frozen=True, eq=False)
class DirichletFactor(Factor):
    """Dirichlet with concentration alpha, t = log theta."""

    alpha: Tensor

    @property
    def distribution(self) -> Dirichlet:
        return Dirichlet(self.alpha)

    def statistics(self) -> Statistics:
        return {"log": torch.digamma(self.alpha) - torch.digamma(self.alpha.sum(-1, keepdim=True))}

    def with_natural(self, eta: Statistics) -> "DirichletFactor":
        _require((eta["log"] > -1).all(), "a Dirichlet needs positive concentrations")
        return DirichletFactor(eta["log"] + 1)


@dataclass(frozen=True, eq=False)
class CategoricalFactor(Factor):
    """One label per row, t = one-hot theta."""

    logits: Tensor  # (N, K)

    @property
    def distribution(self) -> Categorical:
        return Categorical(logits=self.logits)

    def statistics(self) -> Statistics:
        return {"one_hot": torch.softmax(self.logits, -1)}

    def with_natural(self, eta: Statistics) -> "CategoricalFactor":
        return CategoricalFactor(eta["one_hot"])

    def entropy(self) -> Tensor:
        # responsibilities may underflow to exact zeros
        return torch.special.entr(torch.softmax(self.logits, -1)).sum()


@dataclass(frozen=True, eq=False)
class NormalWishartFactor(Factor):
    """Gaussian mean and precision matrix together, t = (log |Lambda|, Lambda, Lambda mu, mu' Lambda
    mu).
    """

    m: Tensor  # (*, D)
    k: Tensor  # (*)
    nu: Tensor  # (*)
    S: Tensor  # (*, D, D)

    @property
    def distribution(self) -> NormalWishart:
        return NormalWishart(self.m, self.k, self.nu, torch.linalg.cholesky(self.S))

    def statistics(self) -> Statistics:
        tril, D = torch.linalg.cholesky(self.S), self.m.shape[-1]
        half = 0.5 * (self.nu[..., None] - torch.arange(D, device=self.nu.device).to(self.nu))
        precision = self.nu[..., None, None] * torch.cholesky_inverse(tril)
        shift = (precision @ self.m[..., None])[..., 0]
        log_two = torch.tensor(2.0).log().to(self.nu)
        log_det = torch.digamma(half).sum(-1) + D * log_two - 2 * half_log_det(tril)
        return {
            "log_det": log_det,
            "precision": precision,
            "shift": shift,
            "square": (shift * self.m).sum(-1) + D / self.k,
        }

    def with_natural(self, eta: Statistics) -> "NormalWishartFactor":
        k, D = -2 * eta["square"], eta["shift"].shape[-1]
        nu = 2 * eta["log_det"] + D
        _require(
            ((k > 0) & (nu > D - 1)).all(),
            f"a Normal-Wishart needs k > 0 and more than {D - 1} degrees of freedom",
        )
        m = eta["shift"] / k[..., None]
        outer = k[..., None, None] * m[..., :, None] * m[..., None, :]
        S = -2 * _symmetric(eta["precision"]) - outer
        _tril(S, "a Normal-Wishart needs a positive-definite scatter")
        return NormalWishartFactor(m, k, nu, S)

    def entropy(self) -> Tensor:
        """That of the Wishart, and of the Gaussian given it."""
        D, log_det = self.m.shape[-1], self.statistics()["log_det"]
        gaussian = 0.5 * (D * (1 + torch.log(2 * torch.pi / self.k)) - log_det)
        wishart = Wishart(self.nu, covariance_matrix=torch.linalg.inv(self.S))
        return (wishart.entropy() + gaussian).sum()


def _require(holds: Tensor, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _symmetric(matrix: Tensor) -> Tensor:
    return 0.5 * (matrix + matrix.mT)


def _tril(matrix: Tensor, otherwise: str) -> Tensor:
    tril, info = torch.linalg.cholesky_ex(_symmetric(matrix))
    _require(torch.isfinite(tril).all() & ~info.any(), otherwise)
    return tril
