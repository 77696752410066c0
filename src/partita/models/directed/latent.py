r"""What models with latent variables share: a joint, a proposal for the posterior, and the weights of draws from it.

.. math:: \log w_i = \log p(x, z_i) - \log q(z_i \mid x), \quad z_i \sim q(\cdot \mid x), \qquad E[w_i] = p(x)
          (theory/latent_variables.md, eq. 41.1)

Letters: B rows, D columns, M latent dimensions, k draws for each row.
"""

from abc import abstractmethod

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

from partita.core import rng
from partita.core.protocols import DirectedModel


class LatentModel(DirectedModel):
    """p(x) = sum or integral of p(x, z) over z, seen through draws from q(z | x); ``forward`` is :meth:`log_weights`.

    Where q can be drawn as a function of noise that does not depend on its parameters, the weights carry gradients through the draws.
    A model of sequences that end early ("ends") takes ``lengths`` in every method that takes x, after the other arguments.
    """

    offers = frozenset({"latent"})
    forward_methods = ("log_weights",)

    @abstractmethod
    def log_joint(self, x: Tensor, z: Tensor) -> Tensor:
        """log p(x, z), ``(*, D), (*, M) -> (*)``; the leading dimensions broadcast."""

    @abstractmethod
    def posterior(self, x: Tensor) -> Distribution:
        """q(z | x), the proposal: a distribution whose draws are ``(*, M)`` and whose ``log_prob`` is ``(*)``."""

    @abstractmethod
    def draw_joint(self, n: int, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """``n`` exact draws of x and the z behind them, ``(n, D), (n, M)``."""

    def log_weight(self, x: Tensor, z: Tensor) -> Tensor:
        """log p(x, z) - log q(z | x) at latent values that are given, ``(*, D), (*, M) -> (*)``."""
        return self.log_joint(x, z) - self.posterior(x).log_prob(z)

    def log_weights(self, x: Tensor, k: int, *, generator: torch.Generator) -> Tensor:
        """log p(x, z) - log q(z | x) for ``k`` draws of z from q(z | x), ``(*, D) -> (k, *)``."""
        q = self.posterior(x)
        z = draw_latent(q, k, generator)
        return self.log_joint(x, z) - q.log_prob(z)

    def forward(self, x: Tensor, k: int = 1, *, generator: torch.Generator) -> Tensor:
        return self.log_weights(x, k, generator=generator)

    @torch.no_grad()
    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        return self.draw_joint(n, generator=generator)[0]


def draw_latent(q: Distribution, k: int, generator: torch.Generator) -> Tensor:
    """``k`` draws, ``(k, *, M)``, as functions of noise where q allows it, so that gradients flow to its parameters."""
    base = q.base_dist if isinstance(q, Independent) else q
    if isinstance(base, Normal):
        return base.loc + base.scale * rng.normal((k, *base.loc.shape), base.loc, generator)
    if q.has_rsample:
        with rng.seeded(generator):
            return q.rsample(torch.Size((k,)))
    return rng.draw(base, generator, (k,))
