r"""Components of mixed columns: blocks of columns with components of their own, independent given
which component it is.

.. math:: p_k(x) = \prod_g p_k^{(g)}(x_g), \qquad T_k = \big(T_k^{(g)}\big)_g
          (theory/mixed_tables.md, eq. 45.2)

With real columns in one Gaussian block and all others apart this is the latent class model with
mixed indicators.

Letters: B rows, D columns, K components, g blocks of columns, S states.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Generator, Tensor, nn

from partita.models.directed.components.base import Component, Statistics
from partita.models.directed.outputs import in_table_order
from partita.tables.schema import Law, places, support_of


class ProductComponent(Component[list[object], list[object]]):
    """One component for each kind of column.

    Arguments:
        laws: What each column holds (:mod:`partita.tables.schema`).
        blocks: The component of each law, on the columns that have it, in their order.
    """

    def __init__(self, count: int, laws: Sequence[Law], blocks: dict[Law, Component]) -> None:
        super().__init__()
        self.count, self.support = count, support_of(laws)
        self.blocks = nn.ModuleList(blocks.values())
        self.places = [places(laws)[law] for law in blocks]

    def ready(self, *, averaged: bool = False) -> list[object]:
        return [block.ready() for block, _ in self._each()]

    def scores(self, x: Tensor, ready: list[object]) -> tuple[Tensor, list[object]]:
        found = [
            block.scores(x[:, at], its)
            for (block, at), its in zip(self._each(), ready, strict=True)
        ]
        return torch.stack([scores for scores, _ in found]).sum(0), [kept for _, kept in found]

    def statistics(self, r: Tensor, kept: list[object]) -> Statistics:
        """Those of each block, under names that begin with its number."""
        found = (
            block.statistics(r, its) for (block, _), its in zip(self._each(), kept, strict=True)
        )
        return {
            f"{g}.{name}": value
            for g, statistics in enumerate(found)
            for name, value in statistics.items()
        }

    def maximize(self, statistics: Statistics) -> None:
        for g, (block, _) in enumerate(self._each()):
            own = f"{g}."
            mine = {name: value for name, value in statistics.items() if name.startswith(own)}
            block.maximize({name.removeprefix(own): value for name, value in mine.items()})

    def spread(self, mean: Tensor, variance: Tensor, generator: Generator) -> None:
        for block, at in self._each():
            block.spread(mean[at], variance[at], generator)

    def draw(self, index: Tensor, *, generator: Generator) -> Tensor:
        return self._joined([block.draw(index, generator=generator) for block, _ in self._each()])

    def fill_mean(self, x: Tensor) -> Tensor:
        return self._joined([block.fill_mean(x[:, at]) for block, at in self._each()])

    def fill_draw(self, x: Tensor, index: Tensor, *, generator: Generator) -> Tensor:
        return self._joined(
            [block.fill_draw(x[:, at], index, generator=generator) for block, at in self._each()]
        )

    def fill_likely(self, x: Tensor, r: Tensor) -> Tensor:
        return self._joined([block.fill_likely(x[:, at], r) for block, at in self._each()])

    def cells(self, missing: bool) -> int:
        return sum(block.cells(missing) for block, _ in self._each())

    def freedom(self) -> int:
        return sum(block.freedom() for block, _ in self._each())

    def embed(self, x: Tensor) -> Tensor:
        return torch.cat([block.embed(x[:, at]) for block, at in self._each()], -1)

    def prior(self) -> Tensor | float:
        return sum(block.prior() for block, _ in self._each())

    def fit_warnings(self) -> list[str]:
        return [text for block, _ in self._each() for text in block.fit_warnings()]

    def _each(self) -> list[tuple[Component, list[int]]]:
        """The blocks and where their columns are."""
        return list(zip(cast(list[Component], list(self.blocks)), self.places, strict=True))

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return in_table_order(parts, self.places)
