r"""Integrals that look closer where it matters: boxes are halved until each agrees with the sum of
its parts.

.. math:: I(B) = \sum_j w_j\, e^{-F(x_j)}, \qquad \textstyle\sum_B \max\Big( \Big| I(B) - \sum_{b
          \subset B} I(b) \Big|,
          \sum_{b \subset B} N(b) \Big) \le \tau Z          (theory/scoring.md, eq. 5.12)

x_j and w_j are Lobatto's, a tensor product in each box, corners and all; N(b) is what null rules
see, the highest degrees of the same nodes (Berntsen and Espelid 1991): two rules that err alike by
chance do not fool the third. A box is halved, whatever they say, where a known point lies far above
all x_j: it has a peak between them.

Letters: D coordinates, M boxes, n nodes of each coordinate, N known points.
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.errors import Diverged

NODES = {1: 16, 2: 8, 3: 6}  # n, by the number of coordinates
FIRST = {1: 25, 2: 12, 3: 6}  # boxes along each coordinate at the start
CHUNK = 1 << 17  # points at once
NEGLIGIBLE = 1e-4  # of the tolerance: what all boxes together may hold that no box is halved for
NOT_A_NUMBER = (
    "quadrature: the free energy must be a number everywhere; got nan or minus infinity. Look at "
    "the model's parameters."
)
# nats by which a known point may lie above the highest node of its box, or of the box beside it
SLACK, SLACK_BESIDE = 2.0, 8.0
BESIDE = 0.25  # of a box's width
PEAKS = 256  # points that show another partition where the mass is
ROUGH = 1e-3  # of Z: the tolerance with which everything is found before it is refined
FEWEST = 16  # boxes that are worth another round

Energy = Callable[[Tensor], Tensor]


class Boxes(NamedTuple):
    """Boxes with the log of their integrals and the highest of their nodes."""

    low: Tensor  # (M, D)
    high: Tensor  # (M, D)
    value: Tensor  # (M,)
    top: Tensor  # (M,), the greatest log density at the nodes
    at: Tensor  # (M, D), where it is
    error: Tensor  # (M,), of the integral, as a share of it

    def where(self, kept: Tensor) -> "Boxes":
        """Some of them."""
        return Boxes(*(part[kept] for part in self))


class Total(NamedTuple):
    """log of an integral, its error as a share of it, how many points it took, and the boxes that
    it is the sum of.
    """

    value: float
    error: float
    points: int
    boxes: Boxes


# boxes and log of the total so far -> which of them hide something, (M,)
Look = Callable[[Boxes, float], Tensor]


@torch.no_grad()
def adaptive(
    energy: Energy,
    low: Tensor,
    high: Tensor,
    rows: Tensor,
    known: Tensor,
    tolerance: float,
    most_points: int,
    look: Look | None = None,
) -> Total:
    """log of the integral of exp(-F) over a box; the error is infinite where what is known to be
    there is not resolved when points run out.

    Arguments:
        energy: F, ``(m, D) -> (m,)``.
        low, high: Corners of the box, ``(D,)``.
        rows: Points ``(N, D)`` whose log densities ``known`` ``(N,)`` no box may overlook.
        tolerance: In nats.
        most_points: After which boxes stay as they are.
        look: Says of boxes that are done which of them hide something between their nodes; those
            are halved further.
    """
    share, nodes, rough = 1 << len(low), NODES[len(low)] ** len(low), max(tolerance, ROUGH)
    boxes = measured(energy, *split(low[None], high[None], FIRST[len(low)]))
    clear, error, points = boxes.where(boxes.top > math.inf), 0.0, len(boxes.value) * nodes
    while len(boxes.value):  # find everything first, roughly
        fresh, off, spent = settle(
            energy, boxes, clear.value, rows, known, rough, most_points - points
        )
        error, points = error + off, points + spent
        hides = (
            torch.zeros_like(fresh.top, dtype=torch.bool)
            if look is None
            else look(fresh, joined_value(clear, fresh))
        )
        clear, boxes = _joined(clear, fresh.where(~hides)), fresh.where(hides)
        if points + len(boxes.value) * share * nodes > most_points:
            return Total(joined_value(clear, boxes), math.inf, points, _joined(clear, boxes))
        if len(boxes.value):
            boxes = measured(energy, *split(boxes.low, boxes.high, 2))
            points += len(boxes.value) * nodes
    if rough == tolerance or math.isinf(error):
        return Total(joined_value(clear), error, points, clear)
    off = (clear.value - joined_value(clear)).exp() * clear.error
    fine = smallest(off, 0.5 * tolerance)
    fresh, error, spent = settle(
        energy,
        clear.where(~fine),
        clear.value[fine],
        rows,
        known,
        0.5 * tolerance,
        most_points - points,
    )
    clear = _joined(clear.where(fine), fresh)
    return Total(joined_value(clear), float(off[fine].sum()) + error, points + spent, clear)


def joined_value(*parts: Boxes) -> float:
    """log of the integral over all of them."""
    return float(torch.logsumexp(torch.cat([boxes.value for boxes in parts]), 0))


def _joined(a: Boxes, b: Boxes) -> Boxes:
    return Boxes(*(torch.cat(pair) for pair in zip(a, b, strict=True)))


def settle(
    energy: Energy,
    boxes: Boxes,
    beside: Tensor,
    rows: Tensor,
    known: Tensor,
    tolerance: float,
    most_points: int,
) -> tuple[Boxes, float, int]:
    """Boxes halved until the rules agree, their error and the points that it took; ``beside`` are
    log integrals of others.
    """
    share, nodes = 1 << boxes.low.shape[1], NODES[boxes.low.shape[1]] ** boxes.low.shape[1]
    done, error, points = [boxes.where(boxes.top > math.inf)], 0.0, 0
    while True:
        total = torch.logsumexp(torch.cat([beside, *(part.value for part in (*done, boxes))]), 0)
        missed = overlooks(boxes, rows, known)
        small = (
            boxes.value < total + math.log(tolerance * NEGLIGIBLE / max(1, len(missed)))
        ) & ~missed
        done.append(boxes.where(small))
        boxes, missed = boxes.where(~small), missed[~small]
        room = (most_points - points) // (share * nodes)
        if room < min(FEWEST, len(missed)) or not len(missed):
            break
        if room < len(missed):  # the worst first
            chosen = greatest(torch.where(missed, math.inf, boxes.value + boxes.error.log()), room)
            error += _left(boxes.where(~chosen), missed[~chosen], total)
            done.append(boxes.where(~chosen))
            boxes, missed = boxes.where(chosen), missed[chosen]
        halves = measured(energy, *split(boxes.low, boxes.high, 2))
        points += len(halves.value) * nodes
        shares = (halves.value - total).exp().view(len(missed), -1)
        off = torch.maximum(
            ((boxes.value - total).exp() - shares.sum(1)).abs(),
            (shares * halves.error.view_as(shares)).sum(1),
        )
        agrees = smallest(off, 0.5 * (tolerance - error)) & ~missed
        error += float(off[agrees].sum())
        parts = agrees.repeat_interleave(share)
        done.append(halves.where(parts))
        boxes = halves.where(~parts)
    error += _left(boxes, missed, total)
    return Boxes(*(torch.cat(parts) for parts in zip(*done, boxes, strict=True))), error, points


def _left(boxes: Boxes, missed: Tensor, total: Tensor) -> float:
    """The error of boxes that stay as they are."""
    return (
        math.inf if bool(missed.any()) else float(((boxes.value - total).exp() * boxes.error).sum())
    )


def greatest(values: Tensor, k: int) -> Tensor:
    """Which are the k greatest."""
    kept = torch.zeros_like(values, dtype=torch.bool)
    kept[values.topk(min(k, len(values))).indices] = True
    return kept


def peaks(boxes: Boxes) -> Tensor:
    """The highest nodes of PEAKS boxes, each box as often as it has mass, ``(k, D)``."""
    share = torch.softmax(boxes.value, 0).cumsum(0)
    places = torch.searchsorted(
        share, (torch.arange(PEAKS, dtype=share.dtype, device=share.device) + 0.5) / PEAKS
    )
    return boxes.at[places.clamp_max(len(share) - 1).unique()]


def split(low: Tensor, high: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Each of M boxes cut into n^D alike, one box's parts after the other, ``(M n^D, D)`` twice."""
    cells = torch.tensor(
        list(product(range(n), repeat=low.shape[1])), dtype=low.dtype, device=low.device
    )
    first = low[:, None] + cells * ((high - low) / n)[:, None]
    return first.flatten(0, 1), (first + ((high - low) / n)[:, None]).flatten(0, 1)


