"""What a page is about: a run, the data it was fitted to, its score, and draws from its model."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.protocols import DirectedModel, EnergyModel, Model
from partita.core.quantity import Quantity
from partita.core.support import Sequence
from partita.datasets import Dataset
from partita.datasets.text import Alphabet
from partita.evaluators.partition.reverse_ais import exact_draws
from partita.experiment.saved import text_alphabet
from partita.runtime.files import JsonObject
from partita.samplers.run import Draws
from partita.samplers.run import run as run_chains
from partita.tables import Column, Rows, Schema
from partita.tables.encoding import CUT, Encoding
from partita.tables.schema import Labels
from partita.training import Run

DRAWS = 1000  # exact ones, to be counted
CHAINS = 64  # where draws come from chains, as in partita sample
BURN_IN = 1000
FOLLOWED = 100  # steps on which the chains are watched
SEQUENCES = 6
IMAGES = 64
KEY = 9  # what the page's random numbers are for


class Drawn(NamedTuple):
    """Draws in the units of the table, and the chains they come from, where they do."""

    x: np.ndarray  # (n, D)
    independent: np.ndarray  # those of them that do not follow from one another
    chains: Draws | None = None


@dataclass(frozen=True)
class Subject:
    """A run, opened with all that a page says about it.

    Arguments:
        run: With its model.
        encoding: Between the table's units and the model's.
        dataset: None where it cannot be found any more.
        score: Mean log-likelihood per row of ``split``; None where there is none.
        split: Which rows were scored.
        problem: Why the data or the score are missing, in one sentence.
    """

    run: Run
    encoding: Encoding
    dataset: Dataset | None = None
    score: Quantity | None = None
    split: str = "test"
    problem: str = ""

    @property
    def model(self) -> Model:
        return self.run.model

    @property
    def data(self) -> JsonObject:
        """What the config says about the data."""
        return self.run.config.get("data") or {}

    @property
    def shape(self) -> tuple[int, ...] | None:
        """How a row is drawn as an image."""
        shape = self.data.get("shape")
        return tuple(shape) if shape else None

    @property
    def columns(self) -> list[str]:
        return self.data.get("columns") or [f"x{i + 1}" for i in range(self.model.support.width)]

    @cached_property
    def mixed(self) -> tuple[Column, ...]:
        """The columns of a table of several kinds; none of other tables."""
        schema = self.data.get("schema") if self.encoding.kind == "mixed" else None
        return Schema.from_json(schema).used if schema else ()

    @property
    def labels(self) -> list[Labels]:
        """The words that values of each column stand for; none of numbers."""
        return [c.labels for c in self.mixed] or [self.encoding.labels] * len(self.columns)

    @property
    def real(self) -> np.ndarray:
        """Whether each column is real, ``(D,)``."""
        mixed = [column.law == "real" for column in self.mixed]
        return np.array(mixed or [not self.discrete] * len(self.columns))

    @property
    def sequential(self) -> bool:
        return isinstance(self.model.support, Sequence)

    @property
    def discrete(self) -> bool:
        return self.model.support.discrete

    @property
    def planar(self) -> bool:
        """Whether rows are points in the plane."""
        return self.model.support.width == 2 and not self.discrete and not self.mixed

    @property
    def alphabet(self) -> Alphabet | None:
        """What tokens stand for, where rows are text."""
        return text_alphabet(self.run.config)

    @property
    def rows(self) -> Rows | None:
        """The rows that were scored."""
        return None if self.dataset is None else getattr(self.dataset, self.split)

    def generator(self, purpose: int) -> torch.Generator:
        """Randomness for one part of the page, the same each time the page is made."""
        return rng.keyed(self.run.config.get("seed") or 0, KEY, purpose)

    def some_rows(self, n: int) -> np.ndarray | None:
        """Some of the scored rows, (n, D), in the units in which draws are shown; None where the
        data are gone.
        """
        x = self.some_raw_rows(n)
        return x if x is None or self.encoding.kind not in CUT else self.encoding.encode(x)

    def some_raw_rows(self, n: int) -> np.ndarray | None:
        """Some of the scored rows as the table has them."""
        if self.rows is None:
            return None
        order = rng.permutation(len(self.rows), self.generator(0))[:n].sort().values
        return self.rows.take(order).tensor(self.generator(1)).numpy().astype(np.float64)

    def shown(self, z: Tensor) -> np.ndarray:
        """Rows of the model in the units of the table."""
        return self.encoding.decode(z.double().cpu().numpy())

    @cached_property
    def drawn(self) -> Drawn:
        """Draws of the model: exact where it can, else chains that are watched after a
        burn-in.
        """
        generator, model = self.generator(2), self.model
        if isinstance(model, DirectedModel):
            n = DRAWS
            if self.sequential:
                n = SEQUENCES if self.shape is None else IMAGES
            x = self.shown(model.draw(n, generator=generator))
            return Drawn(x, x)
        assert isinstance(model, EnergyModel)
        if capability.smallest_bits(model) <= capability.CHEAP_BITS:
            x = self.shown(exact_draws(model, DRAWS, generator=generator))
            return Drawn(x, x)
        chains = follow(model, generator)
        return Drawn(self.shown(spread(chains.x, DRAWS)), self.shown(chains.x[:, -1]), chains)


def spread(x: Tensor, n: int) -> Tensor:
    """About ``n`` states of all chains ``(C, steps, D)``, as far apart in time as they can be,
    every chain in turn.

    >>> spread(torch.arange(6.0).view(2, 3, 1), 4).flatten().tolist()
    [0.0, 3.0, 2.0, 5.0]
    """
    steps = torch.linspace(0, x.shape[1] - 1, max(1, n // len(x))).round().long()
    return x[:, steps].transpose(0, 1).flatten(0, 1)


def follow(model: EnergyModel, generator: torch.Generator) -> Draws:
    """Chains from the reference, watched for some steps after a burn-in."""
    start = model.reference().draw(CHAINS, generator=generator)
    sampler = capability.default("sampler", model)
    return run_chains(model, sampler, start, draws=FOLLOWED, burn_in=BURN_IN, generator=generator)
