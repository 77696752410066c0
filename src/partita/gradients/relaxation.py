r"""Relaxed draws: the Gumbel-max trick with a softmax in place of the maximum.

.. math:: \arg\max_k\, (\log \pi_k + \gamma_k) \sim \pi, \qquad
          \tilde z = \mathrm{softmax}\big((\log \pi + \gamma) / \tau\big), \quad \gamma_k =
          -\log(-\log u_k)
          (theory/gradients.md, eq. 40.12, 40.13)

Maddison, Mnih and Teh (2017); Jang, Gu and Poole (2017). Neither estimator is unbiased: f is asked,
or its slope taken, between the values that z can take. As tau falls the first one's bias falls and
its variance grows; that of the straight-through one need not fall.

Letters: H units of a layer, K categories of a unit, tau temperature.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from partita.core import rng
from partita.core.checks import check_real
from partita.gradients.base import Estimate, Estimator, Function, State, pull, require_kind, values
from partita.gradients.latents import Chain, Draws, OneHot, Relaxable

INSTEAD = "Reparameterization"


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
class GumbelSoftmax(Estimator):
    """Gradients through relaxed draws of all layers; f is asked at them.

    Arguments:
        temperature: tau.
    """

    unbiased = False
    relaxes = True
    surrogate_is_relaxed = True

    temperature: float = 0.5

    def __post_init__(self) -> None:
        check_real("GumbelSoftmax", "temperature", self.temperature, 0.0, open_low=True)

    def cost(self, layers: int = 1) -> int:
        return 1

    def estimate(
        self,
        q: Chain,
        f: Function,
        state: State,
        context: Tensor | None = None,
        *,
        generator: torch.Generator,
    ) -> Estimate:
        return through_draws(
            q, f, state, lambda layer, s: layer.soften(s, self.temperature), generator
        )


@dataclass(frozen=True)
class StraightThrough(Estimator):
    """Hard draws on the way forward, the slope of relaxed ones on the way back.

    Arguments:
        temperature: tau.
    """

    unbiased = False
    relaxes = True

    temperature: float = 0.5

    def __post_init__(self) -> None:
        check_real("StraightThrough", "temperature", self.temperature, 0.0, open_low=True)

    def cost(self, layers: int = 1) -> int:
        return 1

    def estimate(
        self,
        q: Chain,
        f: Function,
        state: State,
        context: Tensor | None = None,
        *,
        generator: torch.Generator,
    ) -> Estimate:
        def passed(layer: Relaxable, s: Tensor) -> Tensor:
            return layer.harden(s).detach() + pull(layer.soften(s, self.temperature))

        return through_draws(q, f, state, passed, generator)


def through_draws(
    q: Chain,
    f: Function,
    state: State,
    make: Callable[[Relaxable, Tensor], Tensor],
    generator: torch.Generator,
) -> Estimate:
    """Gradients through draws that ``make`` makes of a layer and its noisy scores."""
    draws: Draws = ()
    layers: list[Relaxable] = []
    for conditional in q:
        layer = conditional(draws)
        require_kind("a relaxation", [layer], Relaxable, INSTEAD)
        layers.append(layer)  # type: ignore[arg-type]
        draws = (*draws, make(layers[-1], layers[-1].scores(layers[-1].noise(generator))))
    value = values(f, draws, layers[0])
    return Estimate(value, value.detach(), value.new_zeros(()), state)


def relaxed_tail(q: Chain, draws: Draws, noise: Draws, tau: Tensor | float) -> Draws:
    """The layers after ``draws``, relaxed, from given noise for all layers; the result holds
    all.
    """
    for conditional, u in zip(q[len(draws) :], noise[len(draws) :], strict=True):
        layer = conditional(draws)
        require_kind("a relaxation", [layer], Relaxable, INSTEAD)
        draws = (*draws, layer.soften(layer.scores(u), tau))  # type: ignore[attr-defined]
    return draws
