r"""A mixture of multivariate Student distributions, fitted to weighted draws by EM (Peel and
McLachlan 2000; Cappe et al. 2008).

.. math:: r_{ik} \propto \pi_k\, t_\nu(x_i; m_k, C_k), \quad
          u_{ik} = \frac{\nu + D}{\nu + \delta_{ik}}, \quad
          m_k = \frac{\sum_i w_i r_{ik} u_{ik} x_i}{\sum_i w_i r_{ik} u_{ik}}, \quad
          C_k = \frac{n \sum_i w_i r_{ik} u_{ik} (x_i - m_k)(x_i - m_k)^\top + \kappa\, C_k^0}
          {n \sum_i w_i r_{ik} + \kappa}
          (theory/scoring.md, eq. 5.31)

n is the effective number of draws; a component that few of them describe keeps the shape
:math:`C^0` that it had.

Letters: n draws, D coordinates, K components.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.distributions import Chi2

from partita.core import rng

JITTER = 1e-9  # of a variance, that keeps covariances positive
HELD = 0.5  # of D, draws that count for the shape a component had
LEAST_SHARE = 1.0  # effective draws below which a component is left out


class Distances(NamedTuple):
    """Log-density of each component, its weight included, and squared distances to it."""

    log_parts: Tensor  # (n, K)
    squares: Tensor  # (n, K)


@dataclass(frozen=True)
class StudentMixture:
    """Student distributions, mixed; each has its own degrees of freedom."""

    log_weights: Tensor  # (K,), of a sum of one
    mean: Tensor  # (K, D)
    lower: Tensor  # (K, D, D), Cholesky factors of the scale matrices
    df: Tensor  # (K,)

    @property
    def size(self) -> int:
        """K."""
        return len(self.log_weights)

    def distances(self, x: Tensor) -> Distances:
        """At ``x``, ``(n, D)``."""
        D = x.shape[-1]
        unit = torch.eye(D, dtype=x.dtype, device=x.device)
        whitening = torch.linalg.solve_triangular(self.lower, unit, upper=False)
        squares = torch.stack(
            [
                ((x - mean) @ whiten.mT).square().sum(-1)
                for mean, whiten in zip(self.mean, whitening, strict=True)
            ],
            -1,
        )
        half = 0.5 * (self.df + D)
        constant = (
            torch.lgamma(half)
            - torch.lgamma(0.5 * self.df)
            - 0.5 * D * (self.df * math.pi).log()
            - self.lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        )
        log_parts = self.log_weights + constant - half * torch.log1p(squares / self.df)
        return Distances(log_parts, squares)

    def log_density(self, x: Tensor) -> Tensor:
        """log q(x), ``(n, D) -> (n,)``."""
        return torch.logsumexp(self.distances(x).log_parts, -1)

    def draw_from(self, z: Tensor, generator: Generator) -> Tensor:
        """One draw of each of the components ``z``, ``(n,) -> (n, D)``."""
        u = rng.normal((len(z), self.mean.shape[1]), self.mean, generator)
        df = self.df[z]
        # no draw so far out that it overflows
        radius = (df / rng.draw(Chi2(df), generator).clamp_min(1e-24)).sqrt()
        x = torch.empty_like(u)
        for k in z.unique().tolist():
            of_k = z == k
            x[of_k] = self.mean[k] + radius[of_k, None] * (u[of_k] @ self.lower[k].mT)
        return x

    def of(self, kept: Tensor) -> "StudentMixture":
        """The components that are ``kept``, an index or a mask."""
        weights = self.log_weights[kept]
        weights = weights - torch.logsumexp(weights, 0)
        return StudentMixture(weights, self.mean[kept], self.lower[kept], self.df[kept])

    def with_df(self, df: float) -> "StudentMixture":
        """The mixture with other degrees of freedom."""
        return StudentMixture(self.log_weights, self.mean, self.lower, torch.full_like(self.df, df))


def joined(mixtures: list[StudentMixture], shares: list[float]) -> StudentMixture:
    """One mixture of several, with a share of the weight for each."""
    log_weights = [
        mixture.log_weights + math.log(share)
        for mixture, share in zip(mixtures, shares, strict=True)
    ]
    return StudentMixture(
        torch.log_softmax(torch.cat(log_weights), 0),
        torch.cat([mixture.mean for mixture in mixtures]),
        torch.cat([mixture.lower for mixture in mixtures]),
        torch.cat([mixture.df for mixture in mixtures]),
    )


def around(mean: Tensor, covariance: Tensor, df: float) -> StudentMixture:
    """Components at ``mean`` ``(K, D)`` with scale matrices ``(K, D, D)``, of equal weight."""
    K = len(mean)
    log_weights = mean.new_full((K,), -math.log(K))
    return StudentMixture(log_weights, mean, factor(covariance), mean.new_full((K,), df))


def factor(covariance: Tensor) -> Tensor:
    """Cholesky factors of matrices that rounding may have made singular, ``(*, D, D)``."""
    covariance = 0.5 * (covariance + covariance.mT)
    lower, failed = torch.linalg.cholesky_ex(covariance)
    if not bool(failed.any()):
        return lower
    values, vectors = torch.linalg.eigh(covariance)
    values = torch.maximum(values, JITTER * values.amax(-1, keepdim=True)).clamp_min(1e-300)
    # Q R of the root, with a positive diagonal
    upper = torch.linalg.qr((vectors * values.sqrt()[..., None, :]).mT).R
    return (upper * upper.diagonal(dim1=-2, dim2=-1).sign()[..., None]).mT


def fitted(mixture: StudentMixture, x: Tensor, w: Tensor, rounds: int) -> StudentMixture:
    """The mixture after rounds of EM on draws ``(n, D)`` with weights ``(n,)`` of sum one;
    components that nearly no draw belongs to are left out.
    """
    n, D = 1 / float(w.square().sum()), x.shape[1]
    before = mixture.lower @ mixture.lower.mT
    for _ in range(rounds):
        parts, squares = mixture.distances(x)
        member = w[:, None] * torch.softmax(parts, -1)  # (n, K)
        share = member.sum(0)
        kept = n * share >= LEAST_SHARE
        if not bool(kept.any()):
            return mixture
        member, squares, share = member[:, kept], squares[:, kept], share[kept]
        mixture, before = mixture.of(kept), before[kept]
        pull = member * (mixture.df + D) / (mixture.df + squares)
        mean = (pull.mT @ x) / pull.sum(0)[:, None]
        spread = torch.stack(
            [(pull[:, k, None] * (x - m)).mT @ (x - m) for k, m in enumerate(mean)]
        )
        held = HELD * D
        covariance = n * spread + held * before
        covariance = covariance / (n * share + held)[:, None, None]
        mixture = StudentMixture(
            torch.log_softmax((n * share + 1).log(), 0), mean, factor(covariance), mixture.df
        )
    return mixture
