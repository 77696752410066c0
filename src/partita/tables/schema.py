"""What each column of a table holds: inferred from its values, shown, and overridden by name.

A kind says how a column is read, and so what its share of a score is: a density for ``real``
columns, a mass for ``binary`` ones (0 and 1), ``count`` (0, 1, 2, ...) and ``category`` (a word, or
a number that stands for one). Columns to ``ignore`` are left out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from partita.core.checks import check_choice
from partita.errors import DataError, invalid
from partita.tables.column import KINDS, Column, Series
from partita.tables.fields import EXACT, MARKED, is_number
from partita.tables.labels import Labels
from partita.tables.voice import Voice

MOST_LEVELS = 64  # words of a column that are taken for categories, whatever the number of rows
ROWS_A_LEVEL = 10  # rows for each word where there are more of them; free text has fewer
FEW_LEVELS = 10  # words that may be categories although most of them are seen but once
INDEX = re.compile(r"__index_level_\d+__")  # where pandas keeps the index of a frame in a file
UNREADABLE = {
    "date": "dates or times",
    "other": "lists, structures or other values that are no numbers",
}
REMEDIES = {
    "date": "Turn it into a number, such as days since a day",
    "other": "Turn it into numbers",
}

LOAD = Voice("load")
KindOverrides = Mapping[str, str]  # kinds by name; * and ? in a name stand for any letters


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in its order.

    Arguments:
        columns: What they hold.
        closed: Whether another table that is read by it may hold no other categories.
    """

    columns: tuple[Column, ...]
    closed: bool = True

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that are not ignored."""
        return tuple(column for column in self.columns if column.kind != "ignore")

    @property
    def mixed(self) -> bool:
        """Whether columns are of different kinds."""
        return len({column.kind for column in self.used}) > 1

    @property
    def by_column(self) -> bool:
        """Whether each column is read as its kind says: where kinds differ, and where one was asked
        for; else by what all hold together.
        """
        return self.mixed or any(column.asked for column in self.used)

    @property
    def labels(self) -> Labels:
        """What numbers that stand for words mean, in any column."""
        return {number: word for column in self.used for number, word in column.labels.items()}

    @property
    def names(self) -> list[str]:
        """Of the columns that are not ignored."""
        return [column.name for column in self.used]

    def named(self, kinds: Iterable[str]) -> list[str]:
        """The names of columns of some kinds."""
        return [column.name for column in self.used if column.kind in set(kinds)]

    def as_json(self) -> list[dict[str, Any]]:
        return [column.as_json() for column in self.columns]

    @classmethod
    def from_json(cls, value: list[dict[str, Any]]) -> "Schema":
        return cls(tuple(map(Column.from_json, value)))


def infer(
    names: Sequence[str],
    series: Iterable[Series],
    asked: KindOverrides | None = None,
    owner: Voice = LOAD,
) -> Schema:
    """The schema of columns, which are read one at a time, with what was asked for in place of what
    their values say.

    >>> columns = [Series("age", np.array([31.0, 4.0])), Series("sex", np.array([0.0, 1.0]))]
    >>> [column.kind for column in infer(["age", "sex"], columns, {"age": "count"}).columns]
    ['count', 'binary']
    """
    check_names(names, owner)
    kinds = resolve({} if asked is None else asked, names, owner)
    columns, problems = [], {}
    for one in series:
        try:
            columns.append(column_of(one, kinds.get(one.name), owner))
        except DataError as error:
            problems[one.name] = error
    if problems:
        raise _all_of(problems)
    if all(column.kind == "ignore" for column in columns):
        raise DataError(
            f"{owner}: at least one column must be left to learn from; got {len(columns)} that are "
            "all ignored."
        )
    return Schema(tuple(columns))


def _all_of(problems: dict[str, DataError]) -> DataError:
    """What is wrong with the first column that cannot be read, and the names of the others, to be
    seen to in one go.
    """
    (_, first), *others = problems.items()
    names = ", ".join(repr(name) for name, _ in others[:5]) + (
        f" and {len(others) - 5} more" if len(others) > 5 else ""
    )
    return DataError(
        f"{first} {names} cannot be read as {'it is' if len(others) == 1 else 'they are'} either."
        if others
        else str(first)
    )


def column_names(width: int) -> tuple[str, ...]:
    """Names for columns that have none.

    >>> column_names(2)
    ('x1', 'x2')
    """
    return tuple(f"x{i + 1}" for i in range(width))


def number_type(values: np.ndarray) -> str:
    """What numbers of a text file are written as: whole ones, or floats."""
    there = values[~np.isnan(values)]
    return (
        "int64"
        if len(there) and np.isfinite(there).all() and (there == np.round(there)).all()
        else "float64"
    )


def resolve(asked: KindOverrides, names: Sequence[str], owner: Voice) -> dict[str, str]:
    """The kind asked for of each column that one was asked for; a name or pattern that meets no
    column is refused.
    """
    if not isinstance(asked, Mapping) or not all(isinstance(pattern, str) for pattern in asked):
        raise invalid(
            owner,
            "columns",
            "say kinds by name, as {'age': 'count'} does",
            " ".join(repr(asked).split()),
        )
    found: dict[str, str] = {}
    for pattern, kind in asked.items():
        check_choice(owner, f"the kind of column {pattern!r}", kind, KINDS)
        met = (
            [pattern]
            if pattern in names
            else [name for name in names if fnmatchcase(name, pattern)]
        )
        if not met:
            close = get_close_matches(pattern, names, 1, 0.5)
            hint = f"Did you mean {close[0]!r}?" if close else ""
            shown = ", ".join(names[:8]) + ", ..." * (len(names) > 8)
            raise invalid(
                owner, owner.columns, f"name one of the columns {shown}", repr(pattern), hint
            )
        found |= dict.fromkeys(met, kind)
    return found


def check_names(names: Sequence[str], owner: str) -> None:
    """No two columns of one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(
                f"{owner}: columns must have different names; got {name!r} twice. Rename one of "
                "them."
            )
        seen.add(name)


