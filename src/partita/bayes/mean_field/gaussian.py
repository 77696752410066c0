r"""A Gaussian with unknown mean and precision, factorized: q(mu, lambda) = q(mu) q(lambda).

.. math:: \log p(X, \mu, \lambda) = \sum_i \log \mathcal N(x_i \mid \mu, 1/\lambda) + \log \mathcal
          N(\mu \mid m, 1/t) +
          \log \mathrm{Gamma}(\lambda \mid a, b)          (theory/bayes.md, eq. 9.4)

The priors are independent, so that no conjugate pair exists for both, though one does for each.

Letters: n data, m and t prior mean and its precision, a and b shape and rate of the precision.
"""

import math
from dataclasses import replace

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from partita.bayes.mean_field.engine import LogJoint, MeanField, coordinate_ascent
from partita.bayes.mean_field.factors import GammaFactor, GaussianFactor, Statistics
from partita.core.arguments import PositiveFloat, check_finite, validated
from partita.errors import invalid

LOG_2PI = math.log(2 * math.pi)


def gaussian_log_joint(x: Tensor, m: float, t: float, a: float, b: float) -> LogJoint:
    """log p(X, mu, lambda) in the statistics of ``mu`` (a vector of one) and ``lam``; x is measured
    from its mean.
    """
    n, center = len(x), x.mean()
    scatter = (x - center).square().sum()

    def log_joint(s: dict[str, Statistics]) -> Tensor:
        mu, square = s["mu"]["value"][0], s["mu"]["outer"][0, 0]
        misfit = 0.5 * s["lam"]["value"] * (scatter + n * square)
        likelihood = 0.5 * n * (s["lam"]["log"] - LOG_2PI) - misfit
        away = m - float(center)
        prior = 0.5 * (math.log(t) - LOG_2PI) - 0.5 * t * (square - 2 * away * mu + away**2)
        return likelihood + prior + gamma_log_prior(s["lam"], a, b)

    return log_joint


def gamma_log_prior(s: Statistics, a: float, b: float) -> Tensor:
    """E[log Gamma(theta | a, b)] with its constant, summed over members."""
    return ((a - 1) * s["log"] - b * s["value"] + a * math.log(b) - math.lgamma(a)).sum()


@validated
def gaussian(
    x: ArrayLike,
    *,
    m: float = 0.0,
    t: PositiveFloat = 1.0,
    a: PositiveFloat = 1.0,
    b: PositiveFloat = 1.0,
    tolerance: float = 1e-12,
) -> MeanField:
    """Mean field of mu ~ N(m, 1/t), lambda ~ Gamma(a, b) given data ``(n,)``.

    >>> result = gaussian([4.1, 5.3, 3.2, 4.6], t=0.01)
    >>> result.converged, round(float(result.factors["mu"].m), 1)
    (True, 4.3)
    """
    x = torch.as_tensor(x, dtype=torch.float64)
    if x.dim() != 1 or not len(x):
        raise invalid("gaussian", "x", "have shape (n,) with n at least 1", tuple(x.shape))
    check_finite("gaussian", "x", x)
    spread = torch.eye(1).to(x) / (t + len(x))
    start = {
        "mu": GaussianFactor(x.new_zeros(1), spread),
        "lam": GammaFactor(x.new_tensor(a), x.new_tensor(b)),
    }
    result = coordinate_ascent(gaussian_log_joint(x, m, t, a, b), start, tolerance=tolerance)
    mu = result.factors["mu"]
    assert isinstance(mu, GaussianFactor)
    moved = GaussianFactor(mu.m + x.mean(), mu.V)
    return replace(result, factors={**result.factors, "mu": moved})
