r"""Normal latent variables with diagonal covariances: densities and divergences.

.. math:: \mathrm{KL}\big(N(\mu, \sigma^2)\,\|\,N(m, s^2)\big) = \log\frac{s}{\sigma} +
          \frac{\sigma^2 + (\mu - m)^2}{2 s^2} - \frac12
          (theory/latent_variables.md, eq. 41.5)

Letters: B rows, M latent dimensions, mu and log sigma of the posterior, m and log s of the prior.
"""

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

from partita.core.protocols import Capability
from partita.models.directed.latent import LatentModel
from partita.models.directed.outputs import HALF_LOG_2PI


def normal_log_prob(z: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    """log N(z; mu, sigma^2), summed over dimensions, ``(*, M) -> (*)``."""
    return (-0.5 * ((z - mean) * torch.exp(-log_scale)).square() - log_scale - HALF_LOG_2PI).sum(-1)


def standard_log_prob(z: Tensor) -> Tensor:
    """log N(z; 0, I), ``(*, M) -> (*)``."""
    return -0.5 * z.square().sum(-1) - z.shape[-1] * HALF_LOG_2PI


def kl_from_standard(mean: Tensor, log_scale: Tensor) -> Tensor:
    """KL(N(mu, sigma^2) || N(0, 1)) of each dimension, ``(*, M) -> (*, M)``
    (theory/latent_variables.md, eq. 41.4).
    """
    return 0.5 * (mean.square() + torch.exp(2 * log_scale) - 1) - log_scale


def kl_between(
    mean: Tensor, log_scale: Tensor, prior_mean: Tensor, prior_log_scale: Tensor
) -> Tensor:
    """KL(N(mu, sigma^2) || N(m, s^2)) of each dimension, ``(*, M) -> (*, M)``."""
    gap = log_scale - prior_log_scale
    return (
        0.5
        * (torch.exp(2 * gap) + ((mean - prior_mean) * torch.exp(-prior_log_scale)).square() - 1)
        - gap
    )


def normal(mean: Tensor, log_scale: Tensor) -> Distribution:
    """The distribution itself, whose draws are ``(*, M)``."""
    return Independent(Normal(mean, log_scale.exp(), validate_args=False), 1, validate_args=False)


class GaussianLatents(LatentModel):
    """A latent model with ``latent`` normal dimensions, whose draws are functions of noise."""

    capabilities = frozenset({Capability.LATENT, Capability.REPARAMETERIZED})
    forward_methods = ("elbo_terms",)
    units = "latent dimensions"
    against_collapse = (
        "raise the weight of the divergence slowly (beta_warm_up), lower beta, or use fewer "
        "dimensions or a weaker decoder"
    )
    latent: int

    def watch_latents(self, latent: int, device: torch.device) -> None:
        self.latent = latent
        super().watch_latents(latent, device)
