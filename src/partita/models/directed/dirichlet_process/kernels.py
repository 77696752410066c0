r"""The kernels of a mixture and their conjugate priors: what a cluster predicts, draws and is
worth.

.. math:: \mathcal K(x \mid \theta) = h(x)\, e^{\langle \eta(\theta), \phi(x) \rangle - A(\theta)}
          (theory/dirichlet.md, eq. 20.6)

A cluster is its count, mean and scatter; a kernel turns those and its prior, one row of numbers,
into densities. Code that moves rows one by one lives in ``incremental``.

Letters: N rows, D columns, P clusters.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor
from torch.distributions import Bernoulli as Coins
from torch.distributions import Beta, Chi2, Dirichlet, Distribution, Normal

from partita.core import rng
from partita.core.support import Binary, Count, Real, Support
from partita.errors import Diverged, Unsupported

INDEFINITE = (
    "DPMixture: the scatter of every cluster must be positive definite; one is not. "
    "Give a larger prior scale."
)


class Clusters(NamedTuple):
    """Sufficient statistics of P clusters."""

    count: Tensor  # type: ignore[assignment] # (P,)
    mean: Tensor  # (P, D)
    scatter: Tensor  # (P, D, D) about the mean, for kernels with a covariance; else (P, 0, 0)


# machine code on disk is kept under the names of these two: moved, they make it unreadable
class ClusterMoments(NamedTuple):
    """The same as numba reads them."""

    count: np.ndarray  # type: ignore[assignment]
    mean: np.ndarray
    scatter: np.ndarray


class Target(NamedTuple):
    """The rows to be clustered and the conjugate pair that a cluster of them has, as numba reads
    them.
    """

    kind: int  # the kernel's code
    prior: np.ndarray
    table: np.ndarray  # constants of the predictive by count
    x: np.ndarray  # (n, D)


class Parameters(NamedTuple):
    """log K(x | theta) - log h(x) of P clusters: constant - |matrix (x - center)|^2 / 2, or
    constant + center'x without a matrix.
    """

    constant: Tensor  # (P,)
    center: Tensor  # (P, D)
    matrix: Tensor  # (P, D, D) upper triangular, or (P, 0, 0)


class Kernel(ABC):
    """A conjugate pair; ``prior`` is the row of numbers that ``incremental`` reads."""

    code: ClassVar[int]  # of partita.models.directed.dirichlet_process.incremental
    support: ClassVar[Callable[[int], Support]]  # of a width: where rows live
    scatters: ClassVar[bool] = False

    def __init__(self, prior: Tensor, width: int) -> None:
        self.prior, self.width = prior, width

    @staticmethod
    @abstractmethod
    def prior_size(width: int) -> int:
        """Numbers in the prior's row."""

    def log_base(self, x: Tensor) -> Tensor:
        """log h(x), ``(N, D) -> (N,)``."""
        return x.new_zeros(len(x))

    @abstractmethod
    def log_predictive(self, x: Tensor, clusters: Clusters) -> Tensor:
        """log p(x | cluster), parameters integrated out, ``(N, D) -> (N, P)``."""

    @abstractmethod
    def parameters(self, clusters: Clusters, *, generator: Generator) -> Parameters:
        """Parameters drawn from their posterior (eq. 20.11)."""

    def predictive(self, clusters: Clusters) -> Distribution:
        """Every column of every cluster, ``(P, D)``, where columns are independent given the
        cluster.
        """
        raise NotImplementedError

    def draw(self, clusters: Clusters, *, generator: Generator) -> Tensor:
        """One new row of each cluster, ``(P, D)``."""
        return rng.draw(self.predictive(clusters), generator)

    def nothing(self) -> Clusters:
        """A cluster without rows, whose predictive is that of the prior."""
        square, zeros = self.width if self.scatters else 0, self.prior.new_zeros
        return Clusters(zeros(1), zeros(1, self.width), zeros(1, square, square))

    def parts(self, size: int, start: int = 0) -> list[Tensor]:
        """The prior's columns from ``start``, ``size`` at a time."""
        return list(self.prior[start:].split(size))


