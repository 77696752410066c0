r"""Where the mass of a function lies, when neither rows nor a prior show it: a normal distribution
to begin at.

.. math:: m = \mathrm{E}[u], \qquad \Sigma_0 = \gamma\, \mathrm{Cov}[u]
          \qquad \text{over ensembles begun at the minima of } F \text{ and above them}
          (theory/evidence.md, eq. 60.3)

Points at distances from 0.01 to 1,000 go downhill. Around the minima they find, walkers are spread
along each axis until F has risen by half a nat, and they walk on as an ensemble. A second ensemble
begins where descents are not yet at the bottom, for the lowest point need not be where the mass is.
The reference only says where annealing begins: an answer that leans on it too much shows in its
verdict.

Letters: D coordinates.
"""

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.errors import Diverged, invalid
from partita.evaluators.partition.modes import descended, distinct, settle
from partita.models.energy.target import Target

DISTANCES = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)  # from zero, at which points begin
EACH = 24  # points at each distance
PLACES = 8  # minima that walkers begin at
STEPS_ALONG = 10.0 ** torch.arange(-5.0, 4.5, 0.5, dtype=torch.float64)  # along an axis
RISE = 0.5  # nats
DEEP = 20.0  # nats beyond D by which a minimum may lie above the lowest
RAYS = (1.0, 10.0, 100.0)  # times a lowest point, where the density must have fallen
LEAST_WALKERS, STEPS = 64, 60  # of the ensemble
HALFWAY = 10  # steps of a descent that does not go to the bottom: mass is where volume is, too
FALLING = 5.0  # nats by which a walker that has arrived may fall from one half to the other
WIDER = 2.0  # gamma: times the covariance, so that the reference covers what it was fitted to


@torch.no_grad()
def located(target: Target, generator: torch.Generator) -> Target:
    """A view of a target on real coordinates whose path begins around its mass."""
    starts = _starts(target, generator)
    lowest = _minima(target, [descended(target, group) for group in starts])
    _check_falls(target, lowest)
    halfway = torch.cat([descended(target, group, HALFWAY) for group in starts])
    walkers = max(LEAST_WALKERS, 4 * target.support.width)
    begun = [
        _around(target, lowest, walkers, generator),
        halfway[target.free_energy(halfway).argsort()[:walkers]],
    ]
    x = torch.cat([_walked(target, at, generator) for at in begun])
    floor = 1e-12 * x.var(0).mean().clamp_min(1e-24) * torch.eye(x.shape[1]).to(x)
    begun = target.beginning_at(x.mean(0), WIDER * torch.atleast_2d(x.mT.cov()) + floor)
    return begun.pointing_to(lowest)


def _starts(target: Target, generator: torch.Generator) -> list[Tensor]:
    """Groups of points at which the density is finite, those of one distance together."""
    rows = target.anchor_rows(EACH)
    groups = [] if rows is None else [rows]
    for distance in DISTANCES:
        u = rng.normal((EACH, target.support.width), target.like, generator)
        groups.append(distance * u)
    begun = [group[target.free_energy(group).isfinite()] for group in groups]
    if max(map(len, begun)) < 2:
        tries = sum(map(len, groups))
        raise invalid(
            "log_z",
            "log_density",
            "be finite somewhere near zero or near rows",
            f"minus infinity or NaN at {tries - sum(map(len, begun))} of {tries} points up to "
            f"{DISTANCES[-1]:g} away",
            "Give rows= from where it is finite, a prior, or an Interval support.",
        )
    return [group for group in begun if len(group) > 1]


def _check_falls(target: Target, minima: Tensor) -> None:
    """Refuse a density that rises on and on along the ray through a lowest point."""
    rays = torch.stack([times * minima for times in RAYS])  # (R, M, D)
    energy = target.free_energy(rays)
    falls_on = (energy.diff(dim=0) < 0).all(0) & minima.any(-1)
    if bool(falls_on.any()):
        ray = target.outer(rays[:, int(falls_on.nonzero()[0, 0])])
        near, far = ([float(f"{number:.3g}") for number in end[:8]] for end in (ray[0], ray[-1]))
        raise Diverged(
            "log_z: log_density must fall far out, else Z is infinite; it rises on and on from "
            f"{near} to {far}. Check its sign."
        )


def _minima(target: Target, found: list[Tensor]) -> Tensor:
    """Distinct minima, the deep ones."""
    x = torch.cat(found)
    energy = target.free_energy(x)
    deep = energy < energy.min() + DEEP + target.support.width
    x, energy = x[deep], energy[deep]
    apart = 1e-3 * float(x.std(0, correction=0).mean() + 1e-12)
    return distinct(x[energy.argsort()], apart)[:PLACES]


def _around(target: Target, minima: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Walkers spread about minima in turn."""
    which = torch.arange(n) % len(minima)
    place, scale = minima[which], torch.stack([_scales(target, at) for at in minima])[which]
    around = place + scale * rng.normal(place.shape, place, generator)
    return torch.where(target.free_energy(around).isfinite()[:, None], around, place)


def _walked(target: Target, x: Tensor, generator: torch.Generator) -> Tensor:
    """Where an ensemble came to: walkers that moved, and no longer fall."""
    kernel = capability.part_named("Ensemble")()
    first = settle(target, kernel, x, generator, STEPS)
    second = settle(target, kernel, first, generator, STEPS)
    fallen = target.free_energy(first) - target.free_energy(second)
    rested = (fallen < FALLING + target.support.width**0.5) & (second != first).any(-1)
    return torch.cat([first[rested], second[rested]])


def _scales(target: Target, at: Tensor) -> Tensor:
    """How far F rises by half a nat along each axis, ``(D,) -> (D,)``."""
    width = len(at)
    axes = torch.eye(width, dtype=at.dtype)[:, None] * STEPS_ALONG[:, None]  # (D, T, D)
    moved = torch.cat([at + axes, at - axes], 1)  # (D, 2 T, D)
    rise = target.free_energy(moved) - target.free_energy(at)
    higher = (rise.view(width, 2, -1).amin(1) > RISE).double()
    first = torch.where(higher.any(-1), higher.argmax(-1), len(STEPS_ALONG) - 1)
    return STEPS_ALONG[first]
