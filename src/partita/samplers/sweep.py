r"""Sweeps over the sites of a pairwise model: in machine code on a CPU, color by color elsewhere.

.. math:: x_i \sim p(x_i \mid x_{\setminus i}) \text{ for } i = \pi(1), \dots, \pi(D)
          (theory/discrete.md, eq. 12.11)

Sites of one color do not see one another, so drawing them together is drawing them in any order: a
checkerboard sweep is distributed as a sequential one that visits the black squares before the
white.

Letters: C chains, D sites, K values, S sweeps.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from partita.core import rng
from partita.core.annealed import Annealed
from partita.core.arguments import check_categories, check_width
from partita.core.protocols import EnergyModel
from partita.models.energy.graphs import Graph
from partita.models.energy.pairwise import PairwiseModel, Sites
from partita.runtime.threads import map_in_threads

Order: TypeAlias = Literal["random", "sequential", "colors"]
WORTH_THREADS = 1 << 18  # couplings times chains and sweeps, a few tenths of a millisecond


def draw_order(order: Order, sites: int, graph: Graph | None, generator: torch.Generator) -> Tensor:
    """The order of one sweep: any, drawn anew; 0, 1, 2, ...; or color by color, the colors in an
    order drawn anew.
    """
    if order == "random":
        return rng.permutation(sites, generator).cpu()
    if order == "sequential" or graph is None:
        return torch.arange(sites)
    return torch.cat(
        [graph.colors[c] for c in rng.permutation(len(graph.colors), generator).tolist()]
    )


def unwrap(model: EnergyModel) -> tuple[PairwiseModel, Tensor | None]:
    """The model behind an annealed view, and its inverse temperature."""
    base, beta = (model.base, model.beta) if isinstance(model, Annealed) else (model, None)
    return cast(PairwiseModel, base), beta


def pair_sweeps(
    model: EnergyModel, x: Tensor, sweeps: int, order: Order, generator: torch.Generator
) -> Tensor:
    """Some sweeps of chains ``(*, C, D)`` of a model that offers pairs; hidden units are drawn
    before each.
    """
    base, beta = unwrap(model)
    orders = torch.stack(
        [draw_order(order, x.shape[-1], base.graph, generator) for _ in range(sweeps)]
    )
    for part in orders.split(1 if getattr(base, "hidden", 0) else sweeps):
        tables = base.sites(x, beta, generator=generator)
        if x.device.type == "cpu":
            x = compiled_sweeps(tables, x, beta, part, generator)
        else:
            x = color_sweeps(model, x, len(part), generator)
    return x


def compiled_sweeps(
    tables: Sites, x: Tensor, beta: Tensor | None, orders: Tensor, generator: torch.Generator
) -> Tensor:
    """Sweeps in machine code; the state handed in is left alone."""
    from partita.samplers.kernels import LANES, sweep_many_values, sweep_two_values

    check_width("Gibbs", "x", x, len(tables.graph.starts) - 1, "the model's sites")
    rows = x.reshape(-1, x.shape[-1])
    work = orders.shape[0] * len(rows) * len(tables.weights.flatten())
    hot = torch.ones(x.shape[:-1]) if beta is None else beta.float().expand(x.shape[:-1])
    graph = (tables.graph.starts.numpy(), tables.graph.neighbors.numpy(), _plain(tables.weights))
    common = (_plain(hot.reshape(-1)), *graph)
    if tables.weights.dim() == 1:
        start, bias = (
            _plain(table.reshape(-1, x.shape[-1])) for table in (tables.start, tables.bias)
        )
        out = torch.empty(rows.shape).copy_(rows)
        seeds = _seeds((len(rows) + LANES - 1) // LANES, LANES, generator)
        sites = (_plain(tables.values), start, bias)
        arguments = (out.numpy(), orders.numpy(), *sites, *common, seeds)
        in_threads(sweep_two_values, len(seeds), work, arguments)
    else:
        # by which machine code looks up couplings
        out = check_categories("Gibbs", "x", rows, tables.bias.shape[1]).int().contiguous()
        seeds = _seeds(len(rows), 1, generator)
        start = _plain(tables.start.reshape(-1, *tables.bias.shape))
        arguments = (out.numpy(), orders.numpy(), start, _plain(tables.bias), *common, seeds)
        in_threads(sweep_many_values, len(seeds), work, arguments)
    return out.view(x.shape).to(x)


def in_threads(
    kernel: Callable[..., None], pieces: int, work: int, arguments: tuple[np.ndarray, ...]
) -> None:
    """Call ``kernel(first, last, ...)`` on ranges that make up all pieces, as many as torch has
    threads where the work is worth it.
    """
    count = min(torch.get_num_threads(), pieces) if work > WORTH_THREADS else 1
    edges = np.linspace(0, pieces, count + 1).astype(int).tolist()
    map_in_threads(kernel, [(*ends, *arguments) for ends in pairwise(edges)])


@torch.no_grad()
def color_sweeps(model: EnergyModel, x: Tensor, sweeps: int, generator: torch.Generator) -> Tensor:
    """Sweeps that draw all sites of a color at once, from one product for each color; on any
    device.
    """
    base, _ = unwrap(model)
    values, colors = model.support.values().to(x), base.graph.colors
    for _ in range(sweeps):
        for c in rng.permutation(len(colors), generator).tolist():
            sites = colors[c].to(x.device)
            drawn = values[rng.categories(model.conditional_logits(x)[..., sites, :], generator)]
            x = x.index_copy(-1, sites, drawn)
    return x


def _seeds(blocks: int, lanes: int, generator: torch.Generator) -> np.ndarray:
    """States of the random generators in the kernels, ``(blocks, 4, lanes)``."""
    empty = torch.empty(blocks, 2, lanes, dtype=torch.int64, device=generator.device)
    drawn = empty.random_(-(2**63), None, generator=generator)
    return drawn.cpu().numpy().view(np.uint32).reshape(blocks, 4, lanes)


def _plain(values: Tensor) -> np.ndarray:
    return values.detach().float().contiguous().numpy()
