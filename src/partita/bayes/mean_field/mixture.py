r"""The Bayesian Gaussian mixture: q(z) q(pi) prod_k q(mu_k, Lambda_k).

.. math:: \log p(X, z, \pi, \mu, \Lambda) = \sum_{ik} z_{ik} \big( \log \pi_k + \log \mathcal N(x_i
          \mid \mu_k, \Lambda_k^{-1}) \big)
          + \log \mathrm{Dir}(\pi \mid \alpha) + \sum_k \log \mathcal{NW}(\mu_k, \Lambda_k)
          (theory/bayes.md, eq. 9.6)

With one component the family is exact, and the ELBO is the log evidence of the Normal-Wishart pair.

Letters: n rows, D columns, K components, m, k, nu, S the Normal-Wishart prior, alpha the
Dirichlet's concentration.
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily

from partita.bayes.conjugate import GaussianMeanWishart
from partita.bayes.distributions import half_log_det
from partita.bayes.mean_field.engine import LogJoint, MeanField, coordinate_ascent
from partita.bayes.mean_field.factors import (
    CategoricalFactor,
    DirichletFactor,
    NormalWishartFactor,
    Statistics,
)
from partita.bayes.mean_field.gaussian import LOG_2PI
from partita.core import rng
from partita.core.arguments import PositiveFloat, PositiveInt, check_finite, check_rows, validated
from partita.errors import invalid


@dataclass(frozen=True)
class GaussianMixture(MeanField):
    """The mean field of a mixture: its weights, responsibilities and predictive distribution."""

    @property
    def responsibilities(self) -> Tensor:
        """q(z), ``(n, K)``."""
        return self.factors["z"].statistics()["one_hot"]

    @property
    def weights(self) -> Tensor:
        """E[pi], ``(K,)``."""
        alpha = cast(DirichletFactor, self.factors["pi"]).alpha
        return alpha / alpha.sum()

    @property
    def predictive(self) -> MixtureSameFamily:
        """p(x | X) under q: a mixture of multivariate t."""
        q = cast(NormalWishartFactor, self.factors["components"])
        component = GaussianMeanWishart(q.m, q.S, q.nu, k=q.k).predictive
        return MixtureSameFamily(Categorical(self.weights), component)


def mixture_log_joint(x: Tensor, alpha: float, prior: GaussianMeanWishart, K: int) -> LogJoint:
    """log p(X, z, pi, mu, Lambda) in the statistics of ``components``, ``pi`` and ``z``."""
    D = x.shape[1]
    log_dirichlet = math.lgamma(K * alpha) - K * math.lgamma(alpha)
    log_prior = (
        0.5 * D * (torch.log(prior.k) - LOG_2PI)
        - torch.mvlgamma(prior.nu / 2, D)
        - 0.5 * prior.nu * D * math.log(2)
    )
    log_prior = log_prior + prior.nu * half_log_det(prior.tril)
    pull = prior.S + prior.k * prior.m[:, None] * prior.m

    def log_joint(s: dict[str, Statistics]) -> Tensor:
        c, log_pi = s["components"], s["pi"]["log"]
        distance = (
            torch.einsum("nd,kde,ne->nk", x, c["precision"], x)
            - 2 * x @ c["shift"].mT
            + c["square"]
        )
        rows = log_pi + 0.5 * (c["log_det"] - D * LOG_2PI - distance)
        components = 0.5 * (prior.nu - D) * c["log_det"] - 0.5 * torch.einsum(
            "de,ked->k", pull, c["precision"]
        )
        components = components + prior.k * (c["shift"] @ prior.m) - 0.5 * prior.k * c["square"]
        return (
            (s["z"]["one_hot"] * rows).sum()
            + log_dirichlet
            + (alpha - 1) * log_pi.sum()
            + (components + log_prior).sum()
        )

    return log_joint


@validated
def gaussian_mixture(
    x: ArrayLike,
    K: PositiveInt,
    *,
    alpha: PositiveFloat | None = None,
    prior: GaussianMeanWishart | None = None,
    sweeps: int = 1000,
    tolerance: float = 1e-9,
    generator: torch.Generator,
) -> GaussianMixture:
    """Mean field of a Gaussian mixture with K components, from k-means++ centers.

    Arguments:
        x: Rows ``(n, D)``.
        K: Components; with a small ``alpha`` those that the data do not need die out.
        alpha: Concentration of the Dirichlet; 1/K if not given.
        prior: Of every component's mean and precision; by default the data's mean as one pseudo-row
            and their covariance as D + 2.
        sweeps: Most sweeps.
        tolerance: Relative gain of a sweep at which it ends.
        generator: Source of the centers.
    """
    x = torch.as_tensor(x, dtype=torch.float64)
    check_rows("gaussian_mixture", "x", x, K)
    check_finite("gaussian_mixture", "x", x)
    alpha = 1 / K if alpha is None else alpha
    center = x.mean(0)
    prior = data_prior(x) if prior is None else prior
    # squares about the data's mean do not cancel
    near = GaussianMeanWishart(prior.m - center, prior.S, prior.nu, prior.k)
    start = {
        "components": NormalWishartFactor(
            near.m.expand(K, -1), near.k.expand(K), near.nu.expand(K), near.S.expand(K, -1, -1)
        ),
        "pi": DirichletFactor(x.new_full((K,), alpha)),
        "z": CategoricalFactor(seed_logits(x - center, K, generator)),
    }
    log_joint = mixture_log_joint(x - center, alpha, near, K)
    result = coordinate_ascent(log_joint, start, sweeps=sweeps, tolerance=tolerance)
    c = cast(NormalWishartFactor, result.factors["components"])
    moved = {**result.factors, "components": NormalWishartFactor(c.m + center, c.k, c.nu, c.S)}
    return GaussianMixture(moved, result.elbo, result.converged)


def data_prior(x: Tensor) -> GaussianMeanWishart:
    """A prior as wide as the data: their mean counts as one row, their covariance as D + 2 degrees
    of freedom.
    """
    D = x.shape[1]
    covariance = torch.cov(x.mT).reshape(D, D)
    if len(x) < 2 or int(torch.linalg.matrix_rank(covariance)) < D:
        allowed = "have a covariance of full rank where no prior is given"
        remedy = "Remove constant or repeated columns, or give prior=GaussianMeanWishart(...)."
        raise invalid("gaussian_mixture", "x", allowed, "a singular one", remedy)
    return GaussianMeanWishart(x.mean(0), covariance, float(D + 2), 1.0)


def seed_logits(x: Tensor, K: int, generator: torch.Generator) -> Tensor:
    """Soft labels by distance to k-means++ centers, in units of the columns' deviations, ``(n,
    K)``.
    """
    from sklearn.cluster import kmeans_plusplus

    z = (x / x.std(0).clamp_min(1e-300)).numpy()
    centers, _ = kmeans_plusplus(z, K, random_state=rng.seed(generator))
    return -0.5 * torch.cdist(torch.from_numpy(z), torch.from_numpy(centers)).square()
