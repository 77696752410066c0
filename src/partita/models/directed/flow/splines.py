r"""Monotone rational-quadratic splines, the identity outside [-b, b] (Gregory and Delbourgo 1982;
Durkan et al. 2019).

.. math:: y(\xi) = y_k + \frac{h_k\, [s_k \xi^2 + d_k\, \xi (1 - \xi)]}{s_k + (d_{k+1} + d_k - 2
          s_k)\, \xi (1 - \xi)}, \qquad
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
    """Splines, ``(*, K + 1, n)`` knots and slopes for n values, ``(*, n)``; a last size of one is a
    spline that all values share.
    """

    x: Tensor
    y: Tensor
    slope: Tensor


def parameters_per_coordinate(bins: int) -> int:
    """Widths, heights, and slopes at the inner knots."""
    return 3 * bins - 1


def knots(raw: Tensor, bins: int, bound: float) -> Knots:
    """Knots from unconstrained numbers, ``(*, 3 K - 1, n)``; all zeros give the identity."""
    sizes, slopes = raw.split([2 * bins, bins - 1], -2)
    slope = functional.pad(
        LEAST_SLOPE + functional.softplus(slopes + UNIT_SLOPE), (0, 0, 1, 1), value=1.0
    )
    x, y = _ends(sizes.unflatten(-2, (2, bins)), bound).unbind(-3)
    return Knots(x, y, slope)


def _ends(raw: Tensor, bound: float) -> Tensor:
    """Ends of bins that fill [-b, b], from unconstrained sizes: a softmax and its running sum in
    one, ``(*, K, n) -> (*, K + 1, n)``.
    """
    bins = raw.shape[-2]
    upto = functional.pad(
        (raw - raw.detach().amax(-2, keepdim=True)).exp().cumsum(-2), (0, 0, 1, 0)
    )
    count = torch.arange(bins + 1, dtype=raw.dtype, device=raw.device)[:, None]
    least = count * (2 * bound * LEAST_BIN) - bound
    return torch.addcmul(least, upto, 2 * bound * (1 - LEAST_BIN * bins) / upto[..., -1:, :])


def spline(x: Tensor, at: Knots) -> tuple[Tensor, Tensor]:
    """y(x) and log dy/dx, ``(*, n)``; every sum in them is one of positive terms but that for the
    curve.
    """
    inside, x0, w, y0, h, d0, d1 = _bin(x, at.x, at)
    s, xi = h / w, torch.where(inside, (x - x0) / w, 0.5)
    room = xi * (1 - xi)
    bottom = torch.addcmul(s, (d0 + d1).sub(s, alpha=2), room)
    y = torch.addcdiv(y0, h * torch.addcmul(d0 * room, s * xi, xi), bottom)
    top = torch.addcmul(torch.addcmul(2 * s * room, d1 * xi, xi), d0, (1 - xi).square())
    return torch.where(inside, y, x), torch.where(inside, (top * (s / bottom).square()).log(), 0.0)


def inverse_spline(y: Tensor, at: Knots) -> Tensor:
    """x(y), ``(*, n)``: the root of the quadratic a xi^2 + b xi = c in its stable form."""
    inside, x0, w, y0, h, d0, d1 = _bin(y, at.y, at)
    s, above = h / w, torch.where(inside, y - y0, 0.5 * h)
    bent = above * (d0 + d1).sub(s, alpha=2)
    a, b, c = torch.addcmul(bent, h, s - d0), h * d0 - bent, s * above
    xi = 2 * c / (b + torch.addcmul(b * b, a, c, value=4).clamp_min(0).sqrt())
    return torch.where(inside, torch.addcmul(x0, xi, w), y)


def _bin(value: Tensor, ends: Tensor, at: Knots) -> tuple[Tensor, ...]:
    """Whether each value is inside, and the start and size of its bin in x and y with the slopes at
    its ends.
    """
    inside = (value > ends[..., 0, :]) & (value < ends[..., -1, :])
    index = (value.unsqueeze(-2) >= ends[..., 1:-1, :]).sum(-2, keepdim=True)
    both = torch.cat([index, index + 1], -2)
    (x0, x1), (y0, y1), (d0, d1) = (
        knot.expand(*knot.shape[:-1], value.shape[-1]).gather(-2, both).unbind(-2) for knot in at
    )
    return inside, x0, x1 - x0, y0, y1 - y0, d0, d1
