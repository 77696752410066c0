r"""Fisher matrices of distributions in their own parameters, where they are formulas.

.. math:: I_{\mathrm{logits}} = \mathrm{diag}(p) - p p^\top, \qquad I_{(\mu, \log\sigma)} =
          \mathrm{diag}(\sigma^{-2}, 2), \qquad
          I_{\mu} = \Sigma^{-1}          (theory/optimization.md, eq. 50.10)

Letters: * batch, K categories, D coordinates, p probabilities, mu mean, sigma deviation.
"""

import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    MultivariateNormal,
    Normal,
)

from partita.errors import Unsupported


def categorical_fisher(logits: Tensor) -> Tensor:
    """diag(p) - p p', ``(*, K) -> (*, K, K)``.

    >>> categorical_fisher(torch.zeros(2)).tolist()
    [[0.25, -0.25], [-0.25, 0.25]]
    """
    p = torch.softmax(logits, -1)
    return torch.diag_embed(p) - p[..., :, None] * p[..., None, :]


def bernoulli_fisher(logits: Tensor) -> Tensor:
    """p (1 - p) of every coordinate, ``(*, D) -> (*, D, D)``."""
    p = torch.sigmoid(logits)
    return torch.diag_embed(p * (1 - p))


def gaussian_fisher(scale: Tensor) -> Tensor:
    """In (mu, log sigma) of independent coordinates with deviations ``scale``, ``(*, D) -> (*, 2D,
    2D)``.
    """
    return torch.diag_embed(torch.cat([scale**-2, torch.full_like(scale, 2.0)], -1))


def fisher_of(distribution: Distribution) -> Tensor:
    """The Fisher matrix of one predictive distribution in what a network puts out: logits, or means
    at a fixed scale.
    """
    if isinstance(distribution, Independent):
        return fisher_of(distribution.base_dist)
    if isinstance(distribution, Categorical):
        return categorical_fisher(distribution.logits)
    if isinstance(distribution, Bernoulli):
        return bernoulli_fisher(distribution.logits)
    if isinstance(distribution, Normal):
        return torch.diag_embed(distribution.scale**-2)
    if isinstance(distribution, MultivariateNormal):
        return distribution.precision_matrix
    raise Unsupported(
        f"fisher_of: {type(distribution).__name__} has no closed form here. Use PredictiveMetric, "
        "which needs only its divergence."
    )
