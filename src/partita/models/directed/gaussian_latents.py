r"""Normal latent variables with diagonal covariances: densities, divergences, and which dimensions carry anything.

.. math:: \mathrm{KL}\big(N(\mu, \sigma^2)\,\|\,N(m, s^2)\big) = \log\frac{s}{\sigma} + \frac{\sigma^2 + (\mu - m)^2}{2 s^2} - \frac12
          (theory/latent_variables.md, eq. 41.5)

A dimension whose posterior is its prior for every row carries nothing: the decoder does not listen to it. Where that is so for all of
them the posterior has collapsed, and a fit says so.

Letters: B rows, M latent dimensions, mu and log sigma of the posterior, m and log s of the prior.
"""

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

from partita.models.directed.latent import LatentModel
from partita.models.directed.outputs import HALF_LOG_2PI

ACTIVE = 0.01  # nats, on average over rows (and steps), that an active dimension carries at least
FEW = 0.1  # share of active dimensions at or below which a fit is cautioned
MEMORY = 0.02  # share of each batch in the running mean


def normal_log_prob(z: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    """log N(z; mu, sigma^2), summed over dimensions, ``(*, M) -> (*)``."""
    return (-0.5 * ((z - mean) * torch.exp(-log_scale)).square() - log_scale - HALF_LOG_2PI).sum(-1)


def standard_log_prob(z: Tensor) -> Tensor:
    """log N(z; 0, I), ``(*, M) -> (*)``."""
    return -0.5 * z.square().sum(-1) - z.shape[-1] * HALF_LOG_2PI


def kl_from_standard(mean: Tensor, log_scale: Tensor) -> Tensor:
    """KL(N(mu, sigma^2) || N(0, 1)) of each dimension, ``(*, M) -> (*, M)`` (theory/latent_variables.md, eq. 41.4)."""
    return 0.5 * (mean.square() + torch.exp(2 * log_scale) - 1) - log_scale


def kl_between(mean: Tensor, log_scale: Tensor, prior_mean: Tensor, prior_log_scale: Tensor) -> Tensor:
    """KL(N(mu, sigma^2) || N(m, s^2)) of each dimension, ``(*, M) -> (*, M)``."""
    gap = log_scale - prior_log_scale
    return 0.5 * (torch.exp(2 * gap) + ((mean - prior_mean) * torch.exp(-prior_log_scale)).square() - 1) - gap


def normal(mean: Tensor, log_scale: Tensor) -> Distribution:
    """The distribution itself, whose draws are ``(*, M)``."""
    return Independent(Normal(mean, log_scale.exp(), validate_args=False), 1, validate_args=False)


class GaussianLatents(LatentModel):
    """A latent model that keeps a running mean of what each dimension carried while it was fitted, in nats, in ``carried`` (M,)."""

    offers = frozenset({"latent", "reparameterised"})
    forward_methods = ("elbo_terms",)
    carried: Tensor
    latent: int

    def watch_latents(self, latent: int, device: torch.device) -> None:
        """Make room for the running mean; NaN until something was seen."""
        self.latent = latent
        self.register_buffer("carried", torch.full((latent,), torch.nan, device=device))

    def watch(self, kl: Tensor) -> None:
        """Take in the mean divergence of each dimension over a batch, ``(M,)``, while the model learns."""
        if self.training and torch.is_grad_enabled() and torch.isfinite(kl).all():
            kl = kl.detach()
            self.carried.copy_(torch.where(self.carried.isnan(), kl, self.carried.lerp(kl, MEMORY)))

    def active_units(self) -> int:
        """Latent dimensions that carried anything of late."""
        return int((self.carried > ACTIVE).sum())

    def ailments(self) -> list[str]:
        """Collapse of the posterior, in one sentence with the numbers and the remedy."""
        if self.carried.isnan().all() or self.active_units() > FEW * self.latent:
            return []
        most = float(self.carried.max())
        return [f"the posterior has collapsed: {self.active_units()} of {self.latent} latent dimensions carry more than {ACTIVE} nats (the "
                f"most {most:.2g}), so the model hardly uses them; raise the weight of the divergence slowly (warm_up), lower beta, or "
                "use fewer dimensions or a weaker decoder."]  # fmt: skip
