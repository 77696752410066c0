r"""A normalized density fitted to draws: a mixture of normals, its size chosen by BIC, with the
tails of a Student distribution where the draws have them.

.. math:: q(x) = \sum_k \pi_k\, t_\nu\big(x;\; m_k,\, \tfrac{\nu - 2}{\nu} C_k\big), \qquad
          t_\infty = \mathcal N
          (theory/evidence.md, eq. 60.5)

All degrees of freedom have the same means and covariances, so that BIC chooses among them too.

Letters: n draws, D coordinates, K components.
"""

import math
import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributions import Chi2

from partita.core import rng
from partita.models.energy.guided import NormalMixture
from partita.models.energy.units import whitening_of

SIZES = (1, 2, 3, 4, 6, 8, 12, 16)  # tried in this order, while BIC falls
ROWS_EACH = 5  # rows for each coordinate of a component
TAILS = (math.inf, 30.0, 12.0, 6.0, 4.0, 3.0)
MOST_ROWS = 4000  # of the draws that a mixture is fitted to
FLOOR = 1e-6  # of the variance of a coordinate that every component has


@dataclass(frozen=True)
class FittedMixture:
    """Normals, mixed; each divided by the root of one chi-square where ``df`` is finite."""

    normals: NormalMixture  # with the covariances C_k
    df: float

    @property
    def size(self) -> int:
        """K."""
        return self.normals.size

    def log_density(self, x: Tensor) -> Tensor:
        """log q(x), ``(n, D) -> (n,)``."""
        if math.isinf(self.df):
            return -self.normals.free_energy(x)
        D, df = x.shape[-1], self.df
        # the squared distances, from the normal density itself
        normals = self.normals
        scale = normals.whitening.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        top = normals.log_weights + scale
        squares = -2 * (normals.log_parts(x) - top + 0.5 * D * math.log(2 * math.pi))
        constant = (
            math.lgamma(0.5 * (df + D))
            - math.lgamma(0.5 * df)
            - 0.5 * D * math.log(math.pi * (df - 2))
        )
        parts = top + constant - 0.5 * (df + D) * torch.log1p(squares.clamp_min(0) / (df - 2))
        return torch.logsumexp(parts, -1)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws, ``(n, D)``."""
        normals = self.normals
        z = rng.categories(normals.log_weights.expand(n, -1), generator)
        u = rng.normal((n, normals.mean.shape[1]), normals.mean, generator)
        if not math.isinf(self.df):
            chi = rng.draw(Chi2(u.new_tensor(self.df)), generator, (n,)).clamp_min(1e-12)
            u = u * ((self.df - 2) / chi).sqrt()[:, None]
        x = normals.mean[z]
        for k in z.unique().tolist():
            of_k = z == k
            x[of_k] += torch.linalg.solve_triangular(
                normals.whitening[k], u[of_k].mT, upper=False
            ).mT
        return x

    def narrowed(self, temperature: float) -> "FittedMixture":
        """Normals about the same means with ``temperature`` times the covariances."""
        whitening = self.normals.whitening / math.sqrt(temperature)
        return FittedMixture(replace(self.normals, whitening=whitening), math.inf)


def fit_mixture(x: Tensor, *, generator: torch.Generator) -> FittedMixture:
    """The mixture fitted to draws ``(n, D)`` in float64, in units of their deviations."""
    x = x[:: max(1, len(x) // MOST_ROWS)]
    center, scale = x.mean(0), x.std(0)
    u = (x - center) / scale
    fit = _of_fewest_bits(u, rng.seed(generator))
    normals = fit.normals
    whitening = normals.whitening / scale
    return FittedMixture(
        NormalMixture(normals.log_weights, center + scale * normals.mean, whitening), fit.df
    )


def _of_fewest_bits(u: Tensor, seed: int) -> FittedMixture:
    """One normal by its moments, more by EM, each with the tails that suit it, for as long as BIC
    falls.
    """
    n, D = u.shape
    best, lowest = None, math.inf
    for k in SIZES:
        if k > 1 and k * ROWS_EACH * (D + 1) > n:
            break
        normals = _normals(u, k, seed)
        for df in TAILS:
            fit = FittedMixture(normals, df)
            numbers = k * (D + 1) * (D + 2) / 2 - 1 + math.isfinite(df)
            bic = numbers * math.log(n) - 2 * float(fit.log_density(u).sum())
            if bic < lowest:
                best, lowest = fit, bic
        # two halves of a ring explain little, three parts may
        if best is not None and best.size < k and k > 2:
            break
    assert best is not None
    return best


def _normals(u: Tensor, k: int, seed: int) -> NormalMixture:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    n, D = u.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = GaussianMixture(k, reg_covar=FLOOR, random_state=seed).fit(u.numpy())
    # few rows for many coordinates: toward the diagonal, so that it can be inverted
    share = 0.0 if n > 10 * D else D / (n + D)
    covariance = torch.as_tensor(fit.covariances_)
    diagonal = torch.diag_embed(covariance.diagonal(dim1=-2, dim2=-1))
    whitening = torch.stack([whitening_of(c) for c in torch.lerp(covariance, diagonal, share)])
    weights, means = torch.as_tensor(fit.weights_), torch.as_tensor(fit.means_)
    return NormalMixture(weights.log(), means, whitening)