class Gaussian(Kernel):
    """N(mu, Sigma) under the normal-inverse-Wishart prior; the prior's row is kappa, nu, m, S (eq.
    20.7).
    """

    code, support, scatters = 0, Real, True

    @staticmethod
    def prior_size(width: int) -> int:
        return 2 + width + width * width

    def posterior(self, clusters: Clusters) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """kappa, nu ``(P,)``, mean ``(P, D)`` and the Cholesky factor of S ``(P, D, D)`` given each
        cluster.
        """
        n, D = clusters.count, self.width
        kappa0, m0, S0 = self.prior[0], self.prior[2 : 2 + D], self.prior[2 + D :].view(D, D)
        kappa, off = kappa0 + n, clusters.mean - m0
        m = m0 + (n / kappa)[:, None] * off
        S = (
            S0
            + clusters.scatter
            + (kappa0 * n / kappa)[:, None, None] * off[:, :, None] * off[:, None, :]
        )
        factor, wrong = torch.linalg.cholesky_ex(S)
        if wrong.any():
            raise Diverged(INDEFINITE)
        return kappa, self.prior[1] + n, m, factor

    def log_predictive(self, x: Tensor, clusters: Clusters) -> Tensor:
        kappa, nu, m, L = self.posterior(clusters)
        P, D = m.shape
        whiten = torch.linalg.solve_triangular(
            L, torch.eye(D, dtype=L.dtype, device=L.device).expand(P, D, D), upper=False
        )
        center = (whiten @ m[:, :, None]).squeeze(-1)
        y = (x @ whiten.reshape(P * D, D).T).view(len(x), P, D) - center
        shrink = kappa / (kappa + 1)
        constant = (
            torch.lgamma((nu + 1) / 2)
            - torch.lgamma((nu + 1 - D) / 2)
            + D / 2 * (shrink / math.pi).log()
        )
        return (
            constant
            - L.diagonal(dim1=1, dim2=2).log().sum(-1)
            - (nu + 1) / 2 * torch.log1p(shrink * y.square().sum(-1))
        )

    def parameters(self, clusters: Clusters, *, generator: Generator) -> Parameters:
        kappa, nu, m, L = self.posterior(clusters)
        P, D = m.shape
        bartlett = rng.normal((P, D, D), m, generator).tril(-1)
        degrees = nu[:, None] - torch.arange(D, dtype=m.dtype, device=m.device)
        bartlett += torch.diag_embed(rng.draw(Chi2(degrees), generator).sqrt())
        # root root' is Wishart(nu, S^-1)
        root = torch.linalg.cholesky(torch.cholesky_inverse(L)) @ bartlett
        matrix = root.mT.contiguous()
        noise = rng.normal((P, D, 1), m, generator)
        step = torch.linalg.solve_triangular(matrix, noise, upper=True).squeeze(-1)
        constant = root.diagonal(dim1=1, dim2=2).log().sum(-1) - D / 2 * math.log(2 * math.pi)
        return Parameters(constant, m + step / kappa[:, None].sqrt(), matrix)

    def draw(self, clusters: Clusters, *, generator: Generator) -> Tensor:
        kappa, nu, m, L = self.posterior(clusters)
        size = ((kappa + 1) / kappa / rng.draw(Chi2(nu + 1 - self.width), generator)).sqrt()
        return m + size[:, None] * (L @ rng.normal((*m.shape, 1), m, generator)).squeeze(-1)


class KnownScale(Kernel):
    """N(mu, s^2) in every column, s known, under mu ~ N(m, t^2); the prior's row is s^2, t^2, m."""

    code, support = 1, Real

    @staticmethod
    def prior_size(width: int) -> int:
        return 3 * width

    def posterior(self, clusters: Clusters) -> tuple[Tensor, Tensor]:
        """Mean and variance of mu given each cluster, ``(P, D)`` both."""
        noise, spread, center = self.parts(self.width)
        n = clusters.count[:, None]
        variance = 1 / (1 / spread + n / noise)
        return variance * (center / spread + n * clusters.mean / noise), variance

    def log_base(self, x: Tensor) -> Tensor:
        noise = self.parts(self.width)[0]
        return -0.5 * ((2 * math.pi * noise).log() + x.square() / noise).sum(-1)

    def log_predictive(self, x: Tensor, clusters: Clusters) -> Tensor:
        mean, variance = self.posterior(clusters)
        precision = 1 / (variance + self.parts(self.width)[0])
        quadratic = (
            x.square() @ precision.T
            - 2 * x @ (precision * mean).T
            + (precision * mean.square()).sum(-1)
        )
        return -0.5 * (quadratic + (2 * math.pi / precision).log().sum(-1))

    def parameters(self, clusters: Clusters, *, generator: Generator) -> Parameters:
        mean, variance = self.posterior(clusters)
        mu = mean + variance.sqrt() * rng.normal(mean.shape, mean, generator)
        noise = self.parts(self.width)[0]
        constant = -0.5 * (mu.square() / noise).sum(-1)
        return Parameters(constant, mu / noise, mu.new_zeros(len(mu), 0, 0))

    def predictive(self, clusters: Clusters) -> Distribution:
        mean, variance = self.posterior(clusters)
        deviation = (variance + self.parts(self.width)[0]).sqrt()
        return Normal(mean, deviation, validate_args=False)


