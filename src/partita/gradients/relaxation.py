r"""Relaxed draws: the Gumbel-max trick with a softmax in place of the maximum.

.. math:: \arg\max_k\, (\log \pi_k + \gamma_k) \sim \pi, \qquad
          \tilde z = \mathrm{softmax}\big((\log \pi + \gamma) / \tau\big), \quad \gamma_k =
          -\log(-\log u_k)
          (theory/gradients.md, eq. 40.12, 40.13)

Maddison, Mnih and Teh (2017); Jang, Gu and Poole (2017). Neither estimator is unbiased: f is
evaluated, or its slope taken, between the values that z can take. As tau falls the first one's bias
falls and its variance grows; that of the straight-through one need not fall.

Letters: H units of a layer, K categories of a unit, tau temperature.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import PositiveFloat
from partita.gradients.base import Estimate, Estimator, State, Target, pull, require_kind
from partita.gradients.latents import Chain, Draws, LatentLayer, OneHot, Relaxable


def gumbel_max(log_pi: Tensor, generator: torch.Generator) -> Tensor:
    """One category of each row by the largest of log pi + Gumbel noise, ``(*, K) -> (*)``."""
    layer = OneHot(log_pi)
    return layer.scores(layer.noise(generator)).argmax(-1)


def exponential_race(pi: Tensor, generator: torch.Generator) -> Tensor:
    """The same as a race: the first of exponential waiting times with rates pi, ``(*, K) ->
    (*)``.
    """
    waiting = -torch.log1p(-rng.uniform(pi.shape, pi, generator))
    return (waiting / pi).argmin(-1)


@dataclass(frozen=True)
class _Relaxation(Estimator):
    """Gradients through draws that are made of noisy scores.

    Arguments:
        temperature: tau.
    """

    relaxes = True

    temperature: PositiveFloat = 0.5

    @property
    def unbiased(self) -> bool:
        return False

    @abstractmethod
    def make(self, layer: Relaxable, s: Tensor) -> Tensor:
        """A draw of a layer from its noisy scores, through which gradients flow."""

    def estimate_of(self, target: Target, state: State) -> Estimate:
        return Estimate(target.noisy(_relaxable, self.make)[1], state)


@dataclass(frozen=True)
class GumbelSoftmax(_Relaxation):
    """Gradients through relaxed draws of all layers, at which f is evaluated.

    Arguments:
        temperature: tau.
    """

    surrogate_is_relaxed = True

    def make(self, layer: Relaxable, s: Tensor) -> Tensor:
        return layer.soften(s, self.temperature)


@dataclass(frozen=True)
class StraightThrough(_Relaxation):
    """Hard draws on the way forward, the slope of relaxed ones on the way back.

    Arguments:
        temperature: tau.
    """

    def make(self, layer: Relaxable, s: Tensor) -> Tensor:
        return layer.harden(s).detach() + pull(layer.soften(s, self.temperature))


def _relaxable(layer: LatentLayer) -> Relaxable:
    return require_kind("a relaxation", layer, Relaxable, "Reparameterization")


def relaxed_tail(q: Chain, draws: Draws, noise: Draws, tau: Tensor | float) -> Draws:
    """The layers after ``draws``, relaxed, from given noise for all layers; the result holds
    all.
    """
    for conditional, u in zip(q[len(draws) :], noise[len(draws) :], strict=True):
        layer = _relaxable(conditional(draws))
        draws = (*draws, layer.soften(layer.scores(u), tau))
    return draws
