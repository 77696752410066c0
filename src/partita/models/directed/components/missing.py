r"""Gaussian rows with missing values: the likelihood of what was observed, and the moments of what
was not.

.. math:: \log N(x_o; \mu_o, \Sigma_{oo}), \qquad E[x_m \mid x_o] = \mu_m + \Sigma_{mo}
          \Sigma_{oo}^{-1} (x_o - \mu_o), \qquad
          \mathrm{Cov}[x_m \mid x_o] = \Sigma_{mm} - \Sigma_{mo} \Sigma_{oo}^{-1} \Sigma_{om}
          (theory/mixtures.md, eq. 10.8)

Rows with the same pattern share their matrices. Instead of cutting blocks out, missing rows and
columns of Sigma are replaced by those of the identity, so that all patterns are one batch.

Letters: B rows, P patterns, D columns, K components, o observed, m missing.
"""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from partita.core import rng


class Patterns(NamedTuple):
    """For each pattern and component: what turns observed deviations into expectations, and what
    stays uncertain.
    """

    seen: Tensor  # (P, D), true where observed
    of_row: Tensor  # (B,)
    factor: Tensor  # (P, K, D, D): Cholesky of Sigma_oo, identity elsewhere
    gain: Tensor  # (P, K, D, D): Sigma_mo Sigma_oo^-1, zero elsewhere
    covariance: Tensor  # (P, K, D, D): of the missing given the observed, zero elsewhere


class Conditionals(NamedTuple):
    """What E-steps need of rows with missing values."""

    log_prob: Tensor  # (K, B), of the observed values
    mean: Tensor  # (K, B, D), rows with missing values at their conditional expectation
    of_row: Tensor  # (B,)
    covariance: Tensor  # (P, K, D, D)

    def moments(self, r: Tensor, origin: Tensor, one: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Expected sums of 1, x and x x' about the origin under responsibilities r, (K, B); the
        last for all components as ``one``.
        """
        x = self.mean - origin
        weighted = r[..., None] * x
        share = torch.zeros(
            len(r), len(self.covariance), dtype=r.dtype, device=r.device
        ).index_add_(1, self.of_row, r)
        S = weighted.mT @ x + torch.einsum(
            "kp,pkij->kij", share, self.covariance.expand(-1, len(r), -1, -1)
        )
        return r.sum(1), weighted.sum(1), S.sum(0, keepdim=True) if one else S


def patterns(x: Tensor, covariance: Tensor) -> Patterns:
    """The patterns of missing values among rows, with their matrices; ``covariance`` is ``(K, D,
    D)`` or ``(1, D, D)``.
    """
    seen, of_row = torch.unique(~x.isnan(), dim=0, return_inverse=True)
    o = seen.to(covariance)[:, None]  # (P, 1, D)
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    block = o[..., :, None] * covariance * o[..., None, :] + (1 - o)[..., None] * eye
    factor = torch.linalg.cholesky(block)
    cross = (1 - o)[..., :, None] * covariance * o[..., None, :]  # Sigma_mo
    gain = torch.cholesky_solve(cross.mT, factor).mT
    rest = (1 - o)[..., :, None] * (covariance - gain @ cross.mT) * (1 - o)[..., None, :]
    return Patterns(seen, of_row, factor, gain, rest)


def conditionals(x: Tensor, location: Tensor, covariance: Tensor) -> Conditionals:
    """Densities and expectations of all rows under all components, ``(B, D), (K, D), (K or 1, D,
    D)``.
    """
    found, seen = patterns(x, covariance), ~x.isnan()
    deviation = torch.where(seen, x - location[:, None], 0.0)  # (K, B, D)
    factor, gain = (part.movedim(0, 1)[:, found.of_row] for part in (found.factor, found.gain))
    y = torch.linalg.solve_triangular(factor, deviation[..., None], upper=False)[..., 0]
    log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    log_prob = -0.5 * (y.square().sum(-1) + seen.sum(-1).to(y) * math.log(2 * math.pi)) - log_det
    mean = torch.where(seen, x, location[:, None] + (gain @ deviation[..., None])[..., 0])
    return Conditionals(log_prob, mean, found.of_row, found.covariance)


def conditional_draw(
    x: Tensor, location: Tensor, covariance: Tensor, index: Tensor, generator: Generator
) -> Tensor:
    """Missing values drawn given the observed ones, by Matheron's rule: a free draw, moved by the
    gain on its misfit, ``(B, D)``.
    """
    found, seen = patterns(x, covariance), ~x.isnan()
    component = torch.zeros_like(index) if len(covariance) == 1 else index
    noise = rng.normal(x.shape, location, generator)[..., None]
    free = location[index] + (torch.linalg.cholesky(covariance)[component] @ noise)[..., 0]
    misfit = torch.where(seen, x - free, 0.0)
    return torch.where(
        seen, x, free + (found.gain[found.of_row, component] @ misfit[..., None])[..., 0]
    )
