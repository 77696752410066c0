"""What a table holds, and the settings of a family that follow from it: the same for a fit and for
a comparison.
"""

import numpy as np
import torch

from partita.core.protocols import Settings
from partita.datasets import Dataset, Sequences
from partita.families.base import FAMILIES
from partita.tables import Rows, Schema
from partita.tables.categories import categories_of, looks_categorical, to_codes
from partita.tables.encoding import Encoding, Kind, infer_kind

ALONE: dict[str, Kind] = {"binary": "binary", "category": "category", "real": "real"}
# encodings that cannot take every number
NARROW = ("binary", "spin", "signs", "spins", "count", "category", "mixed")


def table_kind(dataset: Dataset) -> Kind:
    """What data hold: sequences; of tables columns of different sorts, zeros and ones, spins,
    categories (words, or whole numbers all of which were seen in training), else reals.

    >>> (
    ...     table_kind(Dataset("coins", Rows([[0, 1], [1, 1]]))),
    ...     table_kind(Dataset("stars", Rows([[1, 5], [3, 2]]))),
    ... )
    ('binary', 'category')
    """
    if isinstance(dataset.train, Sequences):
        return "steps"
    if dataset.train.schema is not None and dataset.train.schema.by_column:
        return _kind_by_column(dataset.train.schema)
    held = infer_kind(dataset.train)
    if held == "real" and (
        dataset.train.labels or (looks_categorical(dataset.train) and _all_seen(dataset))
    ):
        return "category"
    return held


def settings_by_table(name: str, kind: Kind, rows: Rows) -> Settings:
    """Settings that make a family take rows as what their table holds.

    >>> settings_by_table("mixture", "binary", Rows([[0, 1], [1, 1]]))
    {'component': 'bernoulli'}
    """
    family = FAMILIES[name]
    by_column = family.missing == "mixed" and rows.schema is not None and not rows.complete()
    return {} if by_column else dict(family.by_kind.get(kind, {}))


def check_held_out(dataset: Dataset, encoding: Encoding, owner: str) -> None:
    """Rows to validate and to test on hold what the encoding can take: found before a fit, not
    after it.
    """
    if encoding.kind not in NARROW or dataset.train.binarize is not None:
        return
    for part, rows in (("validation", dataset.valid), ("test", dataset.test)):
        first = 0
        for x in rows.parts() if rows is not None else ():
            encoding.check(x.astype(np.float64), f"{owner}: {part} rows", first)
            first += len(x)


def table_numbers(rows: Rows) -> np.ndarray:
    """All rows in float64; gray levels are made binary by draws of a fixed seed."""
    return rows.tensor(torch.Generator().manual_seed(0)).numpy().astype(np.float64)


def _kind_by_column(schema: Schema) -> Kind:
    """What a table holds whose columns are read by their kinds; one kind of all counts as such,
    for families that take that alone.
    """
    kinds = {column.kind for column in schema.used}
    return ALONE.get(kinds.pop(), "mixed") if len(kinds) == 1 else "mixed"


def _all_seen(dataset: Dataset) -> bool:
    """Whether held-out rows have no value that training rows do not have in the same column."""
    lists = categories_of(dataset.train)
    others = [part for part in (dataset.valid, dataset.test) if part is not None]
    return all(
        (to_codes(x.astype(np.float64), lists) != -1).all() for part in others for x in part.parts()
    )
