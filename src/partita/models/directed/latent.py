r"""What models with latent variables share: a joint, a proposal for the posterior, and the weights
of draws from it.

.. math:: \log w_i = \log p(x, z_i) - \log q(z_i \mid x), \quad z_i \sim q(\cdot \mid x), \qquad
          E[w_i] = p(x)
          (theory/latent_variables.md, eq. 41.1)

Normal latent variables with diagonal covariances have densities and divergences in closed form:

.. math:: \mathrm{KL}\big(N(\mu, \sigma^2)\,\|\,N(m, s^2)\big) = \log\frac{s}{\sigma} +
          \frac{\sigma^2 + (\mu - m)^2}{2 s^2} - \frac12
          (theory/latent_variables.md, eq. 41.5)

A latent variable whose posterior is its prior for every row carries nothing. Where that is so for
almost all of them the posterior has collapsed, and a fit says so.

With one decoder for all columns, missing ones are filled by Metropolis within Gibbs: latent
variables given a full row, then the missing columns given them.

.. math:: z' \sim q(\cdot \mid x), \quad a = \min\Big(1, \frac{w(x, z')}{w(x, z)}\Big); \qquad
          x_{\mathrm{mis}} \sim p(x_{\mathrm{mis}} \mid z)
          (theory/latent_variables.md, eq. 41.13)

The first step leaves p(z | x) as it is however bad q is, so that the chain's law is the model's own
(Mattei and Frellsen 2018), not the encoder's guess of it. The mean and the mode are of the
conditionals along the chain, which have less noise than its states.

Letters: B rows, C chains for each row, D columns, M latent dimensions, k draws for each row, w
weights, mu and log sigma of the posterior, m and log s of the prior.
"""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Generator, Tensor
from torch.distributions import Distribution, Independent, Normal
from torch.distributions.constraints import Constraint

from partita.core import rng
from partita.core.protocols import Capability, Data, DirectedModel
from partita.models.directed.outputs import HALF_LOG_2PI, Output

# nats, on average over rows (and steps), that an active latent variable carries at least
ACTIVE = 0.01
FEW = 0.1  # share of active ones at or below which a fit warns
MEMORY = 0.02  # share of each batch in the running mean

CHAINS = 8  # for each row, where they are averaged; one draw takes one
BURN_IN, KEPT = 100, 100  # steps
CELLS = 1 << 22  # rows x chains x columns at once


class LogTerms(NamedTuple):
    """The three parts of a weight at given latent values, each ``(k, B)``: log w is the first plus
    the second less the third.
    """

    fit: Tensor  # log p(x | z)
    prior: Tensor  # log p(z)
    proposal: Tensor  # log q(z | x)


class Plain(Distribution):
    """A distribution without parameters of torch's kind."""

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        return {}


class LatentModel(DirectedModel):
    """p(x) = sum or integral of p(x, z) over z, seen through draws from q(z | x); ``forward`` is
    :meth:`log_weights`.

    Where q can be drawn as a function of noise that does not depend on its parameters, the weights
    carry gradients through the draws. A model of sequences that end early ("ends") takes
    ``lengths`` in every method that takes x, after the other arguments. A running mean of what each
    latent variable carried while the model was fitted, in nats, is kept in ``carried`` (M,).
    """

    capabilities = frozenset({Capability.LATENT})
    forward_methods = ("log_weights",)
    # what its latent variables are called, and what helps where they carry nothing
    units: ClassVar[str]
    against_collapse: ClassVar[str]
    carried: Tensor
    latent: int  # M

    @abstractmethod
    def log_joint(self, x: Tensor, z: Tensor) -> Tensor:
        """log p(x, z), ``(*, D), (*, M) -> (*)``; the leading dimensions broadcast."""

    @abstractmethod
    def posterior(self, x: Tensor) -> Distribution:
        """q(z | x), the proposal: a distribution whose draws are ``(*, M)`` and whose ``log_prob``
        is ``(*)``.
        """

    @abstractmethod
    def draw_joint(self, n: int, *, generator: Generator) -> tuple[Tensor, Tensor]:
        """``n`` exact draws of x and the z behind them, ``(n, D), (n, M)``."""

    @abstractmethod
    def log_terms(self, x: Tensor, z: Tensor) -> LogTerms:
        """log p(x | z), log p(z) and log q(z | x) at k given values for each row, ``(B, D), (k, B,
        M) -> (k, B)`` each.
        """

    @abstractmethod
    def draw_prior(self, x: Tensor, k: int, *, generator: Generator) -> Tensor:
        """``k`` draws for each row from the density ``log_terms(x, z).prior``, ``(k, B, M)``."""

    def live(self, x: Tensor) -> Tensor:
        """Which latent values count in each row, ``(B, D) -> (B, M)``: all, where rows do not end
        early.
        """
        return torch.ones(len(x), self.latent, dtype=torch.bool, device=x.device)

    def log_weight(self, x: Tensor, z: Tensor) -> Tensor:
        """log p(x, z) - log q(z | x) at latent values that are given, ``(*, D), (*, M) -> (*)``."""
        return self.log_joint(x, z) - self.posterior(x).log_prob(z)

    def log_weights(self, x: Tensor, k: int, *, generator: Generator) -> Tensor:
        """log p(x, z) - log q(z | x) for ``k`` draws of z from q(z | x), ``(*, D) -> (k, *)``."""
        q = self.posterior(x)
        z = draw_latent(q, k, generator)
        return self.log_joint(x, z) - q.log_prob(z)

    def watch_latents(self, latent: int, device: torch.device) -> None:
        """Make room for the running mean of M numbers; NaN until something was seen."""
        self.latent = latent
        self.register_buffer("carried", torch.full((latent,), torch.nan, device=device))

    def watch(self, kl: Tensor) -> None:
        """Take in what each latent variable carries about the rows of a batch, on average,
        ``(M,)``, while the model learns.

        What is not finite is left out. The buffer is written to all the same, so that several
        processes know that they share it.
        """
        if self.training and torch.is_grad_enabled():
            kl = kl.detach()
            running = torch.where(self.carried.isnan(), kl, self.carried.lerp(kl, MEMORY))
            self.carried.copy_(torch.where(kl.isfinite().all(), running, self.carried))

    def active_units(self) -> int:
        """Latent variables that carried anything of late."""
        return int((self.carried.abs() > ACTIVE).sum())

    def fit_warnings(self) -> list[str]:
        """Collapse of the posterior, in one sentence with the numbers and the remedy."""
        count, latent = self.active_units(), len(self.carried)
        if self.carried.isnan().all() or count > FEW * latent:
            return []
        return [
            f"the posterior has collapsed: {count} of {latent} {self.units} carry more than "
            f"{ACTIVE} nats (the most {float(self.carried.max()):.2g}), so the model hardly uses "
            f"them; {self.against_collapse}."
        ]

    def forward(self, x: Tensor, k: int = 1, *, generator: Generator) -> Tensor:
        return self.log_weights(x, k, generator=generator)

    @torch.no_grad()
    def draw(self, n: int, *, generator: Generator) -> Tensor:
        return self.draw_joint(n, generator=generator)[0]


