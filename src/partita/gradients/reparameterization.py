r"""Reparameterization: draws as functions of noise that knows nothing of the parameters.

.. math:: \nabla_\varphi E_{q_\varphi(y)}[f(y)] = E_{r(\epsilon)}\big[\nabla_\varphi
          f(g_\varphi(\epsilon))\big], \qquad
          y = g_\varphi(\epsilon)          (theory/gradients.md, eq. 40.4)

The four functions are the table of the theory page; :class:`Reparameterization` takes any
distribution that can do it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from partita.errors import Unsupported
from partita.gradients.base import Estimate, Estimator, State, Target
from partita.gradients.latents import Continuous, Draws, LatentLayer


def univariate_normal(mu: Tensor, sigma: Tensor, epsilon: Tensor) -> Tensor:
    """N(mu, sigma^2) from N(0, 1)."""
    return mu + sigma * epsilon


def gamma_of_shape_one(beta: Tensor, epsilon: Tensor) -> Tensor:
    """Gamma(1, beta) with scale beta, so with mean beta, from Gamma(1, 1)."""
    return beta * epsilon


def exponential(rate: Tensor, u: Tensor) -> Tensor:
    """Exponential with the given rate, from U(0, 1)."""
    return -torch.log(u) / rate


def multivariate_normal(mu: Tensor, A: Tensor, epsilon: Tensor) -> Tensor:
    """N(mu, A A') from N(0, I), ``(D), (D, D), (*, D) -> (*, D)``."""
    return mu + epsilon @ A.mT


@dataclass(frozen=True)
class Reparameterization(Estimator):
    """Gradients through the draws; for every distribution with ``rsample``.

    >>> from torch.distributions import Exponential
    >>> rate, g = torch.ones(4000, requires_grad=True), torch.Generator().manual_seed(0)
    >>> q, how = (lambda _: Continuous(Exponential(rate)),), Reparameterization()
    >>> how.estimate(
    ...     q, lambda z: z[0], how.init((1,), like=rate, generator=g), generator=g
    ... ).surrogate.sum().backward()
    >>> round(float(rate.grad.mean()), 1)  # of E[z] = 1 / rate, whose derivative is -1 / rate^2
    -1.0
    """

    def estimate_of(self, target: Target, state: State) -> Estimate:
        draws: Draws = ()
        layers: list[LatentLayer] = []
        for conditional in target.q:
            layers.append(conditional(draws))
            draws = (*draws, reparameterized(layers[-1], target.generator))
        return Estimate(target.values(draws, layers[0]), state)


def reparameterized(layer: LatentLayer, generator: torch.Generator) -> Tensor:
    """A draw through which gradients flow; refused where a distribution has none."""
    if not isinstance(layer, Continuous) or not layer.distribution.has_rsample:
        kind = layer.distribution if isinstance(layer, Continuous) else layer
        raise Unsupported(
            f"Reparameterization cannot run on {type(kind).__name__} latents: their draws are no "
            "smooth function of noise. "
            "Use GumbelSoftmax, Rebar or Reinforce instead."
        )
    return layer.reparameterized(generator)
