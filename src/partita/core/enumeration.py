r"""Sums over all states, in chunks of bounded memory.

.. math:: \log Z = \log \sum_x e^{-F(x)}, \qquad \nabla \log Z = \sum_x p(x)\, \nabla(-F)(x)
          (theory/energy.md, eq. 1.3)

A model with hidden units has two sides to sum over; the smaller is taken.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from partita.core.support import Support

CHUNK_CELLS = 1 << 21  # states x columns of one chunk


class Side(NamedTuple):
    """One way to write Z as a sum: over ``support`` of exp(-free_energy)."""

    name: str
    support: Support
    free_energy: Callable[..., Tensor]


def state_chunks(side: Side, like: Tensor) -> Iterator[Tensor]:
    """All states of a side, as many at a time as fit the memory budget."""
    return side.support.chunks(like, max(1, CHUNK_CELLS // side.support.width))


def log_partition(side: Side, like: Tensor) -> Tensor:
    """log Z by enumeration; differentiable, each chunk recomputed in the backward pass so that
    memory stays bounded.
    """

    def chunk_sum(states: Tensor) -> Tensor:
        return torch.logsumexp(-side.free_energy(states), 0)

    total = partial(checkpoint, chunk_sum, use_reentrant=False)
    parts = map(total if torch.is_grad_enabled() else chunk_sum, state_chunks(side, like))
    return torch.logsumexp(torch.stack(list(parts)), 0)


def state_expectation(side: Side, like: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """E[function(x)] under the normalized side; ``function`` maps ``(S, D)`` to ``(S, *)``."""
    log_z = log_partition(side, like)
    total = torch.zeros((), device=like.device, dtype=like.dtype)
    for states in state_chunks(side, like):
        p = torch.exp(-side.free_energy(states) - log_z)
        total = total + torch.tensordot(p, function(states), dims=1)
    return total


def probabilities(side: Side, like: Tensor) -> Tensor:
    """p of every state, in the order of ``side.support.states``."""
    energies = torch.cat([side.free_energy(states) for states in state_chunks(side, like)])
    return torch.softmax(-energies, 0)
