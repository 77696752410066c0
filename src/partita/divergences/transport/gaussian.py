r"""Transport between normal distributions, plain and entropic, for the squared distance: what the
solvers are tested by.

.. math:: W_2^2 = |m_0 - m_1|^2 + \mathrm{tr}\big(S_0 + S_1 - 2 (S_0^{1/2} S_1 S_0^{1/2})^{1/2}\big)
          (theory/divergences.md, eq. 16.11)

Letters: m means, S covariances, D width.
"""

import math

import torch
from torch import Tensor

from partita.core.arguments import PositiveFloat, validated


def gaussian_transport(
    mean_x: Tensor, covariance_x: Tensor, mean_y: Tensor, covariance_y: Tensor
) -> Tensor:
    """W_2^2 between two normals, ``(D,), (D, D), (D,), (D, D) -> ()``."""
    root = _root(covariance_x)
    cross = _root(root @ covariance_y @ root)
    return (mean_x - mean_y).square().sum() + torch.trace(covariance_x + covariance_y - 2 * cross)


@validated
def gaussian_entropic_transport(
    mean_x: Tensor,
    covariance_x: Tensor,
    mean_y: Tensor,
    covariance_y: Tensor,
    *,
    epsilon: PositiveFloat,
) -> Tensor:
    r"""OT_epsilon between two normals (Janati et al. 2020, theorem 1), ``-> ()``
    (theory/divergences.md, eq. 16.12).

    .. math:: |m_0 - m_1|^2 + \mathrm{tr}(S_0 + S_1 - D_\varepsilon) + \tfrac{\varepsilon}{2} \big(
              d (1 - \log\varepsilon)
              + \log\det(D_\varepsilon + \tfrac\varepsilon2 I) \big), \quad
              D_\varepsilon = \big(4 S_0^{1/2} S_1 S_0^{1/2} + \tfrac{\varepsilon^2}{4} I\big)^{1/2}
    """
    d, root = len(mean_x), _root(covariance_x)
    eye = torch.eye(d).to(root)
    middle = _root(4 * root @ covariance_y @ root + epsilon**2 / 4 * eye)
    moved = (mean_x - mean_y).square().sum() + torch.trace(covariance_x + covariance_y - middle)
    log_det = torch.logdet(middle + epsilon / 2 * eye)
    return moved + epsilon / 2 * (d * (1 - math.log(epsilon)) + log_det)


def _root(matrix: Tensor) -> Tensor:
    """The symmetric square root of a covariance."""
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp_min(0).sqrt()) @ vectors.mT
