"""A run and the data it was fitted to, opened together."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partita.core import rng
from partita.core.checks import check_choice
from partita.core.errors import DataError, RunError
from partita.core.quantity import Quantity
from partita.data import Dataset, Rows
from partita.data.corpus import open_dataset
from partita.training import Run, load
from partita.training.encoded import evaluate_encoded
from partita.training.encoding import Encoding

SPLITS = ("test", "train", "valid")
SPLIT_KEY = 7  # grey levels of a scored split are made binary by these draws, the same in every command


@dataclass(frozen=True)
class Opened:
    """A run with its encoding and what its config says about the data."""

    run: Run
    encoding: Encoding
    data: dict[str, Any]

    def dataset(self, name: str | None) -> Dataset:
        """The data given, made binary in the way of the run; by default the run's own."""
        source = name or self.data.get("source")
        if source is None:
            raise RunError(f"evaluate: DATA must be given for {self.run.folder}, whose config names none.")
        how = {"words": self.encoding.kind == "category", "missing": "missing" in self.run.model.offers}
        return open_dataset(source, binarize=self.data.get("binarize") or "none", reading=self.data.get("reading"), **how)

    def score(self, rows: Rows, evaluator: Any, generator: Any) -> Quantity:
        """Mean log-likelihood per row in the units of the data."""
        x = split_table(rows)
        return evaluate_encoded(self.run.model, self.encoding, x, evaluator=evaluator, generator=generator)


def open_run(folder: Path) -> Opened:
    """A saved run, ready to be used."""
    run = load(folder)
    encoding = Encoding.from_json(run.config.get("encoding"), run.model.support.width)
    return Opened(run, encoding, run.config.get("data") or {})


def pick_split(dataset: Dataset, split: str) -> Rows:
    """The rows of a split, or one sentence about which splits there are."""
    check_choice("evaluate", "split", split, SPLITS)
    rows = getattr(dataset, split)
    if rows is None:
        there = ", ".join(name for name in SPLITS if getattr(dataset, name) is not None)
        raise DataError(f"evaluate: split must be one of {there} for {dataset.name!r}; got {split!r}, which it does not have.")
    return rows


def split_table(rows: Rows) -> np.ndarray:
    """All rows in float64; grey levels drawn in the same way each time."""
    return rows.tensor(rng.keyed(SPLIT_KEY, len(rows))).numpy().astype(np.float64)


def free_path(base: Path, suffix: str = "") -> Path:
    """``base-N`` with the first number that is free."""
    taken = {path.name for path in base.parent.glob(f"{base.name}-*")} if base.parent.exists() else set()
    return next(base.with_name(f"{base.name}-{n}{suffix}") for n in range(1, len(taken) + 2) if f"{base.name}-{n}{suffix}" not in taken)


def short_name(source: str) -> str:
    """A data name that can be part of a folder's name.

    >>> short_name("tables/my data.csv"), short_name("debd/nltcs")
    ('my-data', 'debd-nltcs')
    """
    base = Path(source.partition(":")[0])
    name = base.stem if base.suffix else source
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-") or "data"
