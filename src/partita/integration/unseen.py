r"""What could hide between points: boxes whose bound on exp(-F) leaves room for a peak are halved
until it does not, or a peak is found.

.. math:: \max_{x \in b} e^{-F(x)} \le e^{-\underline F(b)}, \qquad
          b \text{ is clear if } -\underline F(b) \le t \;\text{or}\; |b|\, e^{-\underline F(b)} \le
          \varepsilon
          (theory/scoring.md, eq. 5.15)

t is the highest that was seen in the box, with some slack; epsilon a mass that does not matter.
What is not clear when boxes run out could hold a mass that is known too, from above.

Letters: D coordinates, M boxes.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from partita.integration.cubature import Energy, greatest
from partita.integration.enclosure import lower_bound

SLACK = 2.0  # nats by which a bound may lie above what was seen
HALVINGS = 120
AT_ONCE = 1 << 14


class Unseen(NamedTuple):
    """What a search found."""

    hides: Tensor  # (M,), which boxes hold a point higher than all that was seen in them
    points: Tensor  # (k, D), such points
    log_mass: float  # of the most that is left unseen in the others


@torch.no_grad()
def search(
    energy: Energy, low: Tensor, high: Tensor, seen: Tensor, floor: float, most_boxes: int
) -> Unseen:
    """What hides in boxes.

    Arguments:
        energy: F, ``(m, D) -> (m,)``.
        low, high: Corners of the boxes, ``(M, D)``.
        seen: The greatest log density seen in each, ``(M,)``.
        floor: log of the mass below which nothing matters.
        most_boxes: That are bounded in all.
    """
    hides = torch.zeros_like(seen, dtype=torch.bool)
    home = torch.arange(len(seen), device=seen.device)
    left, points, spent = [low.new_full((1,), -math.inf)], [low[:0]], 0
    for _ in range(HALVINGS):
        bounds = [
            lower_bound(energy, a, b)
            for a, b in zip(low.split(AT_ONCE), high.split(AT_ONCE), strict=True)
        ]
        if any(bound is None for bound in bounds):
            return Unseen(hides, low[:0], math.inf)
        spent += len(low)
        most = -torch.cat([bound for bound in bounds if bound is not None])
        mass = most + (high - low).log().sum(1)
        doubt = (most > seen[home] + SLACK) & (mass > floor - math.log(max(len(mass), 1 << 10)))
        low, high, home, mass = low[doubt], high[doubt], home[doubt], mass[doubt]
        if not len(low):
            break
        middle = 0.5 * (low + high)
        there = -energy(middle)
        found = (there > seen[home] + SLACK) & (there + (high - low).log().sum(1) > floor)
        points.append(middle[found])
        hides[home[found]] = True
        doubt = ~hides[home]  # what is known to hide something needs no bound
        chosen = (
            greatest(torch.where(doubt, mass, -math.inf), max(0, most_boxes - spent) // 2) & doubt
        )
        left.append(mass[doubt & ~chosen])
        if not bool(chosen.any()):
            break
        low, high, home = *_halved(low[chosen], high[chosen]), home[chosen].repeat(2)
    return Unseen(hides, torch.cat(points), float(torch.logsumexp(torch.cat(left), 0)))


def shells(low: Tensor, high: Tensor, rings: int) -> tuple[Tensor, Tensor]:
    """Boxes that fill the space around one, ``(D,)`` twice, up to 4^rings times as far, ``(M, D)``
    twice.
    """
    out = 4.0 ** torch.arange(rings, -1, -1, dtype=low.dtype, device=low.device)[:, None]
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    edges = torch.cat([middle - half * out, middle + half * out.flip(0)])  # (2 rings + 2, D)
    index = (
        torch.cartesian_prod(*[torch.arange(len(edges) - 1)] * len(middle))
        .view(-1, len(middle))
        .to(low.device)
    )
    index = index[(index != rings).any(1)]
    return edges.gather(0, index), edges.gather(0, index + 1)


def _halved(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Each box cut in two across its longest side."""
    step = 0.5 * (high - low) * functional.one_hot((high - low).argmax(1), low.shape[1]).to(low)
    return torch.cat([low, low + step]), torch.cat([high - step, high])
