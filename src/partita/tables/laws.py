r"""What training rows say of columns: which law fits whole numbers, the likeliest one; the limits
and decimals of real ones.

Numbers from 0 or 1 up are counts, Poisson or overdispersed; the others are real, rounded to whole
numbers. Few of them, each seen more than once, may be categories too. All of these are compared as
masses of the same whole numbers, by the likelihood less what free parameters cost (BIC):

.. math:: \sum_n \log p(x_n \mid \hat\theta) - \tfrac P2 \log N          (theory/mixed_tables.md)

What is said of a column counts in any case, and a table whose columns are all of one sort is left
as it is: its columns are taken alike (:func:`partita.families.base.table_kind`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import optimize, special

from partita.tables.rows import Rows
from partita.tables.schema import Column, Schema, is_date, is_whole

MOST_ROWS = 100_000  # that are looked at, spread over all
MOST_VALUES = 24  # of whole numbers that may be categories
MOST_DECIMALS = 6  # that a column is said to be rounded to
ROWS_PER_VALUE = 5  # at least, on average
SIZES = (-7.0, 14.0)  # log sizes of a negative binomial, between which the best is sought
IN_WORDS = {
    "category": "categories",
    "count": "Poisson",
    "overdispersed": "negative binomial",
    "real": "rounded real numbers",
}


def with_laws(schema: Schema, train: Rows, others: Sequence[Rows] = ()) -> Schema:
    """The schema with the kind of each column of whole numbers that fits it best, and the limits
    and decimals of real ones, by training rows alone; ``others`` are the held-out parts, whose
    values are categories too.
    """
    some = np.linspace(0, len(train) - 1, min(MOST_ROWS, len(train))).astype(int)
    table = train.take(some).tensor().numpy().astype(np.float64)
    open_to_choice = [i for i, column in enumerate(schema.used) if _is_open(column)]
    open_to_choice = open_to_choice if schema.mixed else []
    chosen = {
        i: found
        for i in open_to_choice
        if (found := best_law(schema.used[i].kind, table[:, i])) is not None
    }
    coded = [i for i, (kind, _) in chosen.items() if kind == "category"]
    levels = dict(zip(coded, _levels(coded, (train, *others)), strict=True))
    columns = {
        schema.used[i].name: replace(
            schema.used[i], kind=kind, reason=reason, levels=levels.get(i, ())
        )
        for i, (kind, reason) in chosen.items()
    }
    used = [columns.get(column.name, column) for column in schema.used]
    limited = {
        column.name: _with_limits(column, values)
        for column, values in zip(used, table.T, strict=True)
    }
    return replace(
        schema, columns=tuple(limited.get(column.name, column) for column in schema.columns)
    )


def _with_limits(column: Column, values: np.ndarray) -> Column:
    """A real column with the range and the decimals of its values."""
    there = values[np.isfinite(values)]
    if column.kind != "real" or is_date(column.dtype) or not len(there):
        return column
    decimals = (d for d in range(MOST_DECIMALS + 1) if (there.round(d) == there).all())
    limits = float(there.min()), float(there.max())
    return replace(column, limits=limits, decimals=next(decimals, None))


def best_law(kind: str, x: np.ndarray) -> tuple[str, str] | None:
    """The kind of a column of counts or of real numbers by its values, NaN where they are missing,
    and why; None where they are too few, or not whole.

    >>> best_law("real", np.repeat([2007.0, 2008.0, 2009.0], 40))
    ('category', '3 whole numbers; categories beat rounded real numbers by 14 nats')
    """
    values, counts = np.unique(x[~np.isnan(x)], return_counts=True)
    n = int(counts.sum())
    if len(values) < 2 or not is_whole(values):
        return None
    laws = {"count": ("count", "overdispersed"), "real": ("real",)}[kind]
    scores = {law: LAWS[law](values, counts) for law in laws}
    few = len(values) <= MOST_VALUES and counts.min() > 1 and n >= ROWS_PER_VALUE * len(values)
    if few:
        mass = float(counts @ np.log(counts / n))
        scores["category"] = mass - (len(values) - 1) / 2 * math.log(n)
    best = max(scores, key=lambda law: scores[law])
    if best == kind or len(scores) == 1:
        return None
    other = max((law for law in scores if law != best), key=lambda law: scores[law])
    gain = f"{IN_WORDS[best]} beat{'s' * (best != 'category')} {IN_WORDS[other]}"
    if best == "category":
        seen = f"{len(values)} whole numbers"
    else:  # counts, not all of them 0
        mean = float(counts @ values) / n
        ratio = float(counts @ (values - mean) ** 2) / n / mean
        seen = f"variance {ratio:.3g} times the mean"
    return best, f"{seen}; {gain} by {scores[best] - scores[other]:.0f} nats"


def _poisson(values: np.ndarray, counts: np.ndarray) -> float:
    """The largest log-likelihood of a Poisson, less the price of its rate."""
    n, total = counts.sum(), counts @ values
    mass = total * math.log(total / n) - total - counts @ special.gammaln(values + 1)
    return float(mass - math.log(n) / 2)


def _negative_binomial(values: np.ndarray, counts: np.ndarray) -> float:
    """The same of a negative binomial, whose mean is that of the counts whatever its size."""
    n, total = counts.sum(), counts @ values
    mean, terms = total / n, counts @ special.gammaln(values + 1)

    def minus(log_size: float) -> float:
        r = math.exp(log_size)
        both = math.log(r + mean)
        lifted = counts @ special.gammaln(values + r) - n * special.gammaln(r)
        return float(terms - lifted - n * r * (log_size - both) - total * (math.log(mean) - both))

    best: Any = optimize.minimize_scalar(minus, bounds=SIZES, method="bounded")
    return float(-best.fun - math.log(n))


def _rounded_normal(values: np.ndarray, counts: np.ndarray) -> float:
    """The same of a normal that is rounded to whole numbers, at the moments of the numbers."""
    n = counts.sum()
    mean = counts @ values / n
    deviation = math.sqrt(max(counts @ (values - mean) ** 2 / n - 1 / 12, 1 / 12))
    z = np.abs(values - mean)  # of either tail the far end is subtracted
    near, far = (special.log_ndtr(-(z + step) / deviation) for step in (-0.5, 0.5))
    return float(counts @ (near + np.log1p(-np.exp(far - near))) - math.log(n))


LAWS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "count": _poisson,
    "overdispersed": _negative_binomial,
    "real": _rounded_normal,
}


def _is_open(column: Column) -> bool:
    """Whether the kind of a column is to be chosen by likelihood."""
    numbers = column.kind in ("count", "real") and not is_date(column.dtype)
    return numbers and not column.overridden


def _levels(columns: list[int], parts: Sequence[Rows]) -> list[tuple[float, ...]]:
    """All values of some columns, rising."""
    seen = [np.zeros(0)] * len(columns)
    for x in (x for part in parts for x in part.parts()):
        found = (x[:, i].astype(np.float64) for i in columns)
        seen = [
            np.unique(np.r_[old, new[~np.isnan(new)]]) for old, new in zip(seen, found, strict=True)
        ]
    return [tuple(values.tolist()) for values in seen]
