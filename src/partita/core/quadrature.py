r"""Integrals over a few real coordinates, by the midpoint rule on a box that holds all of the mass.

.. math:: Z = \int e^{-F(x)}\, dx \approx \Delta \sum_{j} e^{-F(x_j)}, \qquad x_j = l + (j + s) \odot \delta, \quad
          \Delta = \textstyle\prod_i \delta_i          (theory/scoring.md, eq. 5.10)

For a smooth density that has fallen off at the edges the error falls faster than any power of the spacing delta; with a random shift s
the sum is unbiased.

Letters: D coordinates, n cells of each.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from partita.core.errors import Diverged

CHUNK = 1 << 17  # points at once
DROP = 36.0  # nats below the top at which a density counts as fallen off: rounding of float64
COARSE = {1: 400, 2: 96, 3: 40}  # cells of each coordinate on the first grid
GROWTH = 1.5  # of the number of cells from one grid to the next; no whole number, so that errors do not repeat
MOST_POINTS = 1 << 22
MARGIN = 10.0  # deviations of the known points by which the first grid reaches beyond them; it sees a peak eight of its widths away
EXPANSIONS = 60
WITNESS_SLACK = 2.0  # nats by which a known point may lie above the highest of the grid

Energy = Callable[[Tensor], Tensor]


class Box(NamedTuple):
    """An interval of each coordinate, ``(D,)`` and ``(D,)``."""

    low: Tensor
    high: Tensor


class Integral(NamedTuple):
    """log of an integral, how far the last two grids were apart, and the last grid's number of points."""

    value: float
    error: float
    points: int
    box: Box


def cells(box: Box, n: int, shift: Tensor | float = 0.5) -> Iterator[Tensor]:
    """The points of a grid of n cells along each coordinate, some at a time, ``(m, D)``."""
    width, delta = len(box.low), (box.high - box.low) / n
    for start in range(0, n**width, CHUNK):
        index = torch.arange(start, min(start + CHUNK, n**width), device=box.low.device)
        digits = torch.stack([index // n**i % n for i in reversed(range(width))], -1)
        yield box.low + (digits + shift) * delta


def log_cell(box: Box, n: int) -> Tensor:
    """log of a cell's volume."""
    return ((box.high - box.low) / n).log().sum()


def log_integral(energy: Energy, box: Box, n: int, shift: Tensor | float = 0.5) -> Tensor:
    """log of the integral of exp(-F) over a box; differentiable, many points recomputed chunk by chunk in the backward pass."""

    def chunk_sum(points: Tensor) -> Tensor:
        return torch.logsumexp(-energy(points), 0)

    many = torch.is_grad_enabled() and n ** len(box.low) > CHUNK
    parts = [checkpoint(chunk_sum, x, use_reentrant=False) if many else chunk_sum(x) for x in cells(box, n, shift)]
    return torch.logsumexp(torch.stack(parts), 0) + log_cell(box, n)  # type: ignore[arg-type]


def around(rows: Tensor, margin: float) -> Box:
    """The range of rows ``(N, D)``, wider by ``margin`` of their deviations on each side."""
    spread = margin * rows.std(0).clamp_min(1e-3 * rows.abs().amax(0).clamp_min(1e-3))
    return Box(rows.amin(0) - spread, rows.amax(0) + spread)


@torch.no_grad()
def integrate(energy: Energy, rows: Tensor, tolerance: float) -> Integral:
    """log of the integral of exp(-F) over all of space, on finer and finer grids until two of them agree.

    Arguments:
        energy: F, ``(m, D) -> (m,)``.
        rows: Points that say where to look, ``(N, D)``: the box begins around them and no peak at them may be missed.
        tolerance: Largest difference of the last two grids, in nats.
    """
    width, known = rows.shape[1], -energy(rows)
    n, witness = COARSE[width], float(known.max())
    box = mass_box(energy, around(rows, MARGIN), n, rows, known)
    last, error, top = math.nan, math.inf, -math.inf
    while True:
        parts = [-energy(x) for x in cells(box, n)]
        top = max(top, *(float(part.max()) for part in parts))
        value = float(torch.logsumexp(torch.stack([torch.logsumexp(part, 0) for part in parts]), 0) + log_cell(box, n))
        error = math.inf if math.isnan(last) or top < witness - WITNESS_SLACK else abs(value - last)
        following = math.ceil(GROWTH * n)
        if error <= tolerance or following**width > MOST_POINTS:
            return Integral(value, error, n**width, box)
        n, last = following, value


def mass_box(energy: Energy, box: Box, n: int, rows: Tensor, known: Tensor) -> Box:
    """The part of space in which exp(-F) is not negligible: a box that grows until the density has fallen off at its faces.

    Rows ``(N, D)`` with ``known`` log densities ``(N,)`` that are not negligible stay inside, whatever the grid saw of them.
    """
    for _ in range(EXPANSIONS):
        log_p = torch.cat([-energy(x) for x in cells(box, n)]).view([n] * len(box.low))
        if torch.isnan(log_p).any():
            raise Diverged("quadrature: the free energy must be a number everywhere; got nan. Look at the model's parameters.")
        top = max(float(log_p.max()), float(known.max()))
        first, last = _extent(log_p > min(top - DROP, float(log_p.max()) - 1e-9))
        delta, reach = (box.high - box.low) / n, 0.5 * (box.high - box.low)
        if (first > 0).all() and (last < n - 1).all():
            return _holding(Box(box.low + (first - 1) * delta, box.low + (last + 2) * delta), rows[known > top - DROP], delta)
        box = Box(torch.where(first == 0, box.low - reach, box.low), torch.where(last == n - 1, box.high + reach, box.high))
    raise Diverged("quadrature: exp(-F) must fall off far from the data, so that Z is finite; it does not. Let the network grow slower "
                   "than x'x.")  # fmt: skip


def _holding(box: Box, rows: Tensor, margin: Tensor) -> Box:
    """The box, made wide enough for rows and a margin around them."""
    return Box(torch.cat([rows - margin, box.low[None]]).amin(0), torch.cat([rows + margin, box.high[None]]).amax(0))


def _extent(inside: Tensor) -> tuple[Tensor, Tensor]:
    """First and last index along each dimension at which anything is true."""
    found = [inside.transpose(0, i).flatten(1).any(1).nonzero().flatten() if inside.dim() > 1 else inside.nonzero().flatten()
             for i in range(inside.dim())]  # fmt: skip
    return torch.stack([f[0] for f in found]), torch.stack([f[-1] for f in found])
