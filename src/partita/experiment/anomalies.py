"""Normal rows that others are ranked among: those of a file, or the run's own test rows, as far as
both hold the same columns.

A row with gaps is ranked among normal rows that hold all it holds, with its gaps made in them
(Zaffran, Dieuleveut, Josse & Romano 2023): where values are missing whatever they are, its place
among them is uniform. Where too few hold all of it, all are taken, and what they lack is drawn from
the model, given what they hold.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from partita.core import rng
from partita.core.protocols import Capability
from partita.errors import DataError, PartitaWarning
from partita.experiment.imputation import impute_encoded
from partita.experiment.input_table import read_input
from partita.experiment.saved import SPLIT_KEY, SavedRun, split_table
from partita.tables import Rows
from partita.tables.arrays import chunks
from partita.tables.on_disk import gathered

FEWEST = 99  # normal rows that tell one in a hundred
# normal rows, each once for every set of columns that rows hold; beyond it fewer are taken for each
MOST_SCORED = 1 << 20


@dataclass(frozen=True)
class Normal:
    """Rows to rank among.

    Arguments:
        opened: The run that draws what they lack.
        table: (n, D), columns in the order of the run, in memory or on disk.
        seed: Of what is drawn.
    """

    opened: SavedRun
    table: Any
    seed: int

    def seen_in(self, pattern: np.ndarray, patterns: int) -> Iterator[np.ndarray]:
        """Rows with gaps wherever the bits of a pattern, one of so many, have one; some rows after
        the others.
        """
        n, width = self.table.shape
        columns = np.unpackbits(pattern, count=width).astype(bool)
        at, table = np.flatnonzero(((self._held & pattern) == pattern).all(1)), self.table
        if len(at) < min(n, FEWEST):
            at, table = np.arange(n), self._whole
        if not columns.all():
            at = at[:: max(1, min(len(at) // FEWEST, patterns * n // MOST_SCORED))]
        for part in chunks(len(at), width):
            yield np.where(columns, table[at[part]], np.nan)

    def _parts(self) -> Iterator[np.ndarray]:
        return (self.table[part] for part in chunks(*self.table.shape))

    @cached_property
    def _held(self) -> np.ndarray:
        """Which values are there, a bit for each."""
        return np.concatenate([held_in(self.opened, x) for x in self._parts()])

    @cached_property
    def _whole(self) -> Any:
        """The rows with a draw in the place of every gap."""
        model = self.opened.run.model
        encoding = self.opened.encoding
        generator = rng.keyed(self.seed, 6)
        filled = (
            impute_encoded(model, encoding, x, "draw", "anomalies", generator=generator)
            for x in self._parts()
        )
        return gathered(filled, self.table.shape, np.float64)


def held_in(opened: SavedRun, x: np.ndarray) -> np.ndarray:
    """Which values of rows are there, a bit for each; a family that takes no gaps has NaN, if at
    all, where sequences have ended.
    """
    there = (
        ~np.isnan(x)
        if Capability.MISSING in opened.run.model.capabilities
        else np.ones(x.shape, dtype=bool)
    )
    return np.packbits(there, axis=1)


def normal_rows(opened: SavedRun, normal: Path | None, seed: int) -> Normal:
    """Normal rows that the fit has not seen: a file of them, else the run's own test rows."""
    if normal is not None:
        tabled = read_input(opened, normal, "anomalies --normal", closed=False)
        parts: Iterator[np.ndarray] = (x for _, x in tabled.parts())
        return Normal(opened, gathered(parts, tabled.shape, np.float64), seed)
    dataset = opened.dataset(None) if opened.data.get("source") else None
    test = None if dataset is None else dataset.test
    if dataset is None or test is None:
        raise DataError(
            "anomalies: --normal must be given for a run whose data have no test rows; got none. "
            "Give a file of normal rows."
        )
    if opened.has_changed(dataset):
        warnings.warn(
            f"{opened.data['name']} has other rows than when the run was fitted: it may have "
            "learned from some normal rows, and tail probabilities be too small. Give others with "
            "--normal.",
            PartitaWarning,
            stacklevel=2,
        )
    table = (
        gathered(_test_parts(test), (len(test), test.width), np.float64)
        if isinstance(test, Rows)
        else split_table(test)
    )
    return Normal(opened, table, seed)


def _test_parts(test: Rows) -> Iterator[np.ndarray]:
    generator = rng.keyed(SPLIT_KEY, len(test))
    for part in chunks(len(test), test.width):
        yield (
            test.batch(torch.arange(part.start, part.stop), generator=generator).x.double().numpy()
        )
