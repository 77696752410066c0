r"""What the draws of latent variables are taken from, and draws of their posterior on rows where
none is known.

.. math:: q_{\text{mix}}(z \mid x) = a\, q(z \mid x) + b\, p(z) + c\, r(z), \qquad a + b + c = 1
          (theory/latent_variables.md, eq. 41.16)

The prior bounds the weights from above and reaches all that is near in few dimensions; r stands
around the places where log p(x, z) is highest, which restarts find, as wide as it falls from there:

.. math:: r(z) = \sum_s \pi_s\, N(z; m_s, \Lambda_s^{-1}), \qquad \Lambda_s = -\nabla^2 \log p(x,
          m_s), \quad
          \pi_s \propto \big( p(x, m_s)\, |\Lambda_s|^{-1/2} \big)^{1/2}
          (theory/latent_variables.md, eq. 41.17)

Restarts begin at the best of some draws of the encoder and, as far apart as they can be had, good
draws of the prior. Real values climb by gradients, bits by flips that gradients choose; around each
place of bits stands the product of its single flips. A posterior draw of a row is one of such a
mixture's draws, chosen by weight, and moved on by some Metropolis steps.

Letters: B rows, M latent values, S places for each row, k draws for each row, R posterior draws for
each row.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from partita.core import rng
from partita.core.protocols import Capability
from partita.models.directed.latent import draw_latent

RESTARTS = 4  # S: one from the encoder, the others from the prior
CANDIDATES = 24  # draws of the prior, of which the better half may be a start
CLIMB = 40  # steps
RATE = 0.2  # of the first step, in units of the prior
MOST_DENSE = 64  # latent values up to which all second derivatives, or all flips, are taken
LEAST_PRECISION = 0.25
WIDER = 1.15  # than the curvature says, so that tails are reached
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
Joint = Callable[[Tensor], Tensor]  # (k, B, M) -> (k, B)

SHARES = (0.4, 0.2, 0.4)  # of the encoder, the prior and the places
SHARES_WITHOUT_PLACES = (0.8, 0.2)
MOVES = 15  # Metropolis steps of a posterior draw
ACCEPTED = 0.57  # of the moves, to which their length is adapted in the first two thirds of them


class Normals(NamedTuple):
    """Normal laws around S places of each row; values that do not count are zero."""

    place: Tensor  # (S, B, M)
    root: Tensor  # (S, B, M, M): the place plus root @ noise is a draw
    inverse: Tensor  # (S, B, M, M)
    log_share: Tensor  # (S, B)
    live: Tensor  # (B, M)

    def draw(self, k: int, generator: torch.Generator) -> Tensor:
        s = rng.categories(self.log_share.mT.expand(k, -1, -1), generator)
        rows = torch.arange(len(self.live), device=self.live.device)
        noise = rng.normal((k, *self.live.shape), self.place, generator) * self.live
        return self.place[s, rows] + (self.root[s, rows] @ noise[..., None])[..., 0]

    def log_prob(self, z: Tensor) -> Tensor:
        """``(k, B, M) -> (k, B)``, over the values that count."""
        far = torch.einsum("sbij,ksbj->ksbi", self.inverse, z[:, None] - self.place)
        log_root = (self.root.diagonal(dim1=-2, dim2=-1).log() * self.live).sum(-1)
        each = -0.5 * far.square().sum(-1) - log_root - self.live.sum(-1) * HALF_LOG_2PI
        return torch.logsumexp(each + self.log_share, 1)

    def root_at(self, z: Tensor) -> Tensor:
        """The root of the place that is nearest to each value, ``(k, B, M, M)``."""
        far = (
            torch.einsum("sbij,ksbj->ksbi", self.inverse, z[:, None] - self.place).square().sum(-1)
        )
        return self.root[far.argmin(1), torch.arange(z.shape[1], device=z.device)]


class Products(NamedTuple):
    """Independent bits around S places of each row."""

    logits: Tensor  # (S, B, M)
    log_share: Tensor  # (S, B)

    def draw(self, k: int, generator: torch.Generator) -> Tensor:
        s = rng.categories(self.log_share.mT.expand(k, -1, -1), generator)
        rows = torch.arange(self.logits.shape[1])
        return rng.bernoulli(torch.sigmoid(self.logits[s, rows.to(s.device)]), generator)

    def log_prob(self, z: Tensor) -> Tensor:
        each = (z[:, None] * self.logits - functional.softplus(self.logits)).sum(-1)
        return torch.logsumexp(each + self.log_share, 1)


def find_places(model: Any, x: Tensor, generator: torch.Generator) -> Normals | Products | None:
    """Places for each row ``(B, D)``; None where there are too many real values for their
    curvature.
    """
    live = model.live(x)
    if Capability.DISCRETE_LATENTS in model.capabilities:
        return _around_bits(_joint(model, x), starts(model, x, live, generator), generator)
    if live.shape[1] > MOST_DENSE:
        return None
    return _around_values(_joint(model, x), starts(model, x, live, generator), live)


def _joint(model: Any, x: Tensor) -> Joint:
    def joint(z: Tensor) -> Tensor:
        terms = model.log_terms(x, z)
        return terms.fit + terms.prior

    return joint


def slope(joint: Joint, z: Tensor) -> tuple[Tensor, Tensor]:
    """log p(x, z) and its gradient in z, which is zero wherever it is no number."""
    with torch.enable_grad():
        at = z.detach().requires_grad_()
        value = joint(at)
        return value.detach(), torch.autograd.grad(value.sum(), at)[0].nan_to_num(0.0, 0.0, 0.0)


def starts(model: Any, x: Tensor, live: Tensor, generator: torch.Generator) -> Tensor:
    """The best of some draws of the encoder, then the prior's better draws, each the farthest from
    those chosen, ``(S, B, M)``.
    """
    joint, rows = _joint(model, x), torch.arange(len(x), device=x.device)
    near = draw_latent(model.posterior(x), CANDIDATES // 3, generator).detach() * live
    far = model.draw_prior(x, CANDIDATES, generator=generator) * live
    better = joint(far).nan_to_num(-math.inf).argsort(0, descending=True)[: CANDIDATES // 2]
    far, chosen = far[better, rows], [near[joint(near).nan_to_num(-math.inf).argmax(0), rows]]
    while len(chosen) < RESTARTS:
        away = (far[:, None] - torch.stack(chosen)).square().sum(-1).min(1).values
        chosen.append(far[away.argmax(0), rows])
    return torch.stack(chosen)


def _around_values(joint: Joint, z: Tensor, live: Tensor) -> Normals:
    """Climb by Adam's steps, and by one of Newton's at the end; the curvature there, made positive,
    is the precision.
    """
    first, second = torch.zeros_like(z), torch.zeros_like(z)
    for step in range(1, CLIMB + 1):
        g = slope(joint, z)[1] * live
        first, second = first.lerp(g, 0.2), second.lerp(g.square(), 0.05)
        rate = RATE * (1 - (step - 1) / CLIMB) / (1 - 0.8**step)
        z = z + rate * first / ((second / (1 - 0.95**step)).sqrt() + 1e-8)
    value, gradient, curvature = _curvature(joint, z, live)
    found, axes = torch.linalg.eigh(curvature)
    found = found.abs().clamp_min(LEAST_PRECISION)
    newton = z + ((axes / found[..., None, :]) @ axes.mT @ (gradient * live)[..., None])[..., 0]
    higher = joint(newton)
    z = torch.where((higher > value)[..., None], newton, z)
    value = torch.maximum(value, higher.nan_to_num(-math.inf))
    root = torch.linalg.cholesky((axes * (WIDER**2 / found)[..., None, :]) @ axes.mT)
    eye = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device).expand_as(root)
    mass = value + root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return Normals(
        z,
        root,
        torch.linalg.solve_triangular(root, eye, upper=False),
        torch.log_softmax(mass / 2, 0),
        live,
    )


def _curvature(joint: Joint, z: Tensor, live: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log p(x, z), its gradient and minus its second derivatives ``(S, B, M, M)``; one on the
    diagonal of values that do not count.
    """
    with torch.enable_grad():
        at = z.detach().requires_grad_()
        value = joint(at)
        gradient = torch.autograd.grad(value.sum(), at, create_graph=True)[0]
        last = at.shape[-1] - 1
        columns = [
            torch.autograd.grad(
                gradient[..., i].sum(), at, retain_graph=i < last, materialize_grads=True
            )[0]
            for i in range(last + 1)
        ]
    found = -torch.stack(columns, -1).nan_to_num(0.0, 0.0, 0.0)
    both = (live[:, :, None] & live[:, None, :]).expand_as(found)
    eye = torch.eye(last + 1, dtype=z.dtype, device=z.device)
    return (
        value.detach(),
        gradient.detach().nan_to_num(0.0, 0.0, 0.0),
        torch.where(both, (found + found.mT) / 2, eye),
    )