def draw_latent(q: Distribution, k: int, generator: Generator) -> Tensor:
    """``k`` draws, ``(k, *, M)``, as functions of noise where q allows it, so that gradients flow
    to its parameters.
    """
    base = q.base_dist if isinstance(q, Independent) else q
    if isinstance(base, Normal):
        return base.loc + base.scale * rng.normal((k, *base.loc.shape), base.loc, generator)
    if q.has_rsample:
        with rng.seeded(generator):
            return q.rsample(torch.Size((k,)))
    return rng.draw(base, generator, (k,))


def draw_normal(
    mean: Tensor, log_scale: Tensor, generator: Generator, k: int | None = None
) -> Tensor:
    """A draw of N(mu, sigma^2), or ``k`` of them, ``(*, M) -> (*, M)`` or ``(k, *, M)``; gradients
    flow through it.
    """
    shape = mean.shape if k is None else (k, *mean.shape)
    return mean + log_scale.exp() * rng.normal(shape, mean, generator)


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


def diagonal_normal(mean: Tensor, log_scale: Tensor) -> Distribution:
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

    @abstractmethod
    def elbo_terms(self, x: Tensor, *, generator: Generator) -> tuple[Tensor, Tensor]:
        """log p(x | z) at one draw of z, ``(B,)``, and what each dimension carries, ``(B, M)``."""


class Decoded(LatentModel):
    """A latent model whose columns are independent given what :meth:`decode` makes of z."""

    output: Output

    @abstractmethod
    def decode(self, z: Tensor) -> Tensor:
        """The numbers that the likelihood of the columns takes, ``(*, M) -> (*, outputs)``."""

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        """Base rates, or means and scales, of the columns."""
        self.output.initialize(data.mean(), data.variance(), len(data))

    @torch.no_grad()
    def fill(self, x: Tensor, how: str = "mean", *, generator: Generator) -> Tensor:
        """Rows with NaN replaced by the posterior ``"mean"``, the ``"mode"`` (discrete columns) or
        one ``"draw"``, ``(B, D)``.
        """
        out, missing = x.to(self.like).clone(), x.isnan().any(-1)
        size = max(1, CELLS // (CHAINS * x.shape[-1] * self.output.blocks))
        for index in missing.nonzero()[:, 0].split(size):
            rows = out[index]
            out[index] = torch.where(rows.isnan(), self._filled(rows, how, generator), rows)
        return out

    def _filled(self, x: Tensor, how: str, generator: Generator) -> Tensor:
        chains = 1 if how == "draw" else CHAINS
        missing = x.isnan().expand(chains, *x.shape)
        start = self.draw(chains * len(x), generator=generator).view(missing.shape)
        full = torch.where(missing, start, x)
        z, total = draw_latent(self.posterior(full), 1, generator)[0], x.new_zeros(())
        for step in range(BURN_IN + KEPT):
            z = self._moved(full, z, generator)
            given = self.output.distribution(self.decode(z))
            full = torch.where(missing, rng.draw(given, generator), full)
            if step >= BURN_IN:
                total = total + self.output.expected(given).mean(0)
        if how == "draw":
            return full[0]
        return self.output.decided(total / KEPT, how)

    def _moved(self, x: Tensor, z: Tensor, generator: Generator) -> Tensor:
        """One step of z given x: a proposal from q, accepted by its weight."""
        q = self.posterior(x)
        proposed = draw_latent(q, 1, generator)[0]
        new, old = (self.log_joint(x, at) - q.log_prob(at) for at in (proposed, z))
        accept = rng.uniform(new.shape, new, generator).log() < new - old
        return torch.where(accept[..., None], proposed, z)
