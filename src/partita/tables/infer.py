"""The kind of each column of a table: inferred from its values, or overridden by name; and what
makes a density of columns infinite: values that repeat, and copies of other columns.
"""

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from partita.core.arguments import check_choice
from partita.errors import (
    Argument,
    DataError,
    PartitaWarning,
    UnreadableColumns,
    did_you_mean,
    invalid,
    one_line,
    unusable,
)
from partita.tables.csv import EXACT, is_number
from partita.tables.dates import LIKE_DATES, date_pattern, has_clock, read_text
from partita.tables.schema import (
    KINDS,
    NOT_MODELED,
    Column,
    Labels,
    Schema,
    Series,
    check_distinct,
    check_names,
    first_few,
    is_date,
    is_whole,
    label_of,
    listed,
)

MOST_LEVELS = 64  # words of a column that are taken for categories, whatever the number of rows
ROWS_PER_LEVEL = 10  # where there are more words; free text has fewer rows for each
FEW_LEVELS = 10  # words that may be categories although most of them are seen but once
INDEX = re.compile(r"__index_level_\d+__")  # where pandas keeps the index of a frame in a file
# a name of numbers that stand for things: id, user_id, PassengerId; not paid or humid
ID = re.compile(r"(.*[^a-zA-Z])?(?i:id|uuid|guid)|.*[a-z]I[dD]|rownames")
LEAST_NUMBERED = 20  # rows; fewer whole numbers may run from 1 up by chance
# 1,234.5 and 12 %; also with the typographic minus sign, and with spaces that do not break
MARKED = re.compile(
    r"[+\-\u2212]?[$€£]?(\d{1,3}([,.' \u00a0\u202f]\d{3})+|\d+)([.,]\d+)?\s?[%€$£]?"
)
UNREADABLE = {  # what is held, and the remedy
    "time": ("times of day or durations", "Turn it into a number, such as seconds"),
    "other": ("lists, structures or other values that are no numbers", "Turn it into numbers"),
}
ALLOWED = {
    "real": "numbers",
    "binary": "only 0 and 1",
    "count": "counts 0, 1, 2, ...",
    "overdispersed": "counts 0, 1, 2, ...",
    "date": "dates",
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
    left_out: list[Series] = []
    problems: dict[str, DataError] = {}
    for one in series:
        override = kinds.get(one.name)
        one = as_dates(one) if override in (None, "date", "real") else one
        try:
            columns.append(column_of(one, override, owner, alone=len(names) == 1))
        except DataError as error:
            problems[one.name] = error
            continue
        inferred = override is None and not INDEX.fullmatch(one.name)
        if columns[-1].kind == "ignore" and inferred:
            left_out.append(one)
    if problems:
        raise _all_of(problems)
    reasons = {column.name: column.reason for column in columns if column.kind in NOT_MODELED}
    if len(reasons) == len(columns):
        allowed = "be left to learn from"
        got = "none: " + listed(f"{name!r} ({why})" for name, why in reasons.items())
        raise unusable(owner, "at least one column", allowed, got)
    if left_out:
        warnings.warn(_left_out(left_out, reasons, owner), stacklevel=3)
    return Schema(tuple(columns))


def _all_of(problems: dict[str, DataError]) -> UnreadableColumns:
    """What is wrong with the first column that cannot be read, and the names of the others."""
    first, *others = problems
    them = "it is" if len(others) == 1 else "they are"
    more = [f" {listed(map(repr, others))} cannot be read as {them} either."] if others else []
    error = UnreadableColumns(*problems[first].args, *more)
    error.problems = {
        name: "unreadable" if one.facts is None else one.facts.got for name, one in problems.items()
    }
    return error


def _left_out(series: Sequence[Series], reasons: Mapping[str, str], owner: str) -> PartitaWarning:
    """The line that says which columns are left out by themselves, why, and how to change it."""
    those = listed(f"{one.name!r} ({reasons[one.name]})" for one in series)
    what = f"column {those} is" if len(series) == 1 else f"columns {those} are"
    readable = [one for one in series if len(one.observed) and _instead(one)]
    otherwise: tuple[str | Argument, ...] = ()
    if readable:
        such = "it" if len(series) == 1 else "one"
        first = next((one for one in readable if one.labels), readable[0])
        change = Argument("columns", first.name, _instead(first))
        otherwise = (f" Read {such} otherwise, as with ", change, ".")
    return PartitaWarning(f"{owner}: {what} left out.", *otherwise)


def _instead(series: Series) -> str | None:
    """The kind that a column that was left out may be read as, if there is one."""
    if series.labels:
        return "category"
    return None if series.dtype in UNREADABLE else "real"


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


def column_of(series: Series, override: str | None, owner: str, *, alone: bool = False) -> Column:
    """The column of a schema: of the kind that is given, else of the kind that its values have;
    left out where they have none, or name things. ``alone`` is the only one of its table.
    """
    dtype, missing = series.dtype, series.counts()[1]
    reason = "as asked for" if override == "ignore" else ""
    reason = reason or ("" if override else unfit(series, owner, alone=alone))
    if reason:
        return Column(series.name, "ignore", dtype, missing=missing, reason=reason)
    kind, reason = (override, "as asked for") if override else kind_of(series)
    _check_readable(series, kind, owner)
    _check_kind(series, kind, owner)
    listed_values = kind in ("category", "constant")
    levels = tuple(np.unique(series.observed).tolist()) if listed_values else ()
    labels = series.labels if kind == "category" else {}
    given = override is not None
    return Column(series.name, kind, dtype, levels, labels, missing, given, reason)


def as_dates(series: Series, pattern: str | None = None) -> Series:
    """Words that are all dates, of one pattern if one is given, as days; other series as they are.

    >>> as_dates(Series("day", np.array([65.0]), "string", {65.0: "1970-01-03"})).values.tolist()
    [2.0]
    """
    if not series.labels or series.dtype != "string":
        return series
    numbers = sorted(series.labels)
    words = [series.labels[number] for number in numbers]
    if pattern is None and (words[0][:1].isdigit() or words[0][-1:].isdigit()):
        pattern = date_pattern(words)
    days = read_text(pattern, pa.array(words, pa.string())) if pattern else None
    if days is None:
        return series
    place = np.searchsorted(numbers, series.values)  # of NaN beyond the last
    values = np.append(days, np.nan)[place]
    return replace(series, values=values, dtype=pattern, labels={}, total=None)


def kind_of(series: Series) -> tuple[str, str]:
    """The kind of readable values, and why: words are categories, zeros and ones binary, whole
    numbers from 0 or 1 up counts, other numbers real.
    """
    if series.labels:
        return "category", "words"
    if series.dtype == "category":
        return "category", "of a categorical type"
    there = series.observed
    dates = is_date(series.dtype)
    if not dates and not outside("binary", there).any():
        return "binary", "true or false" if series.dtype == "bool" else "only 0 and 1"
    if series.counts()[0] > 1 and there.min() == there.max():
        return "constant", "one value throughout"
    if dates:
        return "date", "dates and times" if has_clock(series.dtype) else "dates"
    if outside("count", there).any():
        return "real", "whole numbers, also below 0" if is_whole(there) else "numbers"
    if there.min() <= 1:
        return "count", f"whole numbers from {there.min():g} up"
    return "real", f"whole numbers from {there.min():g} up"


def unfit(series: Series, owner: str, *, alone: bool = False) -> str:
    """Why a column is left out if nothing is said of it; empty where it is one to learn from."""
    there, (rows, _) = series.observed, series.counts()
    if INDEX.fullmatch(series.name):
        return "the index that pandas keeps"
    if series.dtype in UNREADABLE:
        return UNREADABLE[series.dtype][0]
    if not len(there):
        return "no observed value"
    if series.labels:
        return _unfit_words(series, owner)
    if is_date(series.dtype) or not is_whole(there):
        return ""
    if (np.abs(there) >= EXACT).any():
        largest = float(there[np.abs(there).argmax()])
        shown = f"{largest:.0f}" if abs(largest) < 1e21 else f"{largest:g}"
        return f"whole numbers beyond 2^53, such as {shown}, whose last digits would be lost"
    if not alone and _counts_rows(series):
        return "the numbers of the rows"
    different = math.inf if series.many else len(np.unique(there))
    names = ID.fullmatch(series.name) is not None and series.dtype != "category"
    stands = names and (different > MOST_LEVELS or 2 < different == rows)
    return "identifiers, by its name" if stands else ""


def _counts_rows(series: Series) -> bool:
    """Whether values are the numbers of the rows, in any order: whole ones from 0 or 1 on, as many
    as there are rows, with the sum of such.
    """
    rows, missing = series.counts()
    low, high = series.observed.min(), series.observed.max()
    if missing or rows < LEAST_NUMBERED or low not in (0, 1) or high - low != rows - 1:
        return False
    total = float(series.values.sum()) if series.total is None else series.total
    return total == rows * (low + high) / 2


def _check_readable(series: Series, kind: str, owner: str) -> None:
    """Refuse what a kind that is given cannot take, with a way to go on."""
    name, there = series.title, series.observed
    leave = ("or leave it out with ", Argument("columns", series.name, "ignore"), ".")
    if series.dtype in UNREADABLE:
        got, remedy = UNREADABLE[series.dtype]
        raise unusable(owner, name, "hold numbers or words", got, (f"{remedy}, ", *leave))
    if len(there) == 0:
        raise unusable(owner, name, "have an observed value", "none", ("Fill it in, ", *leave))
    huge = (np.abs(there) >= EXACT).any() and is_whole(there)
    if huge and not series.labels and kind == "category":
        allowed = "lie below 2^53 to be categories"
        got = f"{there[np.abs(there).argmax()]:g}, whose last digits would be lost"
        raise unusable(
            owner, f"whole numbers of {name}", allowed, got, ("Turn them into words, ", *leave)
        )


def _unfit_words(series: Series, owner: str) -> str:
    """Why words are no categories: names or free text. Numbers with marks in them, or with words
    among them, are refused: they are no words.
    """
    leave = ("or leave it out with ", Argument("columns", series.name, "ignore"), ".")
    words = series.labels.values()
    rows = series.counts()[0]
    if all(map(LIKE_DATES.match, words)):
        return "dates that can be read in several ways or are written in several, not as 2020-01-31"
    others = [word for word in words if not is_number(word)]
    use = (Argument("columns", series.name, "category"), ", ", *leave)
    if others and all(map(MARKED.fullmatch, others)):
        got = f"numbers with marks in them, such as {others[0]!r}"
        remedy = ("Write them like 1234.5; or use ", *use)
        raise unusable(owner, series.title, "hold plain numbers or words", got, remedy)
    once = rows < 2 * len(words) and series.dtype != "category"  # most are seen but once
    if len(words) <= (FEW_LEVELS if once else max(MOST_LEVELS, rows / ROWS_PER_LEVEL)):
        return ""
    if 0 < len(others) < len(words) / 2:
        got = f"numbers with words among them, such as {others[0]!r}"
        remedy = ("Leave fields empty where a number is missing; or use ", *use)
        raise unusable(owner, series.title, "hold numbers or a few categories", got, remedy)
    return f"{len(words)} different words in {rows} rows, as names or free text have"


def _check_kind(series: Series, kind: str, owner: str) -> None:
    """Refuse values that a kind cannot have."""
    if kind == "constant":
        ends = series.observed.min(), series.observed.max()
        if ends[0] != ends[1]:
            allowed = "hold one value to be constant"
            remedy = "Choose another kind for it."
            raise unusable(owner, series.title, allowed, "different ones", remedy)
        return
    dates = is_date(series.dtype)
    if kind == "category" or (dates and kind in ("date", "real")):
        return
    if dates:
        wrong = str(Column(series.name, "date", series.dtype).words(series.observed[:1])[0])
    elif kind == "date":
        wrong = label_of(series.observed[0], series.labels)
    elif series.labels:
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
    if kind in ("count", "overdispersed"):
        return (values < 0) | (values != np.round(values))
    return np.zeros(len(values), dtype=bool)


@dataclass
class Digest:
    """What a column shows when it is seen in chunks: its different values where they are few or
    categories, else those that settle its kind.

    Arguments:
        name: Of the column.
        dtype: What it is written as.
        every: Whether all its different values are kept, also of numbers.

    >>> seen = Digest("age", "float64")
    >>> for part in ([3.0, np.nan, 40.0], [7.0, 0.5, 12.0]):
    ...     seen.add(Series("age", np.array(part)))
    >>> seen.series().values.tolist(), seen.rows, seen.missing
    ([0.5, 3.0, 7.0, 12.0, 40.0], 6, 1)
    """

    name: str
    dtype: str
    every: bool = False
    values: np.ndarray = field(default_factory=lambda: np.zeros(0))
    labels: Labels = field(default_factory=dict)
    rows: int = 0
    missing: int = 0
    total: float = 0.0
    many: bool = False

    def add(self, chunk: Series) -> None:
        """Look at more of it."""
        there = chunk.observed
        self.rows += len(chunk.values)
        self.missing += len(chunk.values) - len(there)
        self.total += float(there.sum())
        check_distinct(self.labels, chunk.labels)
        self.labels |= chunk.labels
        found = np.unique(np.concatenate([self.values, there]))
        every = self.every or bool(self.labels) or self.dtype == "category"
        self.many = not every and (self.many or len(found) > MOST_LEVELS)
        self.values = np.unique(_telling(found)) if self.many else found

    def series(self) -> Series:
        """As much of the column as a schema is inferred from."""
        counts = self.rows, self.missing
        return Series(
            self.name, self.values, self.dtype, self.labels, *counts, self.total, self.many
        )


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
