r"""Does Z exist, and how much of it lies farther out than any chain went?

.. math:: a(u) = \frac{d F(r u)}{d \log r}, \qquad
          \int_R^\infty r^{k-1} e^{-F(r u)}\, dr < \infty \iff a(u) > k
          (theory/scoring.md, eq. 5.25)

along rays u that fill a cone of k dimensions: all of space for random directions, a line for an
axis along which F is flat. A chain that moves by local steps from a normal reference never sees a
tail that falls like a power, nor that there is no end to it; far points do.

Letters: D coordinates, k dimensions of a cone, n rays.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.core import rng
from partita.core.annealed import in_double
from partita.core.protocols import EnergyModel
from partita.core.quantity import Quantity, worst
from partita.core.support import Real
from partita.diagnostics.weights import verdict_on_unseen
from partita.errors import Diverged

RADII = (1e4, 1e5, 1e6)  # in deviations of the reference, between which a is measured
SLACK = 0.01  # by which a must be above k; rounding of F at the largest radius
HEAVY = 100.0  # a of a tail that falls faster holds nothing that chains would miss
RAYS = 32  # in each cone
DRAWS = 256  # of the reference, that say what is far
# of the reference's deviations, by which rays pass the center: on a ridge whose width shrinks the
# density is flat, and its integral finite
ASIDE = 0.01
FARTHEST = 3  # chains that lie beyond what counts as reached
GRID = 400  # radii of an integral along a ray
MOST_BENT = 64  # coordinates up to which second derivatives give axes
KEY = 1213

Energy = Callable[[Tensor], Tensor]


class Cone(NamedTuple):
    """Rays that fill k dimensions, and those dimensions."""

    rays: Tensor  # (n, D), of length one
    axes: Tensor  # (k, D), orthogonal


def check_integral(owner: str, model: EnergyModel) -> None:
    """Refuse a model on real coordinates whose Z is plainly infinite."""
    if isinstance(model.support, Real):
        log_tail_share(owner, model, reference_draws(model))


def reach_to_tails(owner: str, q: Quantity, model: EnergyModel, x: Tensor) -> Quantity:
    """The quantity with an upper end that holds what may lie farther out than chains at ``x``
    went; as it is where tails are light.
    """
    if not isinstance(model.support, Real):
        return q
    high = float(np.logaddexp(q.high, q.value + log_tail_share(owner, model, x)))
    return replace(
        q,
        high=high,
        verdict=worst(q.verdict, verdict_on_unseen(high - q.high)),
        details={**q.details, "tails": high - q.high},
    )


@torch.no_grad()
def log_tail_share(owner: str, model: EnergyModel, x: Tensor) -> float:
    """log of the mass farther out than nearly all of ``x``, ``(N, D)``, as a share of the mass
    inside; minus infinity where tails are light.
    """
    double = in_double(model)
    x, draws = x.double(), reference_draws(double)
    scale = draws.std(0)
    center = x.median(0).values + ASIDE * (draws[0] - draws[1])

    def energy(t: Tensor) -> Tensor:
        values = double.free_energy(center + scale * t.reshape(-1, t.shape[-1]))
        return torch.nan_to_num(values.double(), math.inf, math.inf, -math.inf).view(t.shape[:-1])

    t = (x - center) / scale
    shares = [-math.inf]
    try:
        for frame in _frames(energy, t):
            lines = []
            for cone in _cones(energy, frame):
                _check_fall(owner, model, energy, cone)
                share = _log_share_beyond(energy, cone, t)
                (lines if len(cone.axes) == 1 else shares).append(share)
            shares.append(float(np.logaddexp.reduce([-math.inf, *lines])))
    except RuntimeError:  # a network that cannot be called in float64
        return -math.inf
    return max(shares)


def _frames(energy: Energy, t: Tensor) -> Iterator[Tensor]:
    """Sets of axes along which a density may be flat, ``(D, D)``: coordinates, the directions in
    which F bends at the center, and those in which chains spread.
    """
    D = t.shape[1]
    yield torch.eye(D, dtype=t.dtype, device=t.device)
    if 1 < D <= MOST_BENT:
        bend = torch.autograd.functional.hessian(
            lambda at: energy(at[None])[0], torch.zeros_like(t[0])
        )
        yield torch.linalg.eigh(
            torch.nan_to_num(torch.as_tensor(bend), 0.0, 0.0, 0.0)
        ).eigenvectors.mT
        if len(t) > D:
            yield torch.linalg.svd(t, full_matrices=False).Vh


def _cones(energy: Energy, frame: Tensor) -> Iterator[Cone]:
    """The lines along heavy-tailed axes, what the flattest two of them span, three, and so on; and
    all of space.
    """
    D = len(frame)
    sides = torch.stack([frame, -frame])
    falls = exponents(energy, sides)[..., -1]  # (2, D)
    order = falls.amin(0).argsort()
    heavy = int((falls.amin(0) < HEAVY).sum())
    frame = torch.where((falls[1] < falls[0])[:, None], -frame, frame)[order]
    for axis in frame[:heavy, None]:
        yield Cone(torch.cat([axis, -axis]), axis)
    for k in {*range(2, heavy + 1), *((D,) if D > 1 else ())}:
        noise = torch.zeros((), dtype=torch.float64)
        u = rng.normal((RAYS, k), noise, rng.keyed(KEY, k)).to(frame)
        u = torch.cat([u[::2], u[1::2].abs()])  # half of them on the flatter side of every axis
        yield Cone((u / u.norm(dim=-1, keepdim=True)) @ frame[:k], frame[:k])


def exponents(energy: Energy, rays: Tensor) -> Tensor:
    """a between each two of the far radii, ``(*, D) -> (*, 2)``; infinite where the density is
    zero.
    """
    radii = torch.tensor(RADII, dtype=rays.dtype, device=rays.device)
    values = energy(radii[:, None] * rays[..., None, :])  # (*, 3)
    fall = values.diff(dim=-1) / radii.log().diff()
    return torch.where(values[..., 1:] == math.inf, math.inf, fall)


def _check_fall(owner: str, model: EnergyModel, energy: Energy, cone: Cone) -> None:
    k = len(cone.axes)
    slowest = exponents(energy, cone.rays).amax(-1).min()
    if float(slowest) <= k + SLACK:
        D = cone.axes.shape[1]
        where = "far out" if k == D else f"along {k} of {D} directions"
        raise Diverged(
            f"{owner}: exp(-F) of {model.title()} must fall faster than 1 / r^{k} {where}, else Z "
            f"is infinite; it falls like 1 / r^{float(slowest):.2f}. Let the energy rise faster."
        )


def _log_share_beyond(energy: Energy, cone: Cone, t: Tensor) -> float:
    """log of the mass in a cone beyond the radius that few of the states ``t`` exceed, over the
    mass within it.
    """
    k = len(cone.axes)
    fall = exponents(energy, cone.rays)[:, -1]
    heavy = fall < HEAVY
    if not bool(heavy.any()):
        return -math.inf
    reached = (t @ cone.axes.mT).norm(dim=-1).topk(min(FARTHEST, len(t))).values[-1]
    reached = float(reached.clamp(1e-3, RADII[-2]))
    inner, outer = (
        torch.logspace(math.log10(a), math.log10(b), GRID, dtype=t.dtype, device=t.device)
        for a, b in ((1e-3 * reached, reached), (reached, RADII[-1]))
    )
    inside, outside = (
        torch.logsumexp(k * r.log() - energy(r[:, None] * cone.rays[:, None]), -1)
        + (r[1] / r[0]).log().log()
        for r in (inner, outer)
    )
    rest = k * math.log(RADII[-1]) - energy(RADII[-1] * cone.rays) - (fall - k).log()
    beyond = torch.logsumexp(torch.cat([outside, rest[heavy]]), 0)
    return float(beyond - torch.logsumexp(inside, 0))


def reference_draws(model: EnergyModel) -> Tensor:
    """Always the same draws of the reference, ``(256, D)``."""
    generator = torch.Generator(model.like.device).manual_seed(KEY)
    return model.reference().draw(DRAWS, generator=generator)
