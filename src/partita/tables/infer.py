"""The kind of each column of a table: inferred from its values, or overridden by name; and what
makes a density of columns infinite: values that repeat, and copies of other columns.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np
import torch
from torch import Tensor

from partita.core.arguments import check_choice
from partita.errors import Argument, DataError, did_you_mean, invalid, one_line, unusable
from partita.tables.csv import EXACT, is_number
from partita.tables.schema import (
    KINDS,
    Column,
    Labels,
    Schema,
    Series,
    check_distinct,
    check_names,
    first_few,
    is_whole,
    listed,
)

MOST_LEVELS = 64  # words of a column that are taken for categories, whatever the number of rows
ROWS_PER_LEVEL = 10  # where there are more words; free text has fewer rows for each
FEW_LEVELS = 10  # words that may be categories although most of them are seen but once
INDEX = re.compile(r"__index_level_\d+__")  # where pandas keeps the index of a frame in a file
# 1,234.5 and 12 %; also with the typographic minus sign, and with spaces that do not break
MARKED = re.compile(
    r"[+\-\u2212]?[$€£]?(\d{1,3}([,.' \u00a0\u202f]\d{3})+|\d+)([.,]\d+)?\s?[%€$£]?"
)
UNREADABLE = {  # what is held, and the remedy
    "date": ("dates or times", "Turn it into a number, such as days since a day"),
    "other": ("lists, structures or other values that are no numbers", "Turn it into numbers"),
}
ALLOWED = {
    "real": "numbers",
    "binary": "only 0 and 1",
    "count": "counts 0, 1, 2, ...",
}

ATOM = 0.05  # share of the rows that one value may take up in a column of real numbers
FEW = 0.1  # different values in a column of real numbers, at least, as a share of the rows
LEAST_ROWS = 40  # with fewer a share says nothing
# share of a standardized column's variance that is left given the others, below which it is a copy
DEPENDENT = 1e-9

KindOverrides = Mapping[str, str]  # kinds by name; * and ? in a name stand for any letters


def infer_schema(
    names: Sequence[str],
    series: Iterable[Series],
    overrides: KindOverrides | None = None,
    owner: str = "load",
) -> Schema:
    """The schema of columns, which are read one at a time.

    >>> columns = [Series("age", np.array([31.0, 4.0])), Series("sex", np.array([0.0, 1.0]))]
    >>> [column.kind for column in infer_schema(["age", "sex"], columns, {"age": "count"}).columns]
    ['count', 'binary']
    """
    check_names(names, owner)
    kinds = resolve(overrides, names, owner)
    columns: list[Column] = []
    problems: dict[str, DataError] = {}
    for one in series:
        try:
            columns.append(column_of(one, kinds.get(one.name), owner))
        except DataError as error:
            problems[one.name] = error
    if problems:
        raise _all_of(problems)
    if all(column.kind == "ignore" for column in columns):
        allowed = "be left to learn from"
        raise unusable(
            owner, "at least one column", allowed, f"{len(columns)} that are all ignored"
        )
    return Schema(tuple(columns))


def _all_of(problems: dict[str, DataError]) -> DataError:
    """What is wrong with the first column that cannot be read, and the names of the others."""
    first, *others = problems
    if not others:
        return problems[first]
    them = "it is" if len(others) == 1 else "they are"
    more = f" {listed(map(repr, others))} cannot be read as {them} either."
    return DataError(*problems[first].args, more)


def resolve(overrides: KindOverrides | None, names: Sequence[str], owner: str) -> dict[str, str]:
    """The kind of each column that is overridden; a name or pattern of no column is refused."""
    overrides = {} if overrides is None else overrides
    if not isinstance(overrides, Mapping) or not all(isinstance(name, str) for name in overrides):
        allowed = "say kinds by name, as {'age': 'count'} does"
        raise invalid(owner, "columns", allowed, one_line(overrides))
    known = set(names)
    found: dict[str, str] = {}
    for pattern, kind in overrides.items():
        check_choice(owner, f"the kind of column {pattern!r}", kind, KINDS)
        matches = (
            [pattern]
            if pattern in known
            else [name for name in names if fnmatchcase(name, pattern)]
        )
        if not matches:
            allowed = f"name one of the columns {first_few(names, 8)}"
            hint = did_you_mean(pattern, names)
            raise invalid(owner, Argument("columns"), allowed, repr(pattern), hint)
        found |= dict.fromkeys(matches, kind)
    return found


def column_of(series: Series, override: str | None, owner: str) -> Column:
    """The column of a schema: of the kind that is given, else of the kind that its values have."""
    missing = series.counts()[1]
    if override == "ignore" or (override is None and INDEX.fullmatch(series.name)):
        return Column(series.name, "ignore", series.dtype, missing=missing)
    _check_readable(series, override, owner)
    kind = override or kind_of(series)
    _check_kind(series, kind, owner)
    levels = tuple(np.unique(series.observed).tolist()) if kind == "category" else ()
    # dates that are overridden as words
    dtype = "string" if series.labels and series.dtype == "date" else series.dtype
    labels = series.labels if kind == "category" else {}
    return Column(series.name, kind, dtype, levels, labels, missing, override is not None)


def kind_of(series: Series) -> str:
    """Words are categories, zeros and ones binary, whole numbers from 0 or 1 up counts, other
    numbers real.
    """
    if series.labels or series.dtype == "category":
        return "category"
    if not outside("binary", series.observed).any():
        return "binary"
    counts = not outside("count", series.observed).any()
    return "count" if counts and series.observed.min() <= 1 else "real"


def _check_readable(series: Series, override: str | None, owner: str) -> None:
    """Refuse what no kind can take, with a way to go on."""
    name, there = series.title, series.observed
    leave = ("or leave it out with ", Argument("columns", series.name, "ignore"), ".")
    if series.dtype in UNREADABLE and not (series.labels and override == "category"):
        got, remedy = UNREADABLE[series.dtype]
        raise unusable(owner, name, "hold numbers or words", got, (f"{remedy}, ", *leave))
    if len(there) == 0:
        raise unusable(owner, name, "have an observed value", "none", ("Fill it in, ", *leave))
    if series.labels and override is None:
        _check_words(series, leave, owner)
    huge = (np.abs(there) >= EXACT).any() and is_whole(there)
    if huge and not series.labels and override in (None, "category"):
        largest = float(there[np.abs(there).argmax()])
        shown = f"{largest:.0f}" if abs(largest) < 1e21 else f"{largest:g}"
        remedy = (
            ("Read it as a real number with ", Argument("columns", series.name, "real"), ", ")
            if override is None
            else ("Turn them into words, ",)
        )
        raise unusable(
            owner,
            f"whole numbers of {name}",
            "lie below 2^53",
            f"{shown}, whose last digits would be lost",
            (*remedy, *leave),
        )


def _check_words(series: Series, leave: tuple[str | Argument, ...], owner: str) -> None:
    """Refuse words that are no categories: names or free text, and numbers with marks in them or
    with words among them.
    """
    words = series.labels.values()
    rows = series.counts()[0]
    others = [word for word in words if not is_number(word)]
    use = (Argument("columns", series.name, "category"), ", ", *leave)
    if others and all(map(MARKED.fullmatch, others)):
        got = f"numbers with marks in them, such as {others[0]!r}"
        remedy = ("Write them like 1234.5; or use ", *use)
        raise unusable(owner, series.title, "hold plain numbers or words", got, remedy)
    once = rows < 2 * len(words) and series.dtype != "category"  # most are seen but once
    if len(words) > (FEW_LEVELS if once else max(MOST_LEVELS, rows / ROWS_PER_LEVEL)):
        got = f"{len(words)} different words in {rows} rows, as names or free text have"
        remedy = ("Use ", *use)
        if 0 < len(others) < len(words) / 2:
            got = f"numbers with words among them, such as {others[0]!r}"
            remedy = ("Leave fields empty where a number is missing; or use ", *use)
        raise unusable(owner, series.title, "hold numbers or a few categories", got, remedy)


def _check_kind(series: Series, kind: str, owner: str) -> None:
    """Refuse values that a kind cannot have."""
    if kind == "category":
        return
    if series.labels:
        words = list(series.labels.values())
        wrong = next((word for word in words if not is_number(word)), words[0])
    else:
        bad = series.observed[outside(kind, series.observed)]
        if not len(bad):
            return
        wrong = f"{bad[0]:g}"
    allowed = f"hold {ALLOWED[kind]} to be {kind}"
    raise unusable(owner, series.title, allowed, repr(wrong), "Choose another kind for it.")


def outside(kind: str, values: np.ndarray) -> np.ndarray:
    """Which values are none of a kind of number; real ones may be any."""
    if kind == "binary":
        return (values != 0) & (values != 1)
    if kind == "count":
        return (values < 0) | (values != np.round(values))
    return np.zeros(len(values), dtype=bool)


@dataclass
class Digest:
    """What a column shows when it is seen in chunks: the few of its values that settle its kind,
    and all of them where they are categories.

    Arguments:
        name: Of the column.
        dtype: What it is written as.
        every: Whether all its different values are kept, also of numbers.

    >>> seen = Digest("age", "float64")
    >>> for part in ([3.0, np.nan, 40.0], [7.0, 0.5, 12.0]):
    ...     seen.add(Series("age", np.array(part)))
    >>> seen.series().values.tolist(), seen.rows, seen.missing
    ([0.5, 3.0, 40.0], 6, 1)
    """

    name: str
    dtype: str
    every: bool = False
    values: np.ndarray = field(default_factory=lambda: np.zeros(0))
    labels: Labels = field(default_factory=dict)
    rows: int = 0
    missing: int = 0

    def add(self, chunk: Series) -> None:
        """Look at more of it."""
        there = chunk.observed
        self.rows += len(chunk.values)
        self.missing += len(chunk.values) - len(there)
        check_distinct(self.labels, chunk.labels)
        self.labels |= chunk.labels
        values = np.concatenate([self.values, there])
        every = self.every or self.labels or self.dtype == "category"
        self.values = np.unique(values if every else _telling(values))

    def series(self) -> Series:
        """As much of the column as a schema is inferred from."""
        return Series(self.name, self.values, self.dtype, self.labels, self.rows, self.missing)


def _telling(values: np.ndarray) -> np.ndarray:
    """The values that settle what numbers can be: the ends, one that is not whole, one that is
    neither 0 nor 1.
    """
    if not len(values):
        return values
    broken = values[values != np.round(values)][:1]
    other = values[outside("binary", values)][:1]
    return np.concatenate([[values.min(), values.max()], broken, other])


def repeating(x: Tensor) -> tuple[int, str] | None:
    """The first column with a value that takes up many rows, or with few different values, and
    which of the two; NaN is no value.

    >>> repeating(torch.arange(100.0)[:, None].clamp(max=80))
    (0, 'takes one value in 20 % of the rows')
    """
    for column, values in enumerate(x.T):
        there = values[~values.isnan()]
        if len(there) < LEAST_ROWS:
            continue
        different, counts = there.unique(return_counts=True)
        share = float(counts.max()) / len(there)
        if share > ATOM:
            return column, f"takes one value in {100 * share:.0f} % of the rows"
        if len(different) < FEW * len(there):
            return column, f"has {len(different)} different values in {len(there)} rows"
    return None


def copying(x: Tensor, context: Tensor) -> tuple[int, str] | None:
    """The first column that the context and the columns before it determine, and how: the diagonal
    of a QR factorization that vanishes.
    """
    table, C = torch.cat([context, x], 1), context.shape[1]
    if len(table) < 3:
        return None
    z = (table - table.mean(0)) / table.std(0).clamp_min(1e-300) / math.sqrt(len(table) - 1)
    alike = (z.mT @ z).abs()
    enough = len(z) > z.shape[1] + 1  # with fewer rows any column is a function of the others
    left = torch.linalg.qr(z, mode="r").R.diagonal().square() if enough else torch.ones_like(z[0])
    for column in range(max(1, C), table.shape[1]):
        twin = int(alike[:column, column].argmax())
        name = f"column {twin - C}" if twin >= C else f"column {twin} of the context"
        copied = float(alike[twin, column]) > 1 - DEPENDENT
        if copied or float(left[column]) < DEPENDENT:
            linear = "is a linear function of the columns before it"
            return column - C, f"is a copy of {name}" if copied else linear
    return None
