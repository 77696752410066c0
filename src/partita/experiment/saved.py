"""A run and the data it was fitted to, opened together, and its scores in the units of the
data.
"""

import math
import re
import warnings
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.arguments import check_choice
from partita.core.protocols import (
    Capability,
    DirectedModel,
    EnergyModel,
    LikelihoodEvaluator,
    Model,
    PartitionEvaluator,
)
from partita.core.quantity import Quantity
from partita.datasets import Dataset
from partita.datasets.open import Reading, open_dataset
from partita.datasets.text import Alphabet
from partita.errors import DataError, PartitaWarning, RunError, invalid, unusable
from partita.evaluators import evaluate, likelihood
from partita.evaluators.partition.reverse_ais import exact_draws
from partita.runtime.files import JsonObject, read_record
from partita.samplers import sample
from partita.tables import Encoding, Rows, Schema
from partita.training import Run, load
from partita.training.run import CHANGED

Evaluator = LikelihoodEvaluator | PartitionEvaluator | Quantity
SPLITS = ("test", "train", "valid", "all")
# gray levels of a scored split are made binary by these draws, the same in every command
SPLIT_KEY = 7
SCORING = 1  # names the stream of random numbers that scores draw from


@dataclass(frozen=True)
class DataRecord:
    """The data of a run in its config: what finds them again, from any working directory.

    Arguments:
        name: For people.
        source: A name or a path.
        binarize: How gray levels are made binary.
        rows: (N, D) of the training set.
        shape: Of a row that is an image.
        columns: Names.
        reading: How sequences are read.
        schema: What the columns of a table hold.
    """

    name: str = "data"
    source: str | None = None
    binarize: str | float | None = None
    rows: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()
    reading: JsonObject | None = None
    schema: tuple[JsonObject, ...] = ()

    @classmethod
    def of(cls, source: str, dataset: Dataset) -> "DataRecord":
        """The record of a data set that was opened."""
        train = dataset.train
        return cls(
            dataset.name,
            found_at(source),
            train.binarize,
            (len(train), train.width),
            dataset.shape or (),
            dataset.columns or (),
            dataset.reading,
            () if train.schema is None else tuple(train.schema.as_json()),
        )

    def as_json(self) -> JsonObject:
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }

    @property
    def table_schema(self) -> Schema | None:
        """What the columns of a table hold; None where it is not known."""
        return Schema.from_json(self.schema) if self.schema else None

    def opened(self, source: str, *, words: bool, missing: bool) -> Dataset:
        """A data set that is read as the run's own was."""
        return open_dataset(
            source,
            binarize=self.binarize or "none",
            reading=self.reading,
            words=words,
            missing=missing,
            columns=self.table_schema,
        )


@dataclass(frozen=True)
class SavedRun:
    """A run with its encoding and what its config says about the data."""

    run: Run
    encoding: Encoding
    data: DataRecord = DataRecord()

    def dataset(self, name: str | None) -> Dataset:
        """The data given, made binary in the way of the run; by default the run's own."""
        source = name or self.data.source
        if source is None:
            raise RunError(
                f"evaluate: DATA must be given for {self.run.folder}, whose config names none."
            )
        found = self.data.opened(
            source,
            words=self.encoding.kind in ("category", "mixed"),
            missing=Capability.MISSING in self.run.model.capabilities,
        )
        width = len(self.encoding.shift)
        if name is None and found.train.width != width:
            raise DataError(
                f"load: {source} must be the data that the run was fitted to, {width} values in a "
                f"row; got {found.train.width}. Restore the file."
            )
        return found

    def learned_from(self, name: str | None) -> bool:
        """Whether data so called are those that the run was fitted to."""
        return name is None or self.data.source in (name, found_at(name))

    def has_changed(self, dataset: Dataset) -> bool:
        """Whether the run's own data have more or fewer rows now: those that are held out may then
        be among those that it learned from.
        """
        return bool(self.data.rows) and len(dataset.train) != self.data.rows[0]

    def score(
        self, rows: Rows, evaluator: Evaluator | None, generator: torch.Generator
    ) -> Quantity:
        """Mean log-likelihood per row in the units of the data."""
        if isinstance(rows, Rows) and len(rows) * rows.width > likelihood.CELLS_AT_ONCE:
            return likelihood.in_parts(
                self.run.model,
                rows,
                evaluator,
                lambda x, known: self._score(x.double().numpy(), known, generator),
                generator=generator,
            )
        return self._score(split_table(rows), evaluator, generator)

    def _score(
        self, x: np.ndarray, evaluator: Evaluator | None, generator: torch.Generator
    ) -> Quantity:
        return evaluate_encoded(
            self.run.model, self.encoding, x, evaluator=evaluator, generator=generator
        )


def text_alphabet(config: JsonObject) -> Alphabet | None:
    """What tokens stand for in a run whose rows are text; None of others."""
    reading = (config.get("data") or {}).get("reading")
    if reading is None or config["model"].get("element") != "categorical":
        return None
    known = {name: reading[name] for name in ("tokens", "symbols") if reading.get(name) is not None}
    return Reading(**known).alphabet


