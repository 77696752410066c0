r"""Latent variables layer by layer: what an estimator of the gradient of E_q[f(z)] must know of q.

.. math:: q(z) = \prod_{i=1}^L q_i(z_i \mid z_{<i})          (theory/gradients.md, eq. 40.1)

A chain is one function for each layer, from the layers before it to a :class:`LatentLayer`. Leading
dimensions are rows: each has its own parameters, and its own value of f.

Letters: B rows, H units of a layer, K categories of a unit, L layers, tau temperature, u and v
uniform noise.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import functional

from partita.core import rng

Draws = tuple[Tensor, ...]  # one tensor for each layer, (*, H) or (*, H, K)


class LatentLayer(ABC):
    """One layer given the layers before it."""

    event: int  # trailing dimensions that make up one draw; those before are rows

    @abstractmethod
    def draw(self, generator: torch.Generator, shape: Sequence[int] = ()) -> Tensor:
        """Draws without gradients, ``shape`` of them for each row."""

    @abstractmethod
    def log_prob(self, z: Tensor) -> Tensor:
        """log q(z), ``(*)``, with gradients in the parameters (and in z, where z is relaxed)."""


Chain = Sequence[Callable[[Draws], LatentLayer]]


@dataclass(frozen=True)
class Continuous(LatentLayer):
    """Any ``torch.distributions`` object; what it calls batch dimensions are the rows."""

    distribution: Distribution

    @property
    def event(self) -> int:  # type: ignore[override]
        return len(self.distribution.event_shape)

    def draw(self, generator: torch.Generator, shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            return rng.draw(self.distribution, generator, shape)

    def log_prob(self, z: Tensor) -> Tensor:
        return self.distribution.log_prob(z)

    def reparameterized(self, generator: torch.Generator) -> Tensor:
        """A draw as a function of noise and parameters, through which gradients flow."""
        with rng.seeded(generator):
            return self.distribution.rsample()


@dataclass(frozen=True)
class Relaxable(LatentLayer):
    """Discrete units as thresholds of noisy scores s = logits + noise, so that z has a smooth
    relation, ``soften(s, tau)``.
    """

    logits: Tensor

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """E[z]: the probabilities."""

    @abstractmethod
    def scores(self, u: Tensor) -> Tensor:
        """s from uniform noise of the logits' shape."""

    @abstractmethod
    def conditional_scores(self, z: Tensor, v: Tensor) -> Tensor:
        """s given that it hardens to z, as a function of uniform noise and the logits
        (theory/gradients.md, eq. 40.14, 40.15).
        """

    @staticmethod
    @abstractmethod
    def harden(s: Tensor) -> Tensor:
        """z from s: where it passes the threshold."""

    @staticmethod
    @abstractmethod
    def soften(s: Tensor, tau: Tensor | float) -> Tensor:
        """The relaxed z."""

    def noise(self, generator: torch.Generator) -> Tensor:
        """Uniform noise of the logits' shape, strictly between zero and one."""
        edge = torch.finfo(self.logits.dtype).eps
        return rng.uniform(self.logits.shape, self.logits, generator).clamp_(edge, 1 - edge)

    def score(self, z: Tensor) -> Tensor:
        r""":math:`\nabla_{\mathrm{logits}} \log q(z) = z - E[z]`, for units of either kind."""
        return z - self.mean

    def leaf(self) -> Self:
        """The same layer with logits of its own, in which gradients can be taken without reaching
        further back.
        """
        return type(self)(self.logits.detach().requires_grad_())

    def total(self, x: Tensor) -> Tensor:
        """The sum over units, ``(*, H) -> (*)``."""
        return x.flatten(-self.event).sum(-1)


class Bits(Relaxable):
    """Independent zeros and ones, ``logits`` (*, H).

    >>> Bits(torch.zeros(2, 3)).log_prob(torch.ones(2, 3))
    tensor([-2.0794, -2.0794])
    """

    event = 1

    @property
    def mean(self) -> Tensor:
        return torch.sigmoid(self.logits)

    def draw(self, generator: torch.Generator, shape: Sequence[int] = ()) -> Tensor:
        return rng.bernoulli(self.mean.detach().expand(*shape, *self.logits.shape), generator)

    def log_prob(self, z: Tensor) -> Tensor:
        return (z * self.logits - functional.softplus(self.logits)).sum(-1)

    def scores(self, u: Tensor) -> Tensor:
        return self.logits + torch.logit(u)

    def conditional_scores(self, z: Tensor, v: Tensor) -> Tensor:
        signs = 2 * z - 1
        waiting = torch.logit(v) + functional.softplus(signs * self.logits)
        return signs * functional.softplus(waiting)

    @staticmethod
    def harden(s: Tensor) -> Tensor:
        return (s > 0).to(s.dtype)

    @staticmethod
    def soften(s: Tensor, tau: Tensor | float) -> Tensor:
        return torch.sigmoid(s / tau)


class OneHot(Relaxable):
    """Independent categories, each a one-hot vector, ``logits`` (*, H, K)."""

    event = 2

    @property
    def mean(self) -> Tensor:
        return torch.softmax(self.logits, -1)

    def draw(self, generator: torch.Generator, shape: Sequence[int] = ()) -> Tensor:
        logits = self.logits.detach().expand(*shape, *self.logits.shape)
        drawn = rng.categories(logits, generator)
        return functional.one_hot(drawn, logits.shape[-1]).to(logits.dtype)

    def log_prob(self, z: Tensor) -> Tensor:
        return (z * torch.log_softmax(self.logits, -1)).sum((-1, -2))

    def scores(self, u: Tensor) -> Tensor:
        return torch.log_softmax(self.logits, -1) + gumbel(u)

    def conditional_scores(self, z: Tensor, v: Tensor) -> Tensor:
        # minus log waiting times of rate one; the winner's is its own, the others wait on from
        # there
        scores = gumbel(v)
        first = (z * scores).sum(-1, keepdim=True)
        others = -torch.logaddexp(-scores - torch.log_softmax(self.logits, -1), -first)
        return torch.where(z > 0.5, first, others)

    @staticmethod
    def harden(s: Tensor) -> Tensor:
        return functional.one_hot(s.argmax(-1), s.shape[-1]).to(s.dtype)

    @staticmethod
    def soften(s: Tensor, tau: Tensor | float) -> Tensor:
        return torch.softmax(s / tau, -1)


def hardened(layer: Relaxable, s: Tensor) -> Tensor:
    """A draw of a layer from its noisy scores, without gradients."""
    return layer.harden(s).detach()


def gumbel(u: Tensor) -> Tensor:
    """Gumbel(0, 1) from uniform noise: -log(-log u)."""
    return -torch.log(-torch.log(u))


class Ancestral(NamedTuple):
    """Draws of all layers, and the layers at which they were drawn."""

    draws: Draws
    layers: tuple[LatentLayer, ...]


def ancestral(
    q: Chain, generator: torch.Generator, shape: Sequence[int] = (), before: Draws = ()
) -> Ancestral:
    """Layer by layer, ``shape`` draws for each row, after those drawn ``before``, which the result
    holds too.
    """
    draws, layers = before, []
    for conditional in q[len(before) :]:
        layers.append(conditional(draws))
        draws = (*draws, layers[-1].draw(generator, () if draws else shape))
    return Ancestral(draws, tuple(layers))


def log_prob(q: Chain, draws: Draws) -> Tensor:
    """log q of all layers together, ``(*)``."""
    first, *others = (conditional(draws[:i]).log_prob(draws[i]) for i, conditional in enumerate(q))
    return sum(others, first)