def _around_bits(joint: Joint, z: Tensor, generator: torch.Generator) -> Products:
    """Climb by flips that are drawn by their gradients, and keep the best state; every flip from
    there gives its bit's log-odds.
    """
    best, highest = z, joint(z)
    for _ in range(CLIMB):
        z = flipped(joint, z, generator)
        value = joint(z)
        best = torch.where((value > highest)[..., None], z, best)
        highest = torch.maximum(value, highest)
    signs, width = 2 * best - 1, z.shape[-1]
    if width <= MOST_DENSE:
        flips = [
            joint((best - eye).abs()) for eye in torch.eye(width, dtype=z.dtype, device=z.device)
        ]
        odds = signs * (highest - torch.stack(flips)).movedim(0, -1)
    else:
        odds = slope(joint, best)[1]
    most = max(3.0, math.log(4 * width))
    logits = (odds / WIDER).clamp(-most, most)
    mass = highest - (best * logits - functional.softplus(logits)).sum(-1)
    return Products(logits, torch.log_softmax(mass / 2, 0))


def flipped(joint: Joint, z: Tensor, generator: torch.Generator) -> Tensor:
    """One Metropolis step of bits: the bit is drawn by what its gradient says of a flip (Grathwohl
    et al. 2021).
    """
    value, gradient = slope(joint, z)
    here = torch.log_softmax((1 - 2 * z) * gradient / 2, -1)
    bit = functional.one_hot(rng.categories(here, generator), z.shape[-1]).to(z)
    other = (z - bit).abs()
    new, gradient = slope(joint, other)
    there = torch.log_softmax((1 - 2 * other) * gradient / 2, -1)
    log_odds = new - value + ((there - here) * bit).sum(-1)
    return torch.where(
        (rng.uniform(value.shape, value, generator).log() < log_odds)[..., None], other, z
    )


@dataclass(frozen=True)
class FromEncoder:
    """q(z | x) of these rows."""

    model: Any
    x: Tensor

    @classmethod
    def of(cls, model: Any, x: Tensor, generator: torch.Generator) -> "FromEncoder":
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
class FromMixture:
    """The encoder, the prior and the places found, of these rows."""

    model: Any
    x: Tensor
    places: Normals | Products | None

    @classmethod
    def of(cls, model: Any, x: Tensor, generator: torch.Generator) -> "FromMixture":
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


Proposal = FromEncoder | FromMixture


@torch.no_grad()
def posterior_draws(model: Any, x: Tensor, r: int, k: int, generator: torch.Generator) -> Tensor:
    """R draws of p(z | x) for each row, as nearly as a search with k draws of its mixture finds
    them, ``(R, B, M)``.

    Along long sequences, whose places are too many to seek, by particle Gibbs.
    """
    if Capability.FILTERS in model.capabilities and model.live(x).shape[1] > MOST_DENSE:
        return model.draw_posterior(x, r, generator=generator)
    law = FromMixture.of(model, x, generator)
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
