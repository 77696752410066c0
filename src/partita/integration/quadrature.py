r"""Integrals over a few real coordinates, by the midpoint rule on a box that holds all of the mass.

.. math:: Z = \int e^{-F(x)}\, dx \approx \Delta \sum_{j} e^{-F(x_j)}, \qquad x_j = l + (j + s)
          \odot \delta, \quad
          \Delta = \textstyle\prod_i \delta_i          (theory/scoring.md, eq. 5.10)

For a smooth density that has fallen off at the edges the error falls faster than any power of the
spacing delta; with a random shift s the sum is unbiased.

Letters: D coordinates, n cells of each.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from partita.core import rng
from partita.errors import Diverged, invalid
from partita.integration.cubature import FIRST, NOT_A_NUMBER, Boxes, Energy, adaptive, peaks
from partita.integration.differences import central_slope
from partita.integration.unseen import search, shells

CHUNK = 1 << 17  # points at once
DROP = 36.0  # nats below the top at which a density counts as fallen off: rounding of float64
COARSE = {1: 400, 2: 96, 3: 40}  # cells of each coordinate on the first grid
MOST_POINTS = 1 << 22
# deviations of the known points by which the first grid reaches beyond them; it sees a peak eight
# of its widths away
MARGIN = 10.0
EXPANSIONS = 60
# points that roll downhill from the known ones, as many from far away, and their steps
DESCENTS, DESCENT_STEPS = 48, 40
SHELLS = 7  # around the box that are searched, each four times as far out as the last
SLANTED = 100.0  # ratio of curvatures above which coordinates are turned to their axes
SHRINKS = 4.0  # times by which the box becomes narrower for it to be looked at again
ROUNDS = 5  # of finding mass outside of the box
OVERSAMPLED = 10  # points for each draw
WITNESS = 100.0  # tolerances of a second partition, whose edges lie elsewhere
KEY = 413


class Box(NamedTuple):
    """An interval of each coordinate, ``(D,)`` and ``(D,)``."""

    low: Tensor
    high: Tensor


class Integral(NamedTuple):
    """log of an integral, its error and the most that it may have missed, as shares of it, how
    many points it took, and the boxes that it is the sum of, in coordinates ``x @ turn``.
    """

    value: float
    error: float
    unseen: float
    points: int
    boxes: Boxes
    turn: Tensor  # (D, D)

    def draws(self, energy: Energy, n: int, generator: torch.Generator) -> Tensor:
        """About ``n`` draws of exp(-F) / Z, ``(n, D)``: boxes by their mass, points of each by
        their density.
        """
        box = rng.systematic(self.boxes.value, generator, OVERSAMPLED * n)
        low, high = self.boxes.low[box], self.boxes.high[box]
        x = (low + (high - low) * rng.uniform(low.shape, low, generator)) @ self.turn.mT
        # each box was chosen in proportion to its mass, and holds its points evenly
        log_w = -energy(x) + (high - low).log().sum(-1) - self.boxes.value[box]
        return x[rng.systematic(log_w, generator, n)[rng.permutation(n, generator)]]


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
    """log of the integral of exp(-F) over a box; differentiable, many points recomputed chunk by
    chunk in the backward pass.
    """

    def chunk_sum(points: Tensor) -> Tensor:
        return torch.logsumexp(-energy(points), 0)

    many = torch.is_grad_enabled() and n ** len(box.low) > CHUNK
    parts = [
        checkpoint(chunk_sum, x, use_reentrant=False) if many else chunk_sum(x)
        for x in cells(box, n, shift)
    ]
    return torch.logsumexp(torch.stack(parts), 0) + log_cell(box, n)  # type: ignore[arg-type]


def around(rows: Tensor, margin: float) -> Box:
    """The range of rows ``(N, D)``, wider by ``margin`` of their deviations on each side."""
    spread = margin * rows.std(0).clamp_min(1e-3 * rows.abs().amax(0).clamp_min(1e-3))
    return Box(rows.amin(0) - spread, rows.amax(0) + spread)


@torch.no_grad()
def integrate(energy: Energy, rows: Tensor, tolerance: float, most_boxes: int) -> Integral:
    """log of the integral of exp(-F) over all of space, in boxes that are halved until they agree
    with their parts.

    Arguments:
        energy: F, ``(m, D) -> (m,)``.
        rows: Points that say where to look, ``(N, D)``: the box begins around them, and no peak at
            them, or downhill from them, is missed.
        tolerance: Largest disagreement, in nats.
        most_boxes: How many may be bounded to see what could hide between the points.
    """
    if energy(rows).shape != rows.shape[:1]:
        raise invalid(
            "quadrature",
            "the free energy",
            f"map {tuple(rows.shape)} to ({len(rows)},)",
            tuple(energy(rows).shape),
        )
    starts = torch.cat([rows[:: max(1, len(rows) // DESCENTS)], far_points(rows)])
    modes = descend(energy, starts, rows.std(0).mean())
    heights = -energy(modes)
    turn = axes(energy, modes[heights.argmax()])
    rows = torch.cat([rows, modes[heights > heights.max() - DROP]]) @ turn
    return turned(lambda y: energy(y @ turn.mT), turn, rows, tolerance, most_boxes)


def axes(energy: Energy, x: Tensor) -> Tensor:
    """The directions in which F bends at x, ``(D, D)``, where they differ much: a thin slanted
    ridge then lies along a coordinate.
    """
    try:
        hessian = torch.autograd.functional.hessian(lambda point: energy(point[None])[0], x)
    except RuntimeError:  # steps that torch has no derivative for
        hessian = torch.eye(len(x), dtype=x.dtype, device=x.device)
    bend, turn = torch.linalg.eigh(torch.nan_to_num(torch.as_tensor(hessian)))
    slanted = float(bend.abs().max()) > SLANTED * float(bend.abs().min())
    return turn if slanted else torch.eye(len(x), dtype=x.dtype, device=x.device)


def turned(
    energy: Energy, turn: Tensor, rows: Tensor, tolerance: float, most_boxes: int
) -> Integral:
    """The integral in coordinates that suit it; other arguments as of :func:`integrate`."""
    rounds = 0
    while True:
        rounds += 1
        known = -energy(rows)
        if bool((torch.isnan(known) | (known == math.inf)).any()):
            raise Diverged(NOT_A_NUMBER)
        box = mass_box(energy, around(rows, MARGIN), COARSE[rows.shape[1]], rows, known)
        left = [-math.inf]
        found = adaptive(
            energy,
            *box,
            rows,
            known,
            tolerance,
            MOST_POINTS,
            partial(hiding, energy, math.log(tolerance), most_boxes, left),
        )
        low, high = shells(*box, SHELLS)
        outside = search(
            energy,
            low,
            high,
            low.new_full((len(low),), -math.inf),
            found.value + math.log(tolerance),
            most_boxes,
        )
        if not len(outside.points):
            break
        rows = torch.cat(
            [
                rows,
                outside.points[:DESCENTS],
                descend(energy, outside.points[:DESCENTS], (box.high - box.low).mean() / 100),
            ]
        )
        if rounds == ROUNDS:
            break
    rows = torch.cat([rows, peaks(found.boxes)])
    other = adaptive(
        energy, *_shifted(box), rows, -energy(rows), WITNESS * tolerance, MOST_POINTS // 4
    )
    off = abs(math.expm1(max(-50.0, min(50.0, other.value - found.value))))
    error = max(
        found.error,
        off if other.error <= found.error else off - other.error,
        math.inf if len(outside.points) else 0.0,
    )
    unknown = max([*left, outside.log_mass]) - found.value
    return Integral(
        found.value,
        error,
        math.exp(unknown) if unknown < 700 else math.inf,
        found.points + other.points,
        found.boxes,
        turn,
    )


def hiding(
    energy: Energy,
    log_tolerance: float,
    most_boxes: int,
    left: list[float],
    boxes: Boxes,
    total: float,
) -> Tensor:
    """Which boxes hide something between their nodes, ``(M,)``; the log of the most that bounds
    cannot exclude is noted in ``left``.
    """
    unseen = search(energy, boxes.low, boxes.high, boxes.top, total + log_tolerance, most_boxes)
    left.append(unseen.log_mass)
    return unseen.hides


def _shifted(box: Box) -> Box:
    """The same box, a little larger, so that the edges of its parts lie elsewhere."""
    cell = (box.high - box.low) / FIRST[len(box.low)]
    return Box(box.low - 0.382 * cell, box.high + 0.236 * cell)


def descend(energy: Energy, x: Tensor, size: Tensor) -> Tensor:
    """Where points roll downhill, ``(N, D)``: by steps along the slope that lengthen while they
    help and shorten where they do not.
    """
    step = size.expand(len(x), 1)
    value, slope = _with_slope(energy, x)
    for _ in range(DESCENT_STEPS):
        trial = x - step * slope / slope.norm(dim=-1, keepdim=True).clamp_min(1e-30)
        there, onwards = _with_slope(energy, trial)
        better = (there < value)[:, None]
        value = torch.where(better[:, 0], there, value)
        x = torch.where(better, trial, x)
        slope = torch.where(better, onwards, slope)
        step = torch.where(better, 1.5 * step, 0.3 * step)
    return x


def far_points(rows: Tensor) -> Tensor:
    """Points in all directions around rows, up to a thousand of their deviations away; always the
    same directions.
    """
    u = rng.normal(
        (DESCENTS, rows.shape[1]),
        torch.zeros((), dtype=torch.float64),
        rng.keyed(KEY, rows.shape[1]),
    ).to(rows)
    radius = torch.logspace(0, 3, DESCENTS, dtype=rows.dtype, device=rows.device)[:, None]
    return rows.mean(0) + radius * rows.std(0) * u / u.norm(dim=-1, keepdim=True)


def _with_slope(energy: Energy, x: Tensor) -> tuple[Tensor, Tensor]:
    """F and its slope, by differences where autograd finds none."""
    try:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            value = energy(x)
            (slope,) = torch.autograd.grad(value.sum(), x)
    except RuntimeError:  # made of steps that torch has no derivative for, or outside of torch
        x = x.detach()
        value = energy(x)
        h = x.std(0).clamp_min(1e-3) * torch.finfo(x.dtype).eps ** (1 / 3)
        slope = central_slope(energy, x, h)
    return value.detach(), torch.nan_to_num(slope)


def mass_box(energy: Energy, box: Box, n: int, rows: Tensor, known: Tensor) -> Box:
    """The part of space in which exp(-F) is not negligible: a box that grows until the density has
    fallen off at its faces.

    Rows ``(N, D)`` with ``known`` log densities ``(N,)`` that are not negligible stay inside,
    whatever the grid saw of them.
    """
    for _ in range(EXPANSIONS):
        log_p = torch.cat([-energy(x) for x in cells(box, n)]).view([n] * len(box.low))
        if bool((torch.isnan(log_p) | (log_p == math.inf)).any()):
            raise Diverged(NOT_A_NUMBER)
        top = max(float(log_p.max()), float(known.max()))
        first, last = _extent(log_p >= min(top - DROP, float(log_p.max())))
        delta, reach = (box.high - box.low) / n, 0.5 * (box.high - box.low)
        if (first > 0).all() and (last < n - 1).all():
            inner = _holding(
                Box(box.low + (first - 1) * delta, box.low + (last + 2) * delta),
                rows[known > top - DROP],
                delta,
            )
            if bool(((inner.high - inner.low) * SHRINKS > box.high - box.low).all()):
                return inner
            box = inner
            continue
        box = Box(
            torch.where(first == 0, box.low - reach, box.low),
            torch.where(last == n - 1, box.high + reach, box.high),
        )
    raise Diverged(
        f"quadrature: exp(-F) must fall to exp(-{DROP:g}) of its top within a box around the data; "
        f"it does not within one of side {float((box.high - box.low).max()):.1g}. If it falls like "
        "a power of the distance, use Sandwich; else Z is infinite, and the energy must rise far "
        "out, faster than the network lowers it."
    )


def _holding(box: Box, rows: Tensor, margin: Tensor) -> Box:
    """The box, made wide enough for rows and a margin around them."""
    return Box(
        torch.cat([rows - margin, box.low[None]]).amin(0),
        torch.cat([rows + margin, box.high[None]]).amax(0),
    )


def _extent(inside: Tensor) -> tuple[Tensor, Tensor]:
    """First and last index along each dimension at which anything is true."""
    found = [
        inside.transpose(0, i).flatten(1).any(1).nonzero().flatten()
        if inside.dim() > 1
        else inside.nonzero().flatten()
        for i in range(inside.dim())
    ]
    return torch.stack([f[0] for f in found]), torch.stack([f[-1] for f in found])
