r"""Several draws for each row, each the others' baseline; and two draws from one noise.

.. math:: g = \frac1K \sum_k \Big(f(z_k) - \frac{1}{K-1} \sum_{j \ne k} f(z_j)\Big) s(z_k)
          (theory/gradients.md, eq. 40.9)

VIMCO (Mnih and Rezende 2016) does the same to the bound log (1/K) sum exp f(z_k); DisARM (Dong,
Mnih and Tucker 2020) averages what can be averaged over pairs drawn from u and 1 - u.

Letters: B rows, H units of a layer, K draws, L layers.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from partita.core.checks import check_count
from partita.gradients.base import Estimate, Estimator, Function, State, pull, require_kind, values
from partita.gradients.latents import Bits, Chain, ancestral, continued
from partita.gradients.score_function import by_score


@dataclass(frozen=True)
class LeaveOneOut(Estimator):
    """K draws; the baseline of each is the mean of f at the others.

    Arguments:
        samples: K.
    """

    samples: int = 4

    def __post_init__(self) -> None:
        check_count("LeaveOneOut", "samples", self.samples, 2)

    def cost(self, layers: int = 1) -> int:
        return self.samples

    def estimate(
        self,
        q: Chain,
        f: Function,
        state: State,
        context: Tensor | None = None,
        *,
        generator: torch.Generator,
    ) -> Estimate:
        drawn = ancestral(q, generator, (self.samples,))
        value = values(f, drawn.draws, drawn.layers[0])
        known = value.detach()
        # equals f minus the mean of the others
        signal = (known - known.mean(0)) * (self.samples / (self.samples - 1))
        surrogate = (value + by_score([signal] * len(q), drawn)).mean(0)
        return Estimate(surrogate, known.mean(0), known.new_zeros(()), state)


@dataclass(frozen=True)
class VIMCO(Estimator):
    """The gradient of the K-draw bound; each draw is judged by what the bound would be with the
    others' geometric mean in its place.

    Arguments:
        samples: K; its target is E[log (1/K) sum_k exp f(z_k)], not E[f].
    """

    samples: int = 4

    def __post_init__(self) -> None:
        check_count("VIMCO", "samples", self.samples, 2)

    @property
    def bound(self) -> int:
        return self.samples

    def cost(self, layers: int = 1) -> int:
        return self.samples

    def estimate(
        self,
        q: Chain,
        f: Function,
        state: State,
        context: Tensor | None = None,
        *,
        generator: torch.Generator,
    ) -> Estimate:
        drawn = ancestral(q, generator, (self.samples,))
        value = values(f, drawn.draws, drawn.layers[0])
        bound = log_mean_exp(value)
        signal = bound.detach() - log_mean_exp_without(value.detach())
        surrogate = bound + by_score([signal] * len(q), drawn).sum(0)
        return Estimate(surrogate, bound.detach(), bound.new_zeros(()), state)


def log_mean_exp(f: Tensor) -> Tensor:
    """log (1/K) sum_k exp f_k, ``(K, *) -> (*)``."""
    return torch.logsumexp(f, 0) - math.log(len(f))


def log_mean_exp_without(f: Tensor) -> Tensor:
    """The same with each f_k in turn replaced by the mean of the others, ``(K, *) -> (K, *)``
    (theory/gradients.md, eq. 40.19).
    """
    K = len(f)
    others = (f.sum(0) - f) / (K - 1)
    own = torch.eye(K, dtype=torch.bool, device=f.device).view(K, K, *[1] * (f.dim() - 1))
    swapped = torch.where(own, others[:, None], f[None])
    return torch.logsumexp(swapped, 1) - math.log(K)


@dataclass(frozen=True)
class DisARM(Estimator):
    """For bits: a draw and its antithetic partner, whose difference of f says where to go; only
    units that differ learn.
    """

    def cost(self, layers: int = 1) -> int:
        return 1 + layers

    def estimate(
        self,
        q: Chain,
        f: Function,
        state: State,
        context: Tensor | None = None,
        *,
        generator: torch.Generator,
    ) -> Estimate:
        draws, layers, partners = (), [], []
        for conditional in q:
            layer = require_kind("DisARM", conditional(draws), Bits, "LeaveOneOut or Rebar")
            u = layer.noise(generator)
            layers.append(layer)
            partners.append(layer.harden(layer.scores(1 - u)).detach())
            draws = (*draws, layer.harden(layer.scores(u)).detach())
        own = values(f, draws, layers[0])
        seen, surrogate = [own], torch.zeros_like(own)
        for i, layer in enumerate(layers):
            seen.append(f(continued(q, (*draws[:i], partners[i]), generator).draws))
            slope = pair_gradient(layer, draws[i], partners[i], (own - seen[-1]).detach())
            surrogate = surrogate + pull(layer.total(slope * layer.logits))
        value = torch.stack(seen).mean(0)  # each is f at an exact draw of all layers
        return Estimate(value + surrogate, value.detach(), value.new_zeros(()), state)


@torch.no_grad()
def pair_gradient(layer: Bits, z: Tensor, partner: Tensor, difference: Tensor) -> Tensor:
    """The gradient in the logits from f(z) - f(partner), ``(*, H), (*, H), (*) -> (*, H)``
    (theory/gradients.md, eq. 40.18).
    """
    return 0.5 * difference[..., None] * (z - partner) * torch.sigmoid(layer.logits.abs())
