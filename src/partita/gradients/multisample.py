r"""Several draws for each row, each the others' baseline; and two draws from one noise.

.. math:: g = \frac1K \sum_k \Big(f(z_k) - \frac{1}{K-1} \sum_{j \ne k} f(z_j)\Big) s(z_k)
          (theory/gradients.md, eq. 40.9)

VIMCO (Mnih and Rezende 2016) does the same to the bound log (1/K) sum exp f(z_k); DisARM (Dong,
Mnih and Tucker 2020) averages what can be averaged over pairs drawn from u and 1 - u.

Letters: B rows, H units of a layer, K draws, L layers.
"""

import math
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import torch
from torch import Tensor

from partita.core.arguments import at_least
from partita.gradients.base import Estimate, Estimator, State, Target, pull, require_kind
from partita.gradients.latents import Bits, LatentLayer, ancestral, hardened
from partita.gradients.score_function import by_score

Samples: TypeAlias = Annotated[int, at_least(2)]


@dataclass(frozen=True)
class LeaveOneOut(Estimator):
    """K draws; the baseline of each is the mean of f at the others.

    Arguments:
        samples: K.
    """

    samples: Samples = 4

    def cost(self, layers: int = 1) -> int:
        return self.samples

    def estimate_of(self, target: Target, state: State) -> Estimate:
        drawn, value = target.draw((self.samples,))
        known = value.detach()
        # equals f minus the mean of the others
        signal = (known - known.mean(0)) * (self.samples / (self.samples - 1))
        return Estimate((value + by_score([signal] * len(target.q), drawn)).mean(0), state)


@dataclass(frozen=True)
class VIMCO(Estimator):
    """The gradient of the K-draw bound; each draw is judged by what the bound would be with the
    others' geometric mean in its place.

    Arguments:
        samples: K; its target is E[log (1/K) sum_k exp f(z_k)], not E[f].
    """

    samples: Samples = 4

    @property
    def bound(self) -> int:
        return self.samples

    def cost(self, layers: int = 1) -> int:
        return self.samples

    def estimate_of(self, target: Target, state: State) -> Estimate:
        drawn, value = target.draw((self.samples,))
        bound = log_mean_exp(value)
        signal = bound.detach() - log_mean_exp_without(value.detach())
        return Estimate(bound + by_score([signal] * len(target.q), drawn).sum(0), state)


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

    def estimate_of(self, target: Target, state: State) -> Estimate:
        (draws, layers, noise), own = target.noisy(_bits, hardened)
        seen, surrogate = [own], torch.zeros_like(own)
        for i, (layer, z, u) in enumerate(zip(layers, draws, noise, strict=True)):
            partner = hardened(layer, layer.scores(1 - u))
            after = ancestral(target.q, target.generator, before=(*draws[:i], partner))
            seen.append(target.f(after.draws))
            slope = pair_gradient(layer, z, partner, (own - seen[-1]).detach())
            surrogate = surrogate + pull(layer.total(slope * layer.logits))
        # each is f at an exact draw of all layers
        return Estimate(torch.stack(seen).mean(0) + surrogate, state)


def _bits(layer: LatentLayer) -> Bits:
    return require_kind("DisARM", layer, Bits, "LeaveOneOut or Rebar")


@torch.no_grad()
def pair_gradient(layer: Bits, z: Tensor, partner: Tensor, difference: Tensor) -> Tensor:
    """The gradient in the logits from f(z) - f(partner), ``(*, H), (*, H), (*) -> (*, H)``
    (theory/gradients.md, eq. 40.18).
    """
    return 0.5 * difference[..., None] * (z - partner) * torch.sigmoid(layer.logits.abs())
