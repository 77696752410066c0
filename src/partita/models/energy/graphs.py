r"""Which coordinates see which: edges of a graph, the neighbors of every site, and a coloring whose
classes can move together.

.. math:: E \subseteq \{(i, j): i < j\}, \qquad \text{color}(i) \ne \text{color}(j) \text{ for } (i,
          j) \in E
          (theory/discrete.md, eq. 12.2)

Letters: D sites, E edges, G largest number of neighbors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from partita.core.arguments import check_count
from partita.errors import invalid, one_line

# up to here, and on graphs with many edges, one D x D product is cheaper than gathering neighbors
DENSE_SITES = 100
# pairs of sites that are coupled; None couples all pairs
Edges: TypeAlias = Tensor | Sequence[Sequence[int]] | None


def complete(sites: int) -> Tensor:
    """All pairs i < j, ``(D (D - 1) / 2, 2)``."""
    return torch.triu_indices(sites, sites, 1).mT.contiguous()


def lattice(*shape: int) -> Tensor:
    """Nearest neighbors on a box with free edges, sites numbered row by row, ``(E, 2)``.

    >>> lattice(2, 2).tolist()
    [[0, 2], [1, 3], [0, 1], [2, 3]]
    """
    return _neighboring(shape, wrap=False)


def torus(*shape: int) -> Tensor:
    """Nearest neighbors on a box whose opposite sides meet; a side of two sites has one bond, not
    two, ``(E, 2)``.

    >>> len(torus(4, 4)), len(torus(3))
    (32, 3)
    """
    return _neighboring(shape, wrap=True)


def _neighboring(shape: Sequence[int], wrap: bool) -> Tensor:
    for side in shape:
        check_count("torus" if wrap else "lattice", "every side", side)
    site = torch.arange(int(np.prod(shape))).view(*shape)
    found = [torch.empty(0, 2, dtype=torch.long)]
    for axis, side in enumerate(shape):
        pairs = [(site.narrow(axis, 0, side - 1), site.narrow(axis, 1, side - 1))]
        if wrap and side > 2:
            pairs.append((site.narrow(axis, 0, 1), site.narrow(axis, side - 1, 1)))
        found += [torch.stack(pair, -1).view(-1, 2) for pair in pairs]
    return torch.cat(found)


def as_edges(owner: str, edges: Edges, sites: int) -> Tensor:
    """Pairs i < j without repetition from anything that lists pairs; None is the complete graph."""
    if edges is None:
        return complete(sites)
    try:
        pairs = torch.as_tensor(edges)
    except (TypeError, ValueError, RuntimeError):
        allowed = "be pairs of site numbers, (E, 2)"
        raise invalid(owner, "edges", allowed, one_line(edges)) from None
    if pairs.dim() != 2 or pairs.shape[1] != 2 or pairs.is_floating_point():
        raise invalid(
            owner,
            "edges",
            "be pairs of site numbers, (E, 2)",
            f"shape {tuple(pairs.shape)}, {pairs.dtype}",
        )
    pairs = pairs.long().sort(1).values
    bad = (pairs < 0).any(1) | (pairs >= sites).any(1) | (pairs[:, 0] == pairs[:, 1])
    if bad.any():
        allowed = f"join two different sites of 0 to {sites - 1}"
        raise invalid(owner, "edges", allowed, pairs[bad][0].tolist())
    if len(torch.unique(pairs, dim=0)) < len(pairs):
        raise invalid(
            owner,
            "edges",
            "name every pair once",
            "a pair twice",
            "Add up the couplings of a pair.",
        )
    return pairs


@dataclass(frozen=True, eq=False)
class Graph:
    """Edges of D sites, and what follows from them, computed once.

    Arguments:
        sites: D.
        edges: Pairs i < j, ``(E, 2)``.
    """

    sites: int
    edges: Tensor

    @property
    def is_complete(self) -> bool:
        """Whether all pairs are joined."""
        return len(self.edges) == self.sites * (self.sites - 1) // 2

    @property
    def dense(self) -> bool:
        """Whether a D x D matrix of couplings is worth its memory."""
        return self.sites <= DENSE_SITES or 8 * len(self.edges) > self.sites**2

    @cached_property
    def starts(self) -> Tensor:
        """Where the neighbors of each site begin in :attr:`neighbors`, ``(D + 1,)``."""
        counts = torch.bincount(self.edges.flatten(), minlength=self.sites)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    @cached_property
    def _directed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Neighbor, edge and direction (true from the edge's second site) of every bond seen from
        every site, ``(2 E,)`` each.
        """
        i, j = self.edges.unbind(1)
        own, other = torch.cat([i, j]), torch.cat([j, i])
        order = torch.argsort(own, stable=True)
        edge = torch.arange(len(i)).repeat(2)
        return other[order], edge[order], order >= len(i)

    @property
    def neighbors(self) -> Tensor:
        """Neighbors of site 0, then those of site 1, and so on, ``(2 E,)``."""
        return self._directed[0]

    @property
    def bonds(self) -> Tensor:
        """The edge to each of :attr:`neighbors`, ``(2 E,)``."""
        return self._directed[1]

    @property
    def backwards(self) -> Tensor:
        """True where the site is the second of its edge, ``(2 E,)``."""
        return self._directed[2]

    @cached_property
    def padded(self) -> tuple[Tensor, Tensor]:
        """Neighbors of each site and the edges to them, ``(D, G)``; missing ones point at site 0
        and edge E.
        """
        counts = self.starts.diff()
        slot = torch.arange(len(self.neighbors)) - self.starts[:-1].repeat_interleave(counts)
        site = torch.arange(self.sites).repeat_interleave(counts)
        width = int(counts.max()) if self.sites else 0
        near = torch.zeros(self.sites, width, dtype=torch.long)
        bond = torch.full((self.sites, width), len(self.edges))
        near[site, slot], bond[site, slot] = self.neighbors, self.bonds
        return near, bond

    @cached_property
    def colors(self) -> list[Tensor]:
        """Classes of sites without an edge inside: two on a bipartite graph (a checkerboard), D on
        a complete one.

        >>> [len(c) for c in Graph(16, torus(4, 4)).colors]
        [8, 8]
        """
        color = greedy_coloring(self.starts.numpy(), self.neighbors.numpy())
        return [torch.from_numpy(np.flatnonzero(color == c)) for c in range(color.max() + 1)]


def greedy_coloring(starts: np.ndarray, neighbors: np.ndarray) -> np.ndarray:
    """The least color that no neighbor has, site by site in the order of a breadth-first walk,
    which finds two where two suffice.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    sites = len(starts) - 1
    color = np.full(sites, -1)
    graph = csr_array((np.ones(len(neighbors)), neighbors, starts), shape=(sites, sites))
    _, part = connected_components(graph, directed=False)
    for first in np.unique(part, return_index=True)[1]:
        for site in breadth_first_order(graph, first, directed=False, return_predecessors=False):
            taken = set(color[neighbors[starts[site] : starts[site + 1]]])
            color[site] = next(c for c in range(sites) if c not in taken)
    return color
