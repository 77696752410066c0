r"""What a mixture requires of its components: K distributions of one family on the same columns,
fitted together.

In an exponential family all of it is two products with the features t(x):

.. math:: \log p_k(x) = b(x) + \eta_k^\top t(x), \qquad T_k = \sum_n r_{nk}\, t(x_n)
          (theory/mixtures.md, eq. 10.4)

Rows may have missing values (NaN); their scores are those of what was observed.

Where columns are mixed, blocks of them have components of their own, independent given which
component it is:

.. math:: p_k(x) = \prod_g p_k^{(g)}(x_g), \qquad T_k = \big(T_k^{(g)}\big)_g
          (theory/mixed_tables.md, eq. 45.2)

With real columns in one Gaussian block and all others apart this is the latent class model with
mixed indicators.

Letters: B rows, D columns, K components, F features, r responsibilities (K, B).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar, cast

import torch
from torch import Generator, Tensor, nn

from partita.core.support import Real, Support
from partita.models.directed.outputs import in_table_order
from partita.tables.schema import Law, places, support_of

# expected sufficient statistics; sums over rows, so that chunks add up
Statistics = dict[str, Tensor]


Ready = TypeVar("Ready")
Kept = TypeVar("Kept")


class Component(nn.Module, ABC, Generic[Ready, Kept]):
    """K distributions of one family.

    ``Ready`` is what all blocks of rows share at given parameters, ``Kept`` what the scores of a
    block leave for its statistics.
    """

    support: Support
    count: int  # K

    @property
    def together(self) -> int:
        """Rows of a block at least, where a block costs much whatever its rows."""
        return 1

    def resize_buffers(self, weights: dict[str, Tensor]) -> None:
        """Before saved weights are taken in: resize what the data decided the size of; nothing by
        default.
        """

    @abstractmethod
    def ready(self, *, averaged: bool = False) -> Ready:
        """What all blocks of rows share at these parameters, computed once for them; as an E-step
        needs it, ``averaged`` over parameters that have a posterior.
        """

    @abstractmethod
    def scores(self, x: Tensor, ready: Ready) -> tuple[Tensor, Kept]:
        """log p_k(x) of what was observed, ``(B, D) -> (K, B)``, and the work that
        :meth:`statistics` can use again.
        """

    @abstractmethod
    def statistics(self, r: Tensor, kept: Kept) -> Statistics:
        """Expected sufficient statistics under responsibilities r, ``(K, B)``, of the rows that
        ``kept`` comes from.
        """

    @abstractmethod
    def maximize(self, statistics: Statistics) -> None:
        """Set the parameters to those that make the expected log-likelihood largest."""

    @abstractmethod
    def spread(self, mean: Tensor, variance: Tensor, generator: Generator) -> None:
        """Set all components to the whole data's column means and variances, ``(D,)``: where a
        start begins.
        """

    @abstractmethod
    def draw(self, index: Tensor, *, generator: Generator) -> Tensor:
        """One row from each of the components ``index``, ``(n,) -> (n, D)``."""

    @abstractmethod
    def fill_mean(self, x: Tensor) -> Tensor:
        """Expectation of every value given the observed ones, by component, ``(B, D) -> (K, B,
        D)``.
        """

    def fill_likely(self, x: Tensor, r: Tensor) -> Tensor:
        """The rows with missing values at their posterior mean, or at the most probable one where
        they are discrete, ``(B, D), (K, B) -> (B, D)``.
        """
        return torch.einsum("kb,kbd->bd", r, self.fill_mean(x))

    @abstractmethod
    def fill_draw(self, x: Tensor, index: Tensor, *, generator: Generator) -> Tensor:
        """The rows with missing values drawn given the observed ones, from the components
        ``index``, ``(B, D)``.
        """

    def cells(self, missing: bool) -> int:
        """Numbers that the work on one row takes, so that blocks of rows fit a cache."""
        return 4 * (self.count + self.support.width)

    @abstractmethod
    def freedom(self) -> int:
        """Number of free parameters."""

    def embed(self, x: Tensor) -> Tensor:
        """Rows as points whose distances mean something, for k-means++."""
        return x

    def prior(self) -> Tensor | float:
        """The log prior of the parameters, where there is one; it is maximized with the
        likelihood.
        """
        return 0.0

    def fit_warnings(self) -> list[str]:
        """What had to be held back to keep the parameters proper, one sentence each."""
        return []


class Factorized(Component[Tensor, Tensor]):
    """Columns that are independent within a component, each in an exponential family: features of a
    column ``(F, D, B)``.

    Missing values simply drop out of the sums: the mask of observed values is the first feature.
    """

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Mask and sufficient statistics of each column, zero where missing, ``(B, D) -> (F, D,
        B)``.
        """

    @abstractmethod
    def natural(self) -> Tensor:
        """Their coefficients, minus the log normalizer first, ``(K, F, D)``."""

    def base(self, x: Tensor) -> Tensor | float:
        """b(x), ``(B, D) -> (B,)``."""
        return 0.0

    @abstractmethod
    def mean(self) -> Tensor:
        """Column means by component, ``(K, D)``."""

    def ready(self, *, averaged: bool = False) -> Tensor:
        return self.natural().flatten(1)

    def scores(self, x: Tensor, ready: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(x)
        return ready @ features.flatten(0, 1) + self.base(x), features

    def statistics(self, r: Tensor, kept: Tensor) -> Statistics:
        return {"t": (kept.flatten(0, 1) @ r.mT).mT.unflatten(1, kept.shape[:2])}

    def fill_mean(self, x: Tensor) -> Tensor:
        return torch.where(x.isnan(), self.mean()[:, None], x)

    def fill_draw(self, x: Tensor, index: Tensor, *, generator: Generator) -> Tensor:
        return torch.where(x.isnan(), self.draw(index, generator=generator), x)


class Located(Component[Ready, Kept]):
    """Gaussian components: means ``location`` (K, D), moments about ``origin`` (D,), and variances
    that are ``held`` above a floor.
    """

    location: nn.Parameter
    origin: Tensor
    held: Tensor
    floor: float
    tied: bool = False
    held_back: ClassVar[str]  # what a fit says of variances at the floor

    def locate(self, count: int, visible: int, floor: float, device: torch.device) -> None:
        """Put all components at zero."""
        self.count, self.support, self.floor = count, Real(visible), floor
        zeros = torch.zeros(count, visible, dtype=torch.float64, device=device)
        self.location = nn.Parameter(zeros)
        self.register_buffer("origin", zeros.new_zeros(visible))
        kept = torch.zeros(1 if self.tied else count, dtype=torch.bool, device=device)
        self.register_buffer("held", kept)

    @torch.no_grad()
    def spread(self, mean: Tensor, variance: Tensor, generator: Generator) -> None:
        self.origin.copy_(mean)
        self.location.copy_(mean.expand_as(self.location))

    def fit_warnings(self) -> list[str]:
        if not self.held.any():
            return []
        whose = "all components" if self.tied else names_of(self.held)
        return [self.held_back.format(whose=whose, floor=self.floor)]


def observed(x: Tensor) -> tuple[Tensor, Tensor]:
    """The mask of observed values as numbers, and the rows with zeros where they are missing, both
    ``(D, B)``.
    """
    x = x.mT.contiguous()
    mask = ~x.isnan()
    return mask.to(x), torch.where(mask, x, 0.0)


def means_of(total: Tensor, n: Tensor, otherwise: Tensor) -> Tensor:
    """total / n, and ``otherwise`` where nothing was seen."""
    return torch.where(n > 0, total / n.clamp_min(torch.finfo(n.dtype).tiny), otherwise)


def names_of(flags: Tensor) -> str:
    """Components whose flag is set, in words.

    >>> names_of(torch.tensor([True, False, True])), names_of(torch.tensor([False, True]))
    ('components 0, 2', 'component 1')
    """
    found = flags.nonzero().flatten().tolist()
    listed = ", ".join(map(str, found[:8])) + ", ..." * (len(found) > 8)
    return f"component{'s' * (len(found) > 1)} {listed}"


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
