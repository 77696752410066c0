r"""Maxima by ascent from many states at once, each with its own BFGS.

.. math:: H \leftarrow (I - \rho s y^\top) H (I - \rho y s^\top) + \rho s s^\top, \qquad
          s = x' - x, \quad y = g - g', \quad \rho = 1 / s^\top y

A step is accepted where it rises as its slope promises and the slope has fallen there; else its
length is bisected, or doubled (Lewis and Overton 2013).

Letters: n states, D coordinates.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Climb = Callable[[Tensor], tuple[Tensor, Tensor]]  # value and slope, (n, D) -> (n,), (n, D)

STEPS, TRIALS = 60, 2  # steps of one ascent at most, and trials for each on average
FIRST_STEP = 0.1  # of the scale, that an ascent begins with
RISE, LEFT = 1e-4, 0.9  # of the promised rise that there must be, of the slope that may be left
AT_REST, SHORTEST = 1e-3, 1e-12  # slope and step that end an ascent, in first steps


def climbed(function: Climb, x: Tensor, scale: Tensor, steps: int = STEPS) -> tuple[Tensor, Tensor]:
    """A maximum near each state ``(n, D)`` and the value there; steps are measured in ``scale``
    ``(D,)``, and states without density stay where they are.
    """
    unit = FIRST_STEP * scale

    def seen(at: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = function(at)
        slope = torch.where(torch.isfinite(at), slope * unit, 0.0)
        return torch.nan_to_num(value, -math.inf, -math.inf, -math.inf), slope

    climbers = _Climbers.at(x, *seen(x))
    for _ in range(TRIALS * steps):
        (on,) = climbers.rising(steps).nonzero(as_tuple=True)
        if not len(on):
            break
        step = climbers.length[on, None] * climbers.way[on]
        there = climbers.x[on] + unit * step
        climbers.tried(on, step, there, *seen(there))
    return climbers.best_x, climbers.best


@dataclass
class _Climbers:
    """States on their way up. ``length`` is the next to be tried along ``way``, between ``short``,
    where the slope was still steep, and ``long``, where too little was gained.
    """

    x: Tensor  # (n, D)
    value: Tensor  # (n,)
    slope: Tensor  # (n, D)
    bend: Tensor  # (n, D, D), the inverse of the second derivatives, as far as it is known
    way: Tensor  # (n, D)
    length: Tensor  # (n,)
    short: Tensor  # (n,)
    long: Tensor  # (n,)
    taken: Tensor  # (n,), steps
    best_x: Tensor  # (n, D)
    best: Tensor  # (n,)

    @classmethod
    def at(cls, x: Tensor, value: Tensor, slope: Tensor) -> "_Climbers":
        """Before their first steps, none of which is longer than the unit."""
        none = torch.zeros_like(value)
        bend = torch.eye(x.shape[1], dtype=x.dtype, device=x.device).repeat(len(x), 1, 1)
        way = slope / slope.norm(dim=-1, keepdim=True).clamp_min(1.0)
        far = torch.full_like(value, math.inf)
        return cls(x.clone(), value, slope, bend, way, none + 1, none, far, none.clone(), x, value)

    def rising(self, steps: int) -> Tensor:
        """Which of them go on, ``(n,)``."""
        steep = self.slope.abs().amax(-1) > AT_REST
        moves = self.length * self.way.norm(dim=-1) > SHORTEST
        return torch.isfinite(self.value) & steep & moves & (self.taken < steps)

    def tried(self, on: Tensor, step: Tensor, x: Tensor, value: Tensor, slope: Tensor) -> None:
        """Take those steps of the states ``on`` that went well; set the length of the others
        anew.
        """
        higher = value > self.best[on]
        self.best_x = self.best_x.index_put((on[higher],), x[higher])
        self.best = self.best.index_put((on[higher],), value[higher])
        promised, left = (self.slope[on] * step).sum(-1), (slope * step).sum(-1)
        gained, settled = value >= self.value[on] + RISE * promised, left <= LEFT * promised
        self.long[on] = torch.where(gained, self.long[on], self.length[on])
        self.short[on] = torch.where(gained, self.length[on], self.short[on])
        bracketed = torch.isfinite(self.long[on])
        middle = 0.5 * (self.short[on] + self.long[on])
        self.length[on] = torch.where(bracketed, middle, 2 * self.length[on])
        well = gained & settled
        self._take(on[well], step[well], x[well], value[well], slope[well])

    def _take(self, on: Tensor, s: Tensor, x: Tensor, value: Tensor, slope: Tensor) -> None:
        y = self.slope[on] - slope
        along = (s * y).sum(-1)
        first = (self.taken[on] == 0)[:, None, None]
        size = (along / y.square().sum(-1))[:, None, None]
        self.bend[on] = torch.where(first, size, 1.0) * self.bend[on]
        rho = 1 / along[:, None, None]
        turn = (
            torch.eye(s.shape[1], dtype=s.dtype, device=s.device) - rho * s[:, :, None] * y[:, None]
        )
        self.bend[on] = turn @ self.bend[on] @ turn.mT + rho * s[:, :, None] * s[:, None]
        self.x[on], self.value[on], self.slope[on] = x, value, slope
        way = (self.bend[on] @ slope[..., None])[..., 0]
        self.way[on] = torch.where((way * slope).sum(-1, keepdim=True) > 0, way, slope)
        self.length[on], self.short[on], self.long[on] = 1.0, 0.0, math.inf
        self.taken[on] += 1
