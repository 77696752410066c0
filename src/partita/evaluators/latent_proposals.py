r"""What the draws of latent variables are taken from, and draws of their posterior on rows where
none is known.

.. math:: q_{\text{mix}}(z \mid x) = a\, q(z \mid x) + b\, p(z) + c\, r(z), \qquad a + b + c = 1
          (theory/latent_variables.md, eq. 41.16)

The prior bounds the weights from above and reaches all that is near in few dimensions; r stands
around the places of the posterior that restarts found. A posterior draw of a row is one of such a
mixture's draws, chosen by weight, and moved on by some Metropolis steps.

Letters: B rows, M latent values, k draws for each row, R posterior draws for each row.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from partita.core import rng
from partita.core.protocols import Capability
from partita.evaluators.latent_places import (
    MOST_DENSE,
    Joint,
    Normals,
    Products,
    find_places,
    flipped,
    slope,
)
from partita.models.directed.latent import draw_latent

SHARES = (0.4, 0.2, 0.4)  # of the encoder, the prior and the places
SHARES_WITHOUT_PLACES = (0.8, 0.2)
MOVES = 15  # Metropolis steps of a posterior draw
ACCEPTED = 0.57  # of the moves, to which their length is adapted in the first two thirds of them


@dataclass(frozen=True)
class Encoder:
    """q(z | x) of these rows."""

    model: Any
    x: Tensor

    @classmethod
    def of(cls, model: Any, x: Tensor, generator: torch.Generator) -> "Encoder":
        """Which needs no search."""
        return cls(model, x)

    def log_weights(self, k: int, generator: torch.Generator) -> Tensor:
        """Of k draws, ``(k, B)``, float64."""
        return self.model.log_weights(self.x, k, generator=generator).double()

    def log_weight(self, z: Tensor) -> Tensor:
        """At given values, ``(k, B, M) -> (k, B)``, float64."""
        terms = self.model.log_terms(self.x, z)
        return (terms.fit + terms.prior - terms.proposal).double()


@dataclass(frozen=True)
class Mixture:
    """The encoder, the prior and the places found, of these rows."""

    model: Any
    x: Tensor
    places: Normals | Products | None

    @classmethod
    def of(cls, model: Any, x: Tensor, generator: torch.Generator) -> "Mixture":
        """With places from restarts of their own."""
        return cls(model, x, find_places(model, x, generator))

    def draw(self, k: int, generator: torch.Generator) -> Tensor:
        """``(k, B, M)``, each from one of the parts."""
        parts = [
            draw_latent(self.model.posterior(self.x), k, generator),
            self.model.draw_prior(self.x, k, generator=generator),
        ]
        parts += [] if self.places is None else [self.places.draw(k, generator)]
        log_share = (
            torch.tensor(self._shares, device=self.x.device).log().expand(k, len(self.x), -1)
        )
        which = rng.categories(log_share, generator)[None, ..., None].expand(
            1, -1, -1, parts[0].shape[-1]
        )
        return torch.stack(parts).gather(0, which)[0].detach() * self.model.live(self.x)

    def log_weights(self, k: int, generator: torch.Generator) -> Tensor:
        return self.log_weight(self.draw(k, generator))

    def log_weight(self, z: Tensor) -> Tensor:
        terms = self.model.log_terms(self.x, z)
        parts = [terms.proposal, terms.prior] + (
            [] if self.places is None else [self.places.log_prob(z)]
        )
        mixed = torch.logsumexp(
            torch.stack(
                [
                    part.double() + math.log(share)
                    for part, share in zip(parts, self._shares, strict=True)
                ]
            ),
            0,
        )
        return (terms.fit + terms.prior).double() - mixed

    @property
    def _shares(self) -> tuple[float, ...]:
        return SHARES_WITHOUT_PLACES if self.places is None else SHARES


Proposal = Encoder | Mixture


@torch.no_grad()
def posterior_draws(model: Any, x: Tensor, r: int, k: int, generator: torch.Generator) -> Tensor:
    """R draws of p(z | x) for each row, as nearly as a search with k draws of its mixture finds
    them, ``(R, B, M)``.

    Along long sequences, whose places are too many to seek, by particle Gibbs.
    """
    if Capability.FILTERS in model.capabilities and model.live(x).shape[1] > MOST_DENSE:
        return model.draw_posterior(x, r, generator=generator)
    law = Mixture.of(model, x, generator)
    z = law.draw(k, generator)
    log_w = law.log_weight(z).nan_to_num(-math.inf)
    chosen = rng.categories(log_w.mT.expand(r, -1, -1), generator)
    spread, z = z.std(0), z[chosen, torch.arange(len(x), device=x.device)]

    def joint(at: Tensor) -> Tensor:
        terms = model.log_terms(x, at)
        return terms.fit + terms.prior

    if Capability.DISCRETE_LATENTS in model.capabilities:
        for _ in range(MOVES):
            z = flipped(joint, z, generator)
        return z
    root = law.places.root_at(z) if isinstance(law.places, Normals) else spread.expand_as(z)
    return _moved(joint, z, root, model.live(x), generator)


def _moved(
    joint: Joint, z: Tensor, root: Tensor, live: Tensor, generator: torch.Generator
) -> Tensor:
    """Langevin steps corrected by Metropolis, in the units of ``root`` (a matrix, or a deviation of
    each value, for every chain).
    """

    def times(v: Tensor, transposed: bool = False) -> Tensor:
        return (
            root * v
            if root.dim() == v.dim()
            else ((root.mT if transposed else root) @ v[..., None])[..., 0]
        )

    length = torch.full(z.shape[:-1], z.shape[-1] ** (-1 / 6), dtype=z.dtype, device=z.device)
    value, gradient = slope(joint, z)
    for step in range(MOVES):
        noise, half = rng.normal(z.shape, z, generator) * live, length[..., None] / 2
        drift = times(gradient * live, transposed=True)
        there = z + times(2 * half * noise + 2 * half.square() * drift)
        new, slope_there = slope(joint, there)
        back = noise + half * (drift + times(slope_there * live, transposed=True))
        log_odds = (new - value - (back.square() - noise.square()).sum(-1) / 2).nan_to_num(
            -math.inf
        )
        accept = rng.uniform(value.shape, value, generator).log() < log_odds
        z, gradient = (
            torch.where(accept[..., None], a, b) for a, b in ((there, z), (slope_there, gradient))
        )
        value = torch.where(accept, new, value)
        if step < 2 * MOVES // 3:
            length = length * torch.exp(0.5 * (log_odds.clamp_max(0).exp() - ACCEPTED))
    return z