def measured(energy: Energy, low: Tensor, high: Tensor) -> Boxes:
    """Every box with its integral, some boxes at a time."""
    rule = _rule(low.shape[1])
    found = []
    for a, b in zip(*(ends.split(CHUNK // len(rule.nodes)) for ends in (low, high)), strict=True):
        x = a[:, None] + rule.nodes.to(low) * (b - a)[:, None]
        log_p = -energy(x.flatten(0, 1)).view(len(a), -1)
        if bool((torch.isnan(log_p) | (log_p == math.inf)).any()):
            raise Diverged(NOT_A_NUMBER)
        top, best = log_p.max(1)
        p = (log_p - top.clamp_min(-1e300)[:, None]).exp()
        mean = p @ rule.weights.to(low)
        at = x[torch.arange(len(a), device=a.device), best]
        found.append(
            (
                mean.log() + top + (b - a).log().sum(1),
                top,
                at,
                null_error(p, rule) / mean.clamp_min(1e-300),
            )
        )
    return Boxes(low, high, *(torch.cat(parts) for parts in zip(*found, strict=True)))


def null_error(p: Tensor, rule: "Rule") -> Tensor:
    """What the highest degrees of densities ``(M, n^D)`` along each line of nodes say of the error,
    ``(M,)``: small where they fall off.

    Lines are not summed first: a crease that crosses them slantwise would vanish from the sum.
    """
    error = p.new_zeros(len(p))
    grid = p.view(len(p), *[rule.n] * rule.nodes.shape[1])
    for i in range(1, grid.dim()):
        lines = grid.movedim(i, -1).reshape(len(p), -1, rule.n)  # (M, n^(D-1), n)
        # (M, four degrees), the highest first
        along = (lines @ rule.null.to(p)).square().mul(rule.across.to(p)[:, None]).sum(1).sqrt()
        high, low = along[:, :2].amax(1), along[:, 2:].amax(1)
        ratio = (high / low.clamp_min(1e-300)).clamp_max(1.0)
        error += high * ratio ** (0.25 * (rule.n + 1))
    return error


def overlooks(boxes: Boxes, rows: Tensor, known: Tensor) -> Tensor:
    """Which boxes hold a known point far above all of their nodes, or have one close beside them,
    ``(M,)``.
    """
    found = []
    for low, high, top in zip(
        *(part.split(max(1, CHUNK // len(rows))) for part in (boxes.low, boxes.high, boxes.top)),
        strict=True,
    ):
        # negative inside
        away = (
            torch.maximum(low[:, None] - rows, rows - high[:, None]) / (high - low)[:, None]
        ).amax(-1)
        above = known - top[:, None]
        found.append(
            (((away <= 0) & (above > SLACK)) | ((away <= BESIDE) & (above > SLACK_BESIDE))).any(1)
        )
    return torch.cat(found)


def smallest(values: Tensor, budget: float) -> Tensor:
    """Which of the values, from the smallest on, sum to no more than ``budget``."""
    order = values.argsort()
    return torch.zeros_like(values, dtype=torch.bool).index_copy_(
        0, order, values[order].cumsum(0) <= budget
    )


class Rule(NamedTuple):
    """n^D nodes in the unit box, their weights, and the null rules of the highest degrees along a
    line.
    """

    n: int
    nodes: Tensor  # (n^D, D)
    weights: Tensor  # (n^D,)
    across: Tensor  # (n^(D-1),), weights of the lines of nodes along a coordinate
    null: Tensor  # (n, 4): degrees n-1, n-2, n-3, n-4 along a line


@cache
def _rule(width: int) -> Rule:
    n = NODES[width]
    legendre = np.polynomial.legendre.Legendre.basis(n - 1)
    x = np.concatenate([[-1.0], np.sort(legendre.deriv().roots().real), [1.0]])
    w = 2 / (n * (n - 1) * legendre(x) ** 2)
    nodes = torch.tensor(list(product(x, repeat=width)), dtype=torch.float64)
    weights, across = (
        torch.tensor(list(product(0.5 * w, repeat=d)), dtype=torch.float64).prod(1)
        for d in (width, width - 1)
    )
    degrees = [np.polynomial.legendre.Legendre.basis(n - k) for k in (1, 2, 3, 4)]
    null = torch.from_numpy(
        np.stack([0.5 * w * math.sqrt(2 * d.degree() + 1) * d(x) for d in degrees], -1)
    )
    return Rule(n, 0.5 + 0.5 * nodes, weights, across, null)
