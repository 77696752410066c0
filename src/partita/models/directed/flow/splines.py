r"""Monotone rational-quadratic splines, the identity outside [-b, b] (Gregory and Delbourgo 1982; Durkan et al. 2019).

.. math:: y(\xi) = y_k + \frac{h_k\, [s_k \xi^2 + d_k\, \xi (1 - \xi)]}{s_k + (d_{k+1} + d_k - 2 s_k)\, \xi (1 - \xi)}, \qquad
          s_k = h_k / w_k          (theory/flows.md, eq. 14.8)

Letters: K bins, b bound, w widths, h heights, d slopes at the knots, xi place within a bin.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

LEAST_BIN = 1e-3  # share of the interval that each bin keeps
MOST_BINS = 500  # so that half of it is left to be learned
LEAST_SLOPE = 1e-3
UNIT_SLOPE = math.log(math.expm1(1 - LEAST_SLOPE))  # where softplus makes a slope of one


class Knots(NamedTuple):
    """Splines, ``(*, K + 1)`` knots and slopes; each is applied to n values, ``(*, n)``."""

    x: Tensor
    y: Tensor
    slope: Tensor


def parameters_per_coordinate(bins: int) -> int:
    """Widths, heights, and slopes at the inner knots."""
    return 3 * bins - 1


def knots(raw: Tensor, bins: int, bound: float) -> Knots:
    """Knots from unconstrained numbers, ``(*, 3 K - 1)``; all zeros give the identity."""
    sizes, slopes = raw.split([2 * bins, bins - 1], -1)
    slope = functional.pad(LEAST_SLOPE + functional.softplus(slopes + UNIT_SLOPE), (1, 1), value=1.0)
    x, y = _ends(sizes.unflatten(-1, (2, bins)), bound).unbind(-2)
    return Knots(x, y, slope)


def _ends(raw: Tensor, bound: float) -> Tensor:
    """Ends of bins that fill [-b, b], from unconstrained sizes: a softmax and its running sum in one, ``(*, K) -> (*, K + 1)``."""
    bins = raw.shape[-1]
    upto = functional.pad((raw - raw.amax(-1, keepdim=True).detach()).exp().cumsum(-1), (1, 0))
    least = torch.arange(bins + 1, dtype=raw.dtype, device=raw.device) * (2 * bound * LEAST_BIN) - bound
    return torch.addcmul(least, upto, 2 * bound * (1 - LEAST_BIN * bins) / upto[..., -1:])


def spline(x: Tensor, at: Knots) -> tuple[Tensor, Tensor]:
    """y(x) and log dy/dx, ``(*, n)``."""
    inside, x0, w, y0, h, d0, d1 = _bin(x, at.x, at)
    s = h / w
    xi = torch.where(inside, (x - x0) / w, 0.5)
    room = xi * (1 - xi)
    bottom = s + (d0 + d1 - 2 * s) * room
    y = y0 + h * (s * xi * xi + d0 * room) / bottom
    slope = s * s * (d1 * xi * xi + 2 * s * room + d0 * (1 - xi).square()) / bottom.square()
    return torch.where(inside, y, x), torch.where(inside, slope.log(), 0.0)


def inverse_spline(y: Tensor, at: Knots) -> tuple[Tensor, Tensor]:
    """x(y) and log dx/dy: the root of a quadratic in its stable form."""
    inside, x0, w, y0, h, d0, d1 = _bin(y, at.y, at)
    s, above = h / w, torch.where(inside, y - y0, 0.5 * h)
    curve = d0 + d1 - 2 * s
    a = h * (s - d0) + above * curve
    b = h * d0 - above * curve
    c = -s * above
    xi = 2 * c / (-b - (b * b - 4 * a * c).clamp_min(0).sqrt())
    room = xi * (1 - xi)
    bottom = s + curve * room
    slope = s * s * (d1 * xi * xi + 2 * s * room + d0 * (1 - xi).square()) / bottom.square()
    return torch.where(inside, x0 + xi * w, y), torch.where(inside, -slope.log(), 0.0)


def _bin(value: Tensor, ends: Tensor, at: Knots) -> tuple[Tensor, ...]:
    """Whether each value is inside, and the start and size of its bin in x and y with the slopes at its ends."""
    inside = (value > ends[..., :1]) & (value < ends[..., -1:])
    index = torch.searchsorted(ends[..., 1:-1].detach().contiguous(), value.detach().contiguous(), right=True)
    both = torch.cat([index, index + 1], -1)
    (x0, x1), (y0, y1), (d0, d1) = (knot.gather(-1, both).chunk(2, -1) for knot in (at.x, at.y, at.slope))
    return inside, x0, x1 - x0, y0, y1 - y0, d0, d1
