r"""Integrals that look closer where it matters: boxes are halved until each agrees with the sum of its parts.

.. math:: I(B) = \sum_j w_j\, e^{-F(x_j)}, \qquad \textstyle\sum_B \Big| I(B) - \sum_{b \subset B} I(b) \Big| \le \tau Z
          (theory/scoring.md, eq. 5.12)

x_j and w_j are Gauss and Legendre's, a tensor product in each box. A box in which some known point lies far above all x_j is halved
whatever its parts say: it has a peak between them.

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

from partita.core.errors import Diverged

NODES = {1: 16, 2: 8, 3: 6}  # n, by the number of coordinates
FIRST = {1: 25, 2: 12, 3: 6}  # boxes along each coordinate at the start
CHUNK = 1 << 17  # points at once
NEGLIGIBLE = 1e-4  # of the tolerance: what all boxes together may hold that nobody looks into
NOT_A_NUMBER = "quadrature: the free energy must be a number everywhere; got nan or minus infinity. Look at the model's parameters."
SLACK, SLACK_BESIDE = 2.0, 8.0  # nats by which a known point may lie above the highest node of its box, or of the box beside it
BESIDE = 0.25  # of a box's width

Energy = Callable[[Tensor], Tensor]


class Boxes(NamedTuple):
    """Boxes with the log of their integrals and the greatest log density at their nodes."""

    low: Tensor  # (M, D)
    high: Tensor  # (M, D)
    value: Tensor  # (M,)
    top: Tensor  # (M,)

    def where(self, kept: Tensor) -> "Boxes":
        """Some of them."""
        return Boxes(*(part[kept] for part in self))


class Total(NamedTuple):
    """log of an integral, by how many nats its parts disagree at most, and how many points it took."""

    value: float
    error: float
    points: int


@torch.no_grad()
def adaptive(energy: Energy, low: Tensor, high: Tensor, rows: Tensor, known: Tensor, tolerance: float, most_points: int) -> Total:
    """log of the integral of exp(-F) over a box.

    Arguments:
        energy: F, ``(m, D) -> (m,)``.
        low, high: Corners of the box, ``(D,)``.
        rows: Points ``(N, D)`` whose log densities ``known`` ``(N,)`` no box may overlook.
        tolerance: In nats.
        most_points: After which boxes stay as they are.
    """
    boxes = measured(energy, *split(low[None], high[None], FIRST[len(low)]))
    settled, error, doubt, points = [boxes.value[:0]], 0.0, math.inf, len(boxes.value) * _nodes(len(low))
    while True:
        total = torch.logsumexp(torch.cat([*settled, boxes.value]), 0)
        missed = overlooks(boxes, rows, known)
        small = (boxes.value < total + math.log(tolerance * NEGLIGIBLE / max(1, len(missed)))) & ~missed
        settled.append(boxes.value[small])
        boxes, missed = boxes.where(~small), missed[~small]
        cost = (len(missed) << len(low)) * _nodes(len(low))
        if not cost or points + cost > most_points:
            break
        halves = measured(energy, *split(boxes.low, boxes.high, 2))
        points += cost
        sums = torch.logsumexp(halves.value.view(len(missed), -1), 1)
        off = ((boxes.value - total).exp() - (sums - total).exp()).abs()
        agrees = smallest(off, 0.5 * (tolerance - error)) & ~missed
        settled.append(sums[agrees])
        error, doubt = error + float(off[agrees].sum()), float(off[~agrees].sum())
        boxes = halves.where(~agrees.repeat_interleave(1 << len(low)))
    value = float(torch.logsumexp(torch.cat([*settled, boxes.value]), 0))
    return Total(value, error if not len(missed) else math.inf if bool(missed.any()) else error + doubt, points)


def split(low: Tensor, high: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Each of M boxes cut into n^D alike, one box's parts after the other, ``(M n^D, D)`` twice."""
    cells = torch.tensor(list(product(range(n), repeat=low.shape[1])), dtype=low.dtype, device=low.device)
    first = low[:, None] + cells * ((high - low) / n)[:, None]
    return first.flatten(0, 1), (first + ((high - low) / n)[:, None]).flatten(0, 1)


def measured(energy: Energy, low: Tensor, high: Tensor) -> Boxes:
    """Every box with its integral, some boxes at a time."""
    nodes, log_weights = (table.to(low) for table in _rule(low.shape[1]))
    values, tops = [], []
    for a, b in zip(low.split(CHUNK // len(nodes)), high.split(CHUNK // len(nodes)), strict=True):
        x = a[:, None] + nodes * (b - a)[:, None]
        log_p = -energy(x.flatten(0, 1)).view(len(a), -1)
        if bool((torch.isnan(log_p) | (log_p == math.inf)).any()):
            raise Diverged(NOT_A_NUMBER)
        values.append(torch.logsumexp(log_p + log_weights, 1) + (b - a).log().sum(1))
        tops.append(log_p.amax(1))
    return Boxes(low, high, torch.cat(values), torch.cat(tops))


def overlooks(boxes: Boxes, rows: Tensor, known: Tensor) -> Tensor:
    """Which boxes hold a known point far above all of their nodes, or have one close beside them, ``(M,)``."""
    found = []
    for low, high, _, top in zip(*(part.split(max(1, CHUNK // len(rows))) for part in boxes), strict=True):
        away = (torch.maximum(low[:, None] - rows, rows - high[:, None]) / (high - low)[:, None]).amax(-1)  # negative inside
        above = known - top[:, None]
        found.append((((away <= 0) & (above > SLACK)) | ((away <= BESIDE) & (above > SLACK_BESIDE))).any(1))
    return torch.cat(found)


def smallest(values: Tensor, budget: float) -> Tensor:
    """Which of the values, from the smallest on, sum to no more than ``budget``."""
    order = values.argsort()
    return torch.zeros_like(values, dtype=torch.bool).index_copy_(0, order, values[order].cumsum(0) <= budget)


def _nodes(width: int) -> int:
    return NODES[width] ** width


@cache
def _rule(width: int) -> tuple[Tensor, Tensor]:
    """Nodes in the unit box and the logs of their weights, ``(n^D, D)`` and ``(n^D,)``."""
    x, w = np.polynomial.legendre.leggauss(NODES[width])
    nodes = torch.tensor(list(product(0.5 + 0.5 * x, repeat=width)), dtype=torch.float64)
    weights = torch.tensor(list(product(0.5 * w, repeat=width)), dtype=torch.float64)
    return nodes, weights.log().sum(1)
