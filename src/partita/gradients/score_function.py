r"""The score function, and gradients from it: REINFORCE with no baseline, a constant one, or the
average of earlier values.

.. math:: \nabla_\varphi E_q[f(z)] = E_q\big[(f(z) - c)\, s(z)\big], \qquad s(z) = \nabla_\varphi
          \log q_\varphi(z), \quad E_q[s] = 0, \quad
          \mathrm{Var}[s] = I(\varphi)          (theory/gradients.md, eq. 40.2, 40.3)

A constant c costs no bias; the best one is known in closed form,

.. math:: c^* = \frac{\mathrm{Cov}(f s, s)}{\mathrm{Var}(s)} = \frac{E[f s^2]}{E[s^2]}
          (theory/gradients.md, eq. 40.8)
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from partita.core.arguments import FiniteFloat, Share
from partita.gradients.base import Estimate, Estimator, State, Target, pull
from partita.gradients.latents import Ancestral, LatentLayer, Relaxable


def score_moments(log_q: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (zero) and covariance (the Fisher information) of the score, by a sum over all states:
    ``(S), (S, P) -> (P), (P, P)``.
    """
    p = torch.exp(log_q)
    mean = p @ score
    return mean, score.mT @ (p[:, None] * score) - torch.outer(mean, mean)


def optimal_constants(log_q: Tensor, score: Tensor, f: Tensor) -> Tensor:
    """c* of every coordinate of the score, by a sum over all states, ``(S), (S, P), (S) -> (P)``
    (theory/gradients.md, eq. 40.8).
    """
    weight = torch.exp(log_q)[:, None] * score.square()
    return (weight * f[:, None]).sum(0) / weight.sum(0)


def optimal_constant(log_q: Tensor, score: Tensor, f: Tensor) -> Tensor:
    """The one constant that makes the sum of the coordinates' variances smallest, ``(S), (S, P),
    (S) -> ()``.
    """
    weight = torch.exp(log_q) * score.square().sum(1)
    return weight @ f / weight.sum()


class ScoreFunction(Estimator):
    """(f - baseline) times the score, from one draw; subclasses say what the baseline is."""

    @abstractmethod
    def baselines(self, state: State) -> Tensor:
        """One number for each layer, ``(L)``, from earlier draws only."""

    def estimate_of(self, target: Target, state: State) -> Estimate:
        drawn, value = target.draw()
        signals = [value.detach() - c for c in self.baselines(state)]
        after = self.following(state, value.detach(), drawn)
        return Estimate(value + by_score(signals, drawn), after)

    def following(self, state: State, value: Tensor, drawn: Ancestral) -> State:
        """The state after these draws; unchanged by default."""
        return state


def by_score(signals: Sequence[Tensor], drawn: Ancestral) -> Tensor:
    """Zeros that carry the sum over layers of signal times score, ``(*)``."""
    terms = [
        signal.detach() * pull(layer.log_prob(z))
        for signal, layer, z in zip(signals, drawn.layers, drawn.draws, strict=True)
    ]
    return torch.stack(terms).sum(0)


@dataclass(frozen=True)
class Reinforce(ScoreFunction):
    """f times the score: for any q and any f, and noisy; f + c has another variance."""

    def baselines(self, state: State) -> Tensor:
        return torch.zeros_like(state.running[:, 0])


@dataclass(frozen=True)
class MovingAverage(ScoreFunction):
    """The baseline is an exponentially fading average of f at earlier draws.

    Arguments:
        decay: Share of the average that is kept at each call.
    """

    averages = 2

    decay: Share = 0.9

    def baselines(self, state: State) -> Tensor:
        return fading_ratio(state)

    def following(self, state: State, value: Tensor, drawn: Ancestral) -> State:
        return faded(state, [value] * len(drawn.draws), self.decay)


@dataclass(frozen=True)
class OptimalConstant(ScoreFunction):
    """The baseline is c*: given, or the ratio of fading averages of f s^2 and s^2 over earlier
    draws.

    Arguments:
        c: The constant, where it is known (:func:`optimal_constant`).
        decay: Share of the averages that is kept at each call.
    """

    averages = 2

    c: FiniteFloat | None = None
    decay: Share = 0.99

    def baselines(self, state: State) -> Tensor:
        if self.c is None:
            return fading_ratio(state)
        return torch.full_like(state.running[:, 0], self.c)

    def following(self, state: State, value: Tensor, drawn: Ancestral) -> State:
        if self.c is not None:
            return state
        pairs = zip(drawn.layers, drawn.draws, strict=True)
        sizes = [_squared_score(layer, z, value) for layer, z in pairs]
        return faded(state, [value] * len(sizes), self.decay, sizes)


def fading_ratio(state: State) -> Tensor:
    """The weighted mean that :func:`faded` keeps, ``(L)``; zero before anything was seen."""
    return state.running[:, 0] / state.running[:, 1].clamp_min(1e-12)


def faded(
    state: State, values: Sequence[Tensor], decay: float, weights: Sequence[Tensor] | None = None
) -> State:
    """The state with the mean of each layer's values, and of their weights, taken into its fading
    sums.
    """
    weights = [torch.ones_like(value) for value in values] if weights is None else weights
    pairs = zip(weights, values, strict=True)
    seen = [torch.stack([(w * value).mean(), w.mean()]) for w, value in pairs]
    return state._replace(running=torch.lerp(torch.stack(seen), state.running, decay))


@torch.no_grad()
def _squared_score(layer: LatentLayer, z: Tensor, value: Tensor) -> Tensor:
    """Squared length of the score in the logits of each row; one for latents without logits, which
    makes the baseline E[f].
    """
    if not isinstance(layer, Relaxable):
        return torch.ones_like(value)
    return layer.total(layer.score(z).square())