class Bernoulli(Kernel):
    """Independent coins in every column under Beta(a, b); the prior's row is a, b."""

    code, support = 2, Binary

    @staticmethod
    def prior_size(width: int) -> int:
        return 2 * width

    def posterior(self, clusters: Clusters) -> tuple[Tensor, Tensor]:
        """a and b of every column given each cluster, ``(P, D)`` both."""
        a, b = self.parts(self.width)
        ones = clusters.count[:, None] * clusters.mean
        return a + ones, b + clusters.count[:, None] - ones

    def log_predictive(self, x: Tensor, clusters: Clusters) -> Tensor:
        a, b = self.posterior(clusters)
        return x @ (a / b).log().T + (b / (a + b)).log().sum(-1)

    def parameters(self, clusters: Clusters, *, generator: Generator) -> Parameters:
        p = rng.draw(Beta(*self.posterior(clusters)), generator)
        log_q = torch.log1p(-p)
        return Parameters(log_q.sum(-1), p.log() - log_q, p.new_zeros(len(p), 0, 0))

    def predictive(self, clusters: Clusters) -> Distribution:
        a, b = self.posterior(clusters)
        return Coins(a / (a + b), validate_args=False)


class Multinomial(Kernel):
    """Counts of D outcomes, given a row's total, under Dirichlet(b); the prior's row is b, then
    totals to draw new rows with.
    """

    code, support = 3, Count

    @staticmethod
    def prior_size(width: int) -> int:
        return width + TOTALS

    def posterior(self, clusters: Clusters) -> Tensor:
        """b given each cluster, ``(P, D)``."""
        return self.prior[: self.width] + clusters.count[:, None] * clusters.mean

    def log_base(self, x: Tensor) -> Tensor:
        return torch.lgamma(x.sum(-1) + 1) - torch.lgamma(x + 1).sum(-1)

    def log_predictive(self, x: Tensor, clusters: Clusters) -> Tensor:
        b, total = self.posterior(clusters), x.sum(-1, keepdim=True)
        rising = torch.stack([(torch.lgamma(x + row) - torch.lgamma(row)).sum(-1) for row in b], -1)
        return (
            self.log_base(x)[:, None]
            + rising
            + torch.lgamma(b.sum(-1))
            - torch.lgamma(b.sum(-1) + total)
        )

    def parameters(self, clusters: Clusters, *, generator: Generator) -> Parameters:
        p = rng.draw(Dirichlet(self.posterior(clusters)), generator)
        return Parameters(p.new_zeros(len(p)), p.log(), p.new_zeros(len(p), 0, 0))

    def predictive(self, clusters: Clusters) -> Distribution:
        raise Unsupported(
            "impute cannot run on a DPMixture of multinomials: counts have no distribution until "
            "their total is known. Use MixtureDensity(component='poisson') instead."
        )

    def draw(self, clusters: Clusters, *, generator: Generator) -> Tensor:
        p = rng.draw(Dirichlet(self.posterior(clusters)), generator)
        pick = torch.randint(TOTALS, (len(p),), generator=generator, device=p.device)
        left, x = self.prior[self.width :][pick].clone(), torch.zeros_like(p)
        rest = p.flip(-1).cumsum(-1).flip(-1)
        for i in range(self.width):  # a multinomial is a chain of binomials
            share = torch.ones_like(left)
            if i + 1 < self.width:
                share = (p[:, i] / rest[:, i]).nan_to_num(1.0).clamp(0, 1)
            x[:, i] = torch.binomial(left, share, generator=generator)
            left = left - x[:, i]
        return x


TOTALS = 128  # row totals that a multinomial mixture remembers
KERNELS: dict[str, type[Kernel]] = {
    "gaussian": Gaussian,
    "known_scale": KnownScale,
    "bernoulli": Bernoulli,
    "multinomial": Multinomial,
}
