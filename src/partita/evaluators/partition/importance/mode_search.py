r"""Modes of a density on real coordinates, with few evaluations, and what they hold by Laplace.

.. math:: \log Z_A \approx -F(x_A) + \tfrac D2 \log 2 \pi - \tfrac12 \log \det \nabla^2 F(x_A)
          (theory/scoring.md, eq. 5.32)

Letters: n states, D coordinates, M modes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from partita.core import rng
from partita.evaluators.partition.importance.ascent import STEPS, climbed
from partita.evaluators.partition.importance.counted_density import CountedDensity

SAME, ALIKE = 1.0, 0.5  # deviations and nats within which two modes are one
TWICE = 2  # how often each mode must have been found
LEVEL = 0.3  # deviations to which an ascent must have come of a maximum to count as one
COUNTS = 7.0  # nats below the heaviest at which a mode need not have been found twice
WALKS, TRIES = 30, 4  # of a search without slopes: rounds, and proposals of each state
AT_ONCE = 32  # ascents, after the first


@dataclass(frozen=True)
class Modes:
    """Maxima with covariances from the bend there and the mass that Laplace gives them."""

    x: Tensor  # (M, D)
    log_f: Tensor  # (M,)
    covariance: Tensor  # (M, D, D)

    @property
    def log_mass(self) -> Tensor:
        """``(M,)``."""
        D = self.x.shape[-1]
        return self.log_f + 0.5 * (D * math.log(2 * math.pi) + torch.logdet(self.covariance))

    def distances(self, x: Tensor) -> Tensor:
        """Deviations of each mode between it and a state, ``(D,) -> (M,)``."""
        away = (x - self.x)[..., None]
        return (away * torch.linalg.solve(self.covariance, away)).sum((-2, -1)).sqrt()

    def like(self, x: Tensor, log_f: Tensor) -> int | None:
        """The mode that a maximum is; None where it is new."""
        same = (self.distances(x) < SAME) & ((self.log_f - log_f).abs() < ALIKE)
        return int(same.nonzero()[0, 0]) if bool(same.any()) else None

    def converged(self, slopes: Tensor) -> Tensor:
        """Whether slopes of log f ``(M, D)`` vanish, in deviations of each mode."""
        rise = (slopes[..., None] * (self.covariance @ slopes[..., None])).sum((-2, -1))
        return rise.sqrt() < LEVEL

    def and_also(self, other: "Modes") -> "Modes":
        """These and others."""
        return Modes(
            torch.cat([self.x, other.x]),
            torch.cat([self.log_f, other.log_f]),
            torch.cat([self.covariance, other.covariance]),
        )


def walked(
    value: Callable[[Tensor], Tensor], x: Tensor, spread: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Higher states near ``x`` ``(n, D)`` and their values, by random steps of a size that every
    state finds for itself; no slopes.
    """
    here, size = value(x), torch.ones_like(x[:, :1])
    for _ in range(WALKS):
        step = rng.normal((TRIES, *x.shape), x, generator) @ spread.mT
        trials = x + size * step / math.sqrt(x.shape[1])
        values = value(trials.flatten(0, 1)).view(TRIES, len(x))
        top, which = values.max(0)
        better = top > here
        x = torch.where(better[:, None], trials[which, torch.arange(len(x))], x)
        here = torch.where(better, top, here)
        size = torch.where(better[:, None], 1.5 * size, 0.6 * size).clamp(1e-4, 10.0)
    return x, here


def modes_near(
    density: CountedDensity, starts: Tensor, scale: Tensor, least: int, most: int
) -> tuple[Modes | None, int]:
    """Modes found by ascent from the starts, ``least`` of them and until each that may count was
    found twice, while evaluations are fewer than ``most``; and how many of those were found once:
    where none was, few are left to be found.
    """
    modes: Modes | None = None
    found: list[int] = []
    begun = 0
    while begun < len(starts) and (begun < least or modes is None or _lone(modes, found)):
        room = (most - density.count) // (2 * STEPS)  # each step costs a value and a slope
        part = starts[begun:][: min(room, max(least - begun, AT_ONCE))]
        if not len(part):
            break
        begun += len(part)
        for x, log_f in zip(*climbed(density.slope, part, scale), strict=True):
            which = None if modes is None else modes.like(x, log_f)
            if which is not None:
                found[which] += 1
            elif math.isfinite(float(log_f)):
                new = Modes(x[None], log_f[None], bounded(density.curvature(x), scale)[None])
                modes = new if modes is None else modes.and_also(new)
                at_rest = new.converged(density.slope(x[None])[1])
                found.append(1 if bool(at_rest) else TWICE)
    return modes, 0 if modes is None else _lone(modes, found)


def _lone(modes: Modes, found: list[int]) -> int:
    """How many modes that may count were found only once."""
    mass = modes.log_mass
    counts = (mass > mass.max() - COUNTS).tolist()
    return sum(times < TWICE for times, heavy in zip(found, counts, strict=True) if heavy)


def bounded(bend: Tensor | None, scale: Tensor) -> Tensor:
    """The covariance that a bend ``(D, D)`` gives, no wider than ``scale`` in any direction."""
    if bend is None:
        return torch.diag(scale.square())
    unit = scale[:, None] * bend * scale
    values, vectors = torch.linalg.eigh(0.5 * (unit + unit.mT))
    inside = (vectors / values.clamp(1.0, 1e24)) @ vectors.mT
    return scale[:, None] * inside * scale
