r"""Does Z exist, and how much of it lies farther out than any chain went?

.. math:: a(u) = \frac{d F(r u)}{d \log r}, \qquad
          \int_R^\infty r^{k-1} e^{-F(r u)}\, dr < \infty \iff a(u) > k
          (theory/scoring.md, eq. 5.25)

along rays u that fill a cone of k dimensions: all of space for random directions, a line for an
axis along which F is flat. A chain that moves by local steps from a normal reference never sees a
tail that falls like a power, nor that there is no end to it; far points do.

A tail in no direction that is known beforehand is followed: the least energy on spheres of growing
radius, from many directions. Along such a ridge its width counts as well,

.. math:: a = \frac{d}{d \log r} \Big[ F + \tfrac12 \log \det \nabla_\perp^2 F \Big] > 1
          (theory/scoring.md, eq. 5.28)

Letters: D coordinates, k dimensions of a cone, n rays.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.core import rng
from partita.core.protocols import EnergyModel, in_double
from partita.core.quantity import Quantity, worst
from partita.core.support import Real
from partita.diagnostics.weights import verdict_on_unseen
from partita.errors import Diverged
from partita.integration.differences import central_bend, central_slope

GONE = 1e4  # nats below its middle at which nothing of a density is left
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
MOST_BENT = 64  # coordinates up to which second derivatives give axes and ridges are followed
# radii at which ridges are followed, from which on light tails are left, steps at each
FOLLOWED, ENOUGH, TURNS = (3.0, 10.0, 30.0, 1e2, 1e3, *RADII), 1e3, 40
WIDE = 10.0  # over the square of the distance, a bend below which a ridge is a sheet or a cone
STARTS, RIDGES = 32, 16  # far chains and random rays that are followed; ridges that are looked at
ALIKE = 1e-3  # between the directions of two ridges
# the same without a gradient, and the step of differences in the reference's deviations
FEW_STARTS, FEW_TURNS, STEP = 8, 20, 1e-4
KEY = 1213

Energy = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Scaled:
    """The energy of a model about a center, in deviations of its reference; infinite where it is
    not a number.
    """

    model: EnergyModel
    center: Tensor  # (D,)
    scale: Tensor  # (D,)

    @property
    def differentiable(self) -> bool:
        return self.model.differentiable

    def __call__(self, t: Tensor) -> Tensor:
        values = self.model.free_energy(self.center + self.scale * t.reshape(-1, t.shape[-1]))
        return torch.nan_to_num(values.double(), math.inf, math.inf, -math.inf).view(t.shape[:-1])


class Cone(NamedTuple):
    """Rays that fill k dimensions, and those dimensions."""

    rays: Tensor  # (n, D), of length one
    axes: Tensor  # (k, D), orthogonal


def check_integral(owner: str, model: EnergyModel) -> None:
    """Refuse a model on real coordinates whose Z is plainly infinite."""
    if isinstance(model.support, Real):
        tails_beyond(owner, model, reference_draws(model))


def reach_to_tails(owner: str, q: Quantity, model: EnergyModel, x: Tensor) -> Quantity:
    """The quantity with an upper end that holds what may lie farther out than chains at ``x``
    went; as it is where tails are light.
    """
    if not isinstance(model.support, Real):
        return q
    tails = tails_beyond(owner, model, x)
    high = float(np.logaddexp.reduce([q.high, q.value + tails.log_share, tails.log_mass]))
    return replace(
        q,
        high=high,
        verdict=worst(q.verdict, verdict_on_unseen(high - q.high)),
        details={**q.details, "tails": high - q.high},
    )


class Tails(NamedTuple):
    """What lies farther out than chains went: in cones, as a share of the mass within, and on
    ridges; minus infinity where tails are light.
    """

    log_share: float
    log_mass: float


@torch.no_grad()
def tails_beyond(owner: str, model: EnergyModel, x: Tensor) -> Tails:
    """The mass farther out than nearly all of ``x``, ``(N, D)``; refused where it has no end."""
    double = in_double(model)
    x, draws = x.double(), reference_draws(double)
    scale = draws.std(0)
    center = x.median(0).values + ASIDE * (draws[0] - draws[1])

    energy = Scaled(double, center, scale)
    t = (x - center) / scale
    shares = [-math.inf]
    try:
        for frame in _frames(energy, t):
            lines = []
            for cone in _cones(energy, frame):
                check_fall(owner, model, energy, cone)
                share = log_share_beyond(energy, cone, t)
                (lines if len(cone.axes) == 1 else shares).append(share)
            shares.append(_log_sum(lines))
        mass = log_ridge_mass(owner, model, energy, t) + float(scale.log().sum())
    except RuntimeError:  # a network that cannot be called in float64, or has no second slopes
        return Tails(max(shares), -math.inf)
    return Tails(max(shares), mass)


def _log_sum(logs: list[float]) -> float:
    """log of a sum; minus infinity of nothing."""
    return float(torch.logsumexp(torch.tensor([-math.inf, *logs], dtype=torch.float64), 0))


def _frames(energy: Energy, t: Tensor) -> Iterator[Tensor]:
    """Sets of axes along which a density may be flat, ``(D, D)``: coordinates, the directions in
    which F bends at the center, and those in which chains spread.
    """
    D = t.shape[1]
    yield torch.eye(D, dtype=t.dtype, device=t.device)
    if 1 < D <= MOST_BENT:
        yield torch.linalg.eigh(_bend(energy, torch.zeros_like(t[0]))).eigenvectors.mT
        if len(t) > D:
            yield torch.linalg.svd(t, full_matrices=False).Vh


def _differentiable(energy: Energy) -> bool:
    return getattr(energy, "differentiable", True)


def _bend(energy: Energy, at: Tensor) -> Tensor:
    """Second derivatives at a point ``(D,)``, zero where there are none: by differences where
    autograd finds none, whose steps keep rounding small beside the bend of a sheet, 1 / r^2.
    """
    if _differentiable(energy):
        bend = torch.autograd.functional.hessian(lambda x: energy(x[None])[0], at)
        return torch.nan_to_num(torch.as_tensor(bend), 0.0, 0.0, 0.0)
    height = torch.nan_to_num(energy(at[None])[0], 0.0, 0.0, 0.0).abs()
    rounding = (400 * torch.finfo(at.dtype).eps * (1 + height)).sqrt()
    h = (at.norm() * rounding).clamp_min(STEP).expand_as(at)
    return torch.nan_to_num(central_bend(energy, at, h), 0.0, 0.0, 0.0)


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


class Ridges(NamedTuple):
    """Where tails are heavy: n ridges of least energy, at each of R radii."""

    u: Tensor  # (R, n, D), of length one

    def profile(self, energy: Energy) -> tuple[Tensor, Tensor]:
        """F + half the log determinant of its bends across, ``(R, n)``, and whether each ridge is
        narrow far out, ``(n,)``; none is wider than its distance.
        """
        D = self.u.shape[-1]
        values, narrow = torch.empty(self.u.shape[:2]).to(self.u), torch.ones(self.u.shape[1])
        for i, r in enumerate(FOLLOWED):
            for j, u in enumerate(self.u[i]):
                across = torch.linalg.svd(u[None]).Vh[1:]
                bends = torch.linalg.eigvalsh(across @ _bend(energy, r * u) @ across.mT)
                values[i, j] = 0.5 * bends.clamp_min(r**-2).log().sum()
                narrow[j] *= r < ENOUGH or float(bends.min()) > WIDE / r**2
        lengths = torch.tensor(FOLLOWED).to(self.u)[:, None, None]
        constant = 0.5 * (D - 1) * math.log(2 * math.pi)
        return energy(lengths * self.u) + values - constant, narrow > 0


def log_ridge_mass(owner: str, model: EnergyModel, energy: Energy, t: Tensor) -> float:
    """log of the mass on ridges farther out than nearly all of ``t``; refused where it has no
    end.
    """
    ridges = _followed(energy, t)
    if not ridges.u.shape[1]:
        return -math.inf
    values, narrow = ridges.profile(energy)
    log_r = torch.tensor(FOLLOWED).to(values).log()[:, None]
    falls = (values.diff(dim=0) / log_r.diff(dim=0))[-2:].amax(0)  # (n,)
    if float(falls.min()) <= 1 + SLACK:
        raise _endless(owner, model, "along a ridge", 1, float(falls.min()))
    ahead = (t @ ridges.u[-1].mT).topk(min(FARTHEST, len(t)), 0).values[-1]  # (n,)
    reached = ahead.clamp(FOLLOWED[0], RADII[-2]).log()
    grid = torch.linspace(0, 1, GRID).to(values)[:, None]
    at = reached + grid * (log_r[-1] - reached)  # (GRID, n), of log r
    above = torch.searchsorted(log_r[:, 0].contiguous(), at).clamp(1, len(log_r) - 1)
    share = (at - log_r[above - 1, 0]) / (log_r[above, 0] - log_r[above - 1, 0])
    height = torch.lerp(values.gather(0, above - 1), values.gather(0, above), share)
    step = ((log_r[-1] - reached) / (GRID - 1)).log()
    near = torch.logsumexp(at - height, 0) + step
    rest = log_r[-1] - values[-1] - (falls - 1).log()
    masses = torch.logaddexp(near, rest)
    wide = float(masses[~narrow].max()) if bool((~narrow).any()) else -math.inf
    return _log_sum([*masses[narrow].tolist(), wide])


def _followed(energy: Energy, t: Tensor) -> Ridges:
    """Ridges as found from axes, from far states ``t`` and from random rays."""
    D = t.shape[1]
    if not 1 < D <= MOST_BENT:
        return Ridges(t.new_empty(len(FOLLOWED), 0, D))
    starts = STARTS if _differentiable(energy) else FEW_STARTS
    noise = rng.normal((starts, D), torch.zeros((), dtype=torch.float64), rng.keyed(KEY, 0)).to(t)
    far = t[t.norm(dim=-1).topk(min(starts, len(t))).indices]
    frames = list(_frames(energy, t))
    u = torch.cat([noise, far, *frames, *(-frame for frame in frames)])
    places: list[Tensor] = []  # of least energy, at each radius
    for i, r in enumerate(FOLLOWED):
        u = _turned(energy, u, r)
        places.append(u)
        if r >= ENOUGH:
            fall = energy(r * u) - energy(FOLLOWED[i - 1] * places[i - 1])
            fall = fall / math.log(r / FOLLOWED[i - 1])
            heavy = torch.isfinite(fall) & (fall < 10 * HEAVY)
            u, places = u[heavy], [place[heavy] for place in places]
        if not len(u):
            return Ridges(t.new_empty(len(FOLLOWED), 0, D))
    apart: list[int] = []
    for i in energy(FOLLOWED[-1] * u).argsort().tolist():
        if all(float((u[i] - u[j]).norm()) > ALIKE for j in apart) and len(apart) < RIDGES:
            apart.append(i)
    return Ridges(torch.stack(places)[:, apart])


def _turned(energy: Energy, u: Tensor, r: float) -> Tensor:
    """Rays ``(n, D)`` turned to where the energy is less on the sphere of radius r."""
    leaf = (u / u.norm(dim=-1, keepdim=True).clamp_min(1e-300)).detach().requires_grad_()
    optimizer = torch.optim.Rprop([leaf], lr=0.1 / r, step_sizes=(1e-9 / r, 1.0))

    def height(ray: Tensor) -> Tensor:
        return energy(r * ray / ray.norm(dim=-1, keepdim=True))

    autograd = _differentiable(energy)
    for _ in range(TURNS if autograd else FEW_TURNS):
        if autograd:
            with torch.enable_grad():
                (slope,) = torch.autograd.grad(height(leaf).sum(), leaf)
        else:
            slope = central_slope(height, leaf, leaf.new_full(leaf.shape[1:], STEP / r))
        leaf.grad = torch.nan_to_num(slope, 0.0, 0.0, 0.0)
        optimizer.step()
    return (leaf / leaf.norm(dim=-1, keepdim=True)).detach()


def exponents(energy: Energy, rays: Tensor) -> Tensor:
    """a between each two of the far radii, ``(*, D) -> (*, 2)``; infinite where the density is
    zero, or has fallen so far that a nat is less than the rounding of F.
    """
    radii = torch.tensor(RADII, dtype=rays.dtype, device=rays.device)
    values = energy(radii[:, None] * rays[..., None, :])  # (*, 3)
    fall = values.diff(dim=-1) / radii.log().diff()
    risen = values - energy(torch.zeros_like(rays))[..., None] > GONE
    rounded = torch.finfo(values.dtype).eps * values.abs() > 1
    return torch.where((risen & rounded)[..., 1:], math.inf, fall)


def check_fall(owner: str, model: EnergyModel, energy: Energy, cone: Cone) -> None:
    """Refuse a density that falls too slowly in a cone to have an integral."""
    k = len(cone.axes)
    slowest = exponents(energy, cone.rays).amax(-1).min()
    if float(slowest) <= k + SLACK:
        D = cone.axes.shape[1]
        where = "far out" if k == D else f"along {k} of {D} directions"
        raise _endless(owner, model, where, k, float(slowest))


def _endless(owner: str, model: EnergyModel, where: str, k: int, fall: float) -> Diverged:
    return Diverged(
        f"{owner}: exp(-F) of {model.title()} must fall faster than 1 / r^{k} {where}, else Z is "
        f"infinite; it falls like 1 / r^{fall:.2f}. Let the energy rise faster."
    )


def log_share_beyond(energy: Energy, cone: Cone, t: Tensor) -> float:
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