def found_at(source: str) -> str:
    """A source by a name that finds it from any working directory; the name of an array in a file
    stays behind its colon.
    """
    base, colon, array = source.rpartition(":")
    if colon and not Path(source).exists():
        return f"{Path(base).resolve()}:{array}" if Path(base).is_file() else source
    return f"{Path(source).resolve()}" if Path(source).is_file() else source


def open_run(folder: Path, *, allow_diverged: bool = False) -> SavedRun:
    """A saved run, ready to be used; one that diverged only if that is allowed, with a warning."""
    run = load(folder, allow_diverged=allow_diverged)
    if run.stopped == "diverged":
        text = f"the fit in {folder} diverged: what it left may be the weights that it began with."
        warnings.warn(text, PartitaWarning, stacklevel=2)
    if Capability.EMBEDS in run.model.capabilities:
        remedy = "Use it in Python, with partita.load or partita.estimators.load."
        raise RunError(
            f"RUN must hold a density; {folder} holds {run.model.title()}, which embeds rows and "
            f"scores none. {remedy}"
        )
    encoding = Encoding.from_json(run.config.get("encoding"), run.model.support.width)
    made_in_python = run.config.get("estimator") or {}
    known = {
        name: made_in_python[name] for name in ("columns", "schema") if made_in_python.get(name)
    }
    data = read_record(DataRecord, run.config.get("data") or known, "config.json: data")
    _check_widths(data, run.model.support.width)
    if CHANGED in run.warnings:
        warnings.warn(CHANGED, PartitaWarning, stacklevel=2)
    return SavedRun(run, encoding, data)


def _check_widths(data: DataRecord, width: int) -> None:
    """Refuse a config whose columns, schema or shape are not as wide as the model."""
    schema, shape = data.table_schema, data.shape or [width]
    widths = {
        "columns": len(data.columns or range(width)),
        "schema": width if schema is None else len(schema.used),
        "shape": math.prod(shape) if min(shape) > 0 else 0,
    }
    for name, got in widths.items():
        if got != width:
            raise RunError(
                f"load: config.json: data: {name} must be of {width} values in a row, as the model "
                f"is; got {got}."
            )


def pick_split(dataset: Dataset, split: str) -> Rows:
    """The rows of a split, or one sentence about which splits there are."""
    check_choice("evaluate", "split", split, SPLITS)
    rows = dataset.whole() if split == "all" else getattr(dataset, split)
    if rows is None:
        there = ", ".join(name for name in SPLITS if getattr(dataset, name, dataset) is not None)
        got = f"{split!r}, which it does not have"
        raise unusable("evaluate", "split", f"be one of {there} for {dataset.name!r}", got)
    return rows


def split_table(rows: Rows) -> np.ndarray:
    """All rows in float64; gray levels drawn in the same way each time."""
    return rows.tensor(rng.keyed(SPLIT_KEY, len(rows))).numpy().astype(np.float64)


def free_path(base: Path, suffix: str = "") -> Path:
    """``base-N`` with the first number that is free."""
    paths = (base.with_name(f"{base.name}-{n}{suffix}") for n in count(1))
    return next(path for path in paths if not path.exists())


def short_name(source: str) -> str:
    """A data name that can be part of a folder's name.

    >>> short_name("tables/my data.csv"), short_name("debd/nltcs")
    ('my-data', 'debd-nltcs')
    """
    base = Path(source.partition(":")[0])
    name = base.stem if base.suffix else source
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-") or "data"


def evaluate_encoded(
    model: Model,
    encoding: Encoding,
    x: np.ndarray,
    *,
    evaluator: LikelihoodEvaluator | PartitionEvaluator | Quantity | None = None,
    owner: str = "evaluate",
    generator: torch.Generator,
) -> Quantity:
    """Mean log-likelihood per row of ``x`` in its own units: of the encoded rows, with the Jacobian
    of what was observed.
    """
    if x.shape[1] != len(encoding.shift):
        raise invalid(
            owner, "X", f"have shape (*, {len(encoding.shift)}) to match {model.title()}", x.shape
        )
    z = torch.from_numpy(encoding.encode(encoding.check(x, owner)))
    q = evaluate(model, z, evaluator=evaluator, generator=generator)
    shifts = encoding.log_jacobians(x)
    if q.kind == "none":  # no likelihood: a statistic of the encoded rows
        return q
    shift, alike = (
        (float(shifts[0]), True) if np.ptp(shifts) == 0 else (float(shifts.mean()), False)
    )
    rows = q.details["rows"] + (shift if alike else torch.from_numpy(shifts).to(q.details["rows"]))
    details = {**q.details, "rows": rows}
    if "per_step" in details:
        details["per_step"] += shift * len(x) / details["steps"]
    se = q.se_data if alike else float(rows.std()) / len(x) ** 0.5
    return replace(q + shift, se_data=se, details=details)


def draw_rows(
    model: EnergyModel | DirectedModel, n: int, burn_in: int | None, generator: torch.Generator
) -> Tensor:
    """``n`` draws: exact by enumeration where the states are few and no burn-in is given, else
    the ends of chains.
    """
    few_states = capability.smallest_bits(model) <= capability.CHEAP_BITS
    if burn_in is None and few_states and isinstance(model, EnergyModel):
        return exact_draws(model, n, generator=generator)
    return sample(model, n, burn_in=1000 if burn_in is None else burn_in, generator=generator)
