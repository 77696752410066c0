r"""Slopes and bends of a function that has none that autograd finds: central differences.

.. math:: \partial_i F \approx \frac{F(x + h_i) - F(x - h_i)}{2 h_i}, \qquad
          \partial_i \partial_j F \approx \frac{F(x + h_i + h_j) - F(x + h_i - h_j)
          - F(x - h_i + h_j) + F(x - h_i - h_j)}{4 h_i h_j}
          (theory/gradient_samplers.md, eq. 31.13)

A slope takes 2 D evaluations, a bend 2 D (D + 1).

Letters: N points, D coordinates.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Energy = Callable[[Tensor], Tensor]
AT_ONCE = 4096  # evaluations


@torch.no_grad()
def central_slope(energy: Energy, x: Tensor, h: Tensor) -> Tensor:
    """The gradient at points ``(N, D)`` with steps ``h`` of each coordinate, ``(D,)``."""
    steps, slopes = torch.diag(h), []
    for part in x.detach().split(max(1, AT_ONCE // (2 * len(h)))):
        up, down = (
            energy((part[:, None] + sign * steps).flatten(0, 1)).view(-1, len(h))
            for sign in (1, -1)
        )
        slopes.append((up - down) / (2 * h))
    return torch.cat(slopes)


@torch.no_grad()
def central_bend(energy: Energy, at: Tensor, h: Tensor) -> Tensor:
    """The second derivatives at one point ``(D,)``, ``(D, D)``."""
    D, steps = len(h), torch.diag(h)
    i, j = torch.triu_indices(D, D, device=at.device)
    corners = [
        energy(at + a * steps[i] + b * steps[j]) for a in (1, -1) for b in (1, -1)
    ]  # of each pair of coordinates
    values = (corners[0] - corners[1] - corners[2] + corners[3]) / (4 * h[i] * h[j])
    bend = at.new_zeros(D, D, dtype=values.dtype)
    bend[i, j] = values
    bend[j, i] = values
    return bend