def column_of(series: Series, asked: str | None, owner: Voice) -> Column:
    """The column of a schema: of the kind asked for, else of the kind that its values have."""
    lost = np.isnan(series.values)
    if asked == "ignore" or (asked is None and INDEX.fullmatch(series.name)):
        return Column(series.name, "ignore", series.dtype, missing=series.counts()[1])
    there = series.values[~lost]
    _check_readable(series, there, asked, owner)
    kind = asked or kind_of(series, there)
    if asked is not None:
        _check_kind(series, there, kind, owner)
    levels = tuple(np.unique(there).tolist()) if kind == "category" else ()
    # dates that were asked for as words
    dtype = "string" if series.labels and series.dtype == "date" else series.dtype
    return Column(
        series.name,
        kind,
        dtype,
        levels,
        series.labels if kind == "category" else {},
        series.counts()[1],
        asked is not None,
    )


def kind_of(series: Series, there: np.ndarray) -> str:
    """Words are categories, zeros and ones binary, whole numbers from 0 or 1 up counts, other
    numbers real.
    """
    if series.labels or series.dtype == "category":
        return "category"
    if ((there == 0) | (there == 1)).all():
        return "binary"
    whole = there == np.round(there)
    return "count" if whole.all() and 0 <= there.min() <= 1 else "real"


def _check_readable(series: Series, there: np.ndarray, asked: str | None, owner: Voice) -> None:
    """What no kind can take, in one sentence that says how to go on."""
    name, leave = series.name, f"or leave it out with {owner.reading(series.name, 'ignore')}."
    if series.dtype in UNREADABLE and not (series.labels and asked == "category"):
        held = UNREADABLE[series.dtype]
        raise DataError(
            f"{owner}: column {name!r} must hold numbers or words; got {held}. "
            f"{REMEDIES[series.dtype]}, {leave}"
        )
    if len(there) == 0:
        raise DataError(
            f"{owner}: column {name!r} must have an observed value; got none. Fill it in, {leave}"
        )
    if series.labels and asked is None:
        _check_words(series, leave, owner)
    huge = (
        np.isfinite(there).all()
        and (np.abs(there) >= EXACT).any()
        and (there == np.round(there)).all()
    )
    if huge and not series.labels and asked in (None, "category"):
        largest = float(there[np.abs(there).argmax()])
        got = (
            f"{f'{largest:.0f}' if abs(largest) < 1e21 else f'{largest:g}'}, whose last digits "
            "would be lost"
        )
        remedy = (
            f"Read it as a real number with {owner.reading(name, 'real')},"
            if asked is None
            else "Turn them into words,"
        )
        raise DataError(
            f"{owner}: whole numbers of column {name!r} must lie below 2^53; got {got}. {remedy} "
            f"{leave}"
        )


def _check_words(series: Series, leave: str, owner: Voice) -> None:
    """Words that are no categories: those of names or free text, and numbers with marks in them or
    with words among them.
    """
    words, rows, name = series.labels.values(), series.counts()[0], series.name
    others = [word for word in words if not is_number(word)]
    use = f"use {owner.reading(name, 'category')}, {leave}"
    if others and all(map(MARKED.fullmatch, others)):
        got = f"numbers with marks in them, such as {others[0]!r}. Write them like 1234.5; or {use}"
        raise DataError(f"{owner}: column {name!r} must hold plain numbers or words; got {got}")
    once = rows < 2 * len(words) and series.dtype != "category"  # most are seen but once
    if len(words) > (FEW_LEVELS if once else max(MOST_LEVELS, rows / ROWS_A_LEVEL)):
        got = (
            f"{len(words)} different words in {rows} rows, as names or free text have. "
            f"{use[0].upper()}{use[1:]}"
        )
        if 0 < len(others) < len(words) / 2:
            got = (
                f"numbers with words among them, such as {others[0]!r}. Leave fields empty where a "
                f"number is missing; or {use}"
            )
        raise DataError(
            f"{owner}: column {name!r} must hold numbers or a few categories; got {got}"
        )


def _check_kind(series: Series, there: np.ndarray, kind: str, owner: str) -> None:
    """Refuse values that a kind cannot have."""
    if kind == "category":
        return
    allowed = {"real": "numbers", "binary": "only 0 and 1", "count": "counts 0, 1, 2, ..."}[kind]
    if series.labels:
        wrong: Any = next(
            (word for word in series.labels.values() if not is_number(word)),
            next(iter(series.labels.values())),
        )
    else:
        bad = {
            "real": there != there,
            "binary": (there != 0) & (there != 1),
            "count": (there < 0) | (there != np.round(there)),
        }[kind]
        if not bad.any():
            return
        wrong = f"{there[bad][0]:g}"
    raise DataError(
        f"{owner}: column {series.name!r} must hold {allowed} to be {kind}; got {wrong!r}. Choose "
        "another kind for it."
    )
