r"""Places of the posterior of each row, sought by restarts: where log p(x, z) is highest, and how
fast it falls from there.

.. math:: r(z) = \sum_s \pi_s\, N(z; m_s, \Lambda_s^{-1}), \qquad \Lambda_s = -\nabla^2 \log p(x,
          m_s), \quad
          \pi_s \propto \big( p(x, m_s)\, |\Lambda_s|^{-1/2} \big)^{1/2}
          (theory/latent_variables.md, eq. 41.17)

Starts are the best of some draws of the encoder and, as far apart as they can be had, good draws of
the prior. Real values climb by gradients, bits by flips that gradients choose; around each place of
bits stands the product of its single flips.

Letters: B rows, M latent values, S places for each row, k draws.
"""

import math
from collections.abc import Callable
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
