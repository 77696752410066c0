r"""Control variates: subtract what is known to have mean zero and moves along.

.. math:: Z = V - \alpha (W - \mu), \qquad \alpha^* = \frac{\mathrm{Cov}(V, W)}{\mathrm{Var}(W)},
          \qquad
          \mathrm{Var}_{\min}(Z) = \mathrm{Var}(V) - \frac{\mathrm{Cov}^2(V, W)}{\mathrm{Var}(W)}
          (theory/gradients.md, eq. 40.6)

For the score function W is a baseline times the score: learned from the context (NVIL, Mnih and
Gregor 2014), or the first-order Taylor expansion of f at the mean (MuProp, Gu et al. 2016).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from partita.core.arguments import PositiveInt, Share
from partita.gradients.base import (
    Estimate,
    Estimator,
    State,
    Target,
    context_widths,
    pull,
    require_kind,
)
from partita.gradients.latents import Draws, LatentLayer, Relaxable, ancestral
from partita.gradients.score_function import by_score, faded, fading_ratio
from partita.nets.mlp import MLP


def best_coefficients(v: Tensor, w: Tensor) -> Tensor:
    r"""alpha* of several control variates at once, :math:`\mathrm{Cov}(W)^{-1} \mathrm{Cov}(W, V)`,
    from draws: ``(N), (N, M) -> (M)``.
    """
    w = w - w.mean(0)
    return torch.linalg.lstsq(w, (v - v.mean())[:, None]).solution[:, 0]


def controlled(v: Tensor, w: Tensor, mu: Tensor, alpha: Tensor) -> Tensor:
    """V - alpha' (W - mu), ``(N), (N, M), (M), (M) -> (N)``."""
    return v - (w - mu) @ alpha


class Baselines(nn.Module):
    """One perceptron for each layer, from what the layer depends on to a guess of f."""

    def __init__(self, inputs: Sequence[int], hidden: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.nets = nn.ModuleList()
        for width in inputs:
            widths = (hidden,) if width > 1 else ()
            self.nets.append(MLP(width, 1, widths=widths, activation="tanh", generator=generator))

    def forward(self, contexts: Sequence[Tensor]) -> list[Tensor]:
        return [net(context)[..., 0] for net, context in zip(self.nets, contexts, strict=True)]


@dataclass(frozen=True)
class NVIL(Estimator):
    """A baseline learned by least squares from the context and the layers before, on the scale of f
    by fading averages.

    Arguments:
        hidden: Units of the baseline's one hidden layer.
        normalize: Divide the signal by its deviation where that is above one; steadier steps, and a
            rescaled gradient, so a biased one.
        decay: Share of the fading averages that is kept at each call.
    """

    averages = 4

    hidden: PositiveInt = 100
    normalize: bool = True
    decay: Share = 0.8

    @property
    def unbiased(self) -> bool:
        return not self.normalize

    def init(
        self, widths: Sequence[int], context: int = 0, *, like: Tensor, generator: torch.Generator
    ) -> State:
        inputs = context_widths(widths, context)
        module = Baselines(inputs, self.hidden, generator=generator).to(like)
        return State(module, like.new_zeros(len(widths), self.averages))

    def estimate_of(self, target: Target, state: State) -> Estimate:
        drawn, value = target.draw()
        known = value.detach()
        contexts = [target.context_of(drawn.draws[:i], known) for i in range(len(target.q))]
        guesses = torch.stack(state.module(contexts))  # (L, *)
        mean, deviation, noise = _scales(state, known)
        left = known - mean - deviation * guesses.detach()
        signals = left / (noise.clamp_min(1.0) if self.normalize else 1.0)
        state = self._following(state, known.flatten(), left.flatten(1))
        # of these draws too: no bias comes of it, for only the baselines learn from it
        mean, deviation, _ = _scales(state, known)
        extra = ((known - mean) / deviation - guesses).square().mean()
        return Estimate(value + by_score(list(signals), drawn), state, extra)

    def _following(self, state: State, value: Tensor, left: Tensor) -> State:
        """Fading sums of f, f^2, what the baselines left squared, and one, ``(L, 4)``."""
        one = torch.ones_like(left[:, 0])
        seen = torch.stack(
            [one * value.mean(), one * value.square().mean(), left.square().mean(1), one], -1
        )
        return state._replace(running=torch.lerp(seen, state.running, self.decay))


def _scales(state: State, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and deviation of f, and the deviation of what its baseline left, ``(L, *)``; zero and
    one before anything was seen.
    """
    total, squares, rest, weight = (
        column.view(-1, *[1] * like.dim()) for column in state.running.unbind(-1)
    )
    known = weight > 0
    weight = torch.where(known, weight, 1.0)
    mean = total / weight
    deviation = (squares / weight - mean.square()).clamp_min(1e-6).sqrt()
    return mean, torch.where(known, deviation, 1.0), torch.where(known, (rest / weight).sqrt(), 1.0)


@dataclass(frozen=True)
class MuProp(Estimator):
    """f minus its Taylor expansion at the mean, times the score; what was taken away comes back
    without noise.

    Arguments:
        decay: Share that is kept, at each call, of the fading mean of what the expansion left,
            which is taken away too.
    """

    relaxes = True
    averages = 2

    decay: Share = 0.9

    def cost(self, layers: int = 1) -> int:
        return 1 + layers

    def estimate_of(self, target: Target, state: State) -> Estimate:
        drawn = ancestral(target.q, target.generator)
        layers = [_relaxable(layer) for layer in drawn.layers]
        surrogate = target.values(drawn.draws, layers[0])
        known, left = surrogate.detach(), []
        for i, layer in enumerate(layers):
            at_mean, slope = mean_field_expansion(target, drawn.draws[:i], layer)
            away = drawn.draws[i] - layer.mean.detach()
            left.append(known - at_mean - layer.total(slope * away))
            surrogate = surrogate + pull(layer.total(slope * layer.mean))
        signals = [rest - c for rest, c in zip(left, fading_ratio(state), strict=True)]
        return Estimate(surrogate + by_score(signals, drawn), faded(state, left, self.decay))


def _relaxable(layer: LatentLayer) -> Relaxable:
    return require_kind("MuProp", layer, Relaxable, "NVIL or LeaveOneOut")


def mean_field_expansion(target: Target, before: Draws, layer: Relaxable) -> tuple[Tensor, Tensor]:
    """f and its slope in this layer at its mean, the layers after it at theirs, ``(*), (*, H)``
    (theory/gradients.md, eq. 40.11).
    """
    at = layer.mean.detach().requires_grad_()
    draws: Draws = (*before, at)
    for conditional in target.q[len(draws) :]:
        draws = (*draws, _relaxable(conditional(draws)).mean)
    value = target.f(draws)
    (slope,) = torch.autograd.grad(value.sum(), at)
    return value.detach(), slope
