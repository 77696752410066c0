r"""What each column of a table holds.

A kind says how a column is read, and so what its share of a score is: a density for ``real``
columns and, by the day, for a ``date``; a mass for ``binary`` ones (0 and 1), ``count`` and
``overdispersed`` (0, 1, 2, ..., whose variance is about their mean, or larger) and ``category`` (a
word, or a number that stands for one). Columns to ``ignore`` are left out, and a
``constant`` is carried along into what is drawn.
:mod:`partita.tables.infer` finds the kinds in the values.

Words are numbers that depend on the word alone, so that two files agree on them without having met:
short ones (up to six bytes) are their own bytes read as a whole number, longer ones a 52-bit
digest. Both are exact in float64.

Encoded, a column has a law: ``"real"``, ``"binary"``, ``"count"`` (Poisson), ``"overdispersed"``
(negative binomial), or the number K of states of a category, which are 0 to K - 1; the support is
their product.

.. math:: X = X_1 \times \dots \times X_D, \qquad X_i \in \{\mathbb{R},\, \{0, 1\},\,
          \mathbb{N}_0,\, \{0, \dots, K_i - 1\}\}
          (theory/mixed_tables.md, eq. 45.1)

Letters: D columns, K states.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import groupby
from typing import Annotated, TypeAlias

import numpy as np

from partita.core.arguments import check_count
from partita.core.support import Binary, Categorical, Count, Product, Real, Support
from partita.errors import DataError, RunError, invalid, one_line, unusable
from partita.runtime.files import Json, JsonObject, read_record
from partita.tables.dates import to_text

KINDS = ("real", "binary", "count", "overdispersed", "category", "date", "constant", "ignore")
NOT_MODELED = ("constant", "ignore")
Cell = str | bool | int | float | None

Law = str | int

NAMED: dict[str, Callable[[int], Support]] = {
    "real": Real,
    "binary": Binary,
    "count": Count,
    "overdispersed": Count,
}

Labels = dict[float, str]
SHORT = 6  # bytes that fit below 2^48, the first number of a digest


@dataclass(frozen=True)
class Series:
    """A column as it was read: numbers, with NaN where a value is missing; words as the numbers
    that stand for them.

    Where a column is too large to be held, ``values`` are some of it that settle its kind, and
    ``rows``, ``missing``, ``total`` (the sum of what is there) and ``many`` (whether there are more
    different values) are about all of it.
    """

    name: str
    values: np.ndarray  # (N,), float64
    dtype: str = "float64"  # of the source, as in tables.arrow.TableFile
    labels: Labels = field(default_factory=dict)
    rows: int | None = None
    missing: int | None = None
    total: float | None = None
    many: bool = False

    @cached_property
    def observed(self) -> np.ndarray:
        """The values that are not missing."""
        return self.values[~np.isnan(self.values)]

    @property
    def title(self) -> str:
        """The column in a sentence."""
        return f"column {self.name!r}"

    def counts(self) -> tuple[int, int]:
        """How many values there are, and how many are missing."""
        missing = int(np.isnan(self.values).sum()) if self.missing is None else self.missing
        return (len(self.values) if self.rows is None else self.rows) - missing, missing


@dataclass(frozen=True)
class Column:
    """A column of a schema.

    Arguments:
        name: As in the file; ``x1``, ``x2``, ... where it has no names.
        kind: One of :data:`KINDS`.
        dtype: What it is written as.
        levels: Of a category: the numbers of its values, rising; of a constant: its value.
        labels: What those numbers mean, where they stand for words.
        missing: How many values were missing where the schema was inferred.
        overridden: Whether the kind was given, not inferred.
        reason: Why it is of that kind.
        limits: Of real numbers: the least and the largest of the training rows.
        decimals: Of real numbers: how many all of the training rows have, where they are few.
    """

    name: str
    kind: str
    dtype: str = "float64"
    levels: tuple[float, ...] = ()
    labels: Labels = field(default_factory=dict)
    missing: int = 0
    overridden: bool = False
    reason: str = ""
    limits: tuple[float, ...] = ()
    decimals: int | None = None

    @property
    def law(self) -> str:
        """The kind that models take it for: dates are real numbers, of days."""
        return "real" if self.kind == "date" else self.kind

    def beyond(self, values: np.ndarray) -> np.ndarray:
        """Which values lie outside of the limits, also once they are rounded."""
        if not self.limits:
            return np.zeros(len(values), dtype=bool)
        values = values if self.decimals is None else values.round(self.decimals)
        return (values < self.limits[0]) | (values > self.limits[1])

    def held(self, values: np.ndarray) -> np.ndarray:
        """Drawn values within the limits, rounded as those of the table are.

        >>> Column("debt", "real", limits=(0.0, 9.5), decimals=1).held(np.array([-3.0, 0.123]))
        array([0. , 0.1])
        """
        if self.limits:
            values = values.clip(self.limits[0], self.limits[1])
        return values if self.decimals is None else values.round(self.decimals)

    def words(self, values: Iterable[float]) -> list[Cell]:
        """Values as they are written: words, dates, truth values, whole numbers, else floats; None
        where missing.
        """
        if is_date(self.dtype):
            return [*to_text(self.dtype, np.fromiter(values, float))]
        if self.labels:
            return [None if value != value else label_of(value, self.labels) for value in values]
        codes = self.dtype == "category" and all(level == round(level) for level in self.levels)
        make = bool if self.dtype == "bool" else round if codes or "int" in self.dtype else float
        return [
            None if value != value else make(value) if abs(value) < math.inf else value
            for value in values
        ]

    def in_words(self) -> str:
        """The levels of a category, for people."""
        shown = ", ".join(map(str, self.words(self.levels[:6])))
        return f"{shown}, ... ({len(self.levels)} in all)" if len(self.levels) > 6 else shown

    def as_json(self) -> JsonObject:
        """For a run's config; what is empty is left out."""
        lists = {
            "levels": list(self.levels),
            "labels": labels_to_json(self.labels),
            "limits": list(self.limits),
        }
        found = {**asdict(self), **lists}
        optional = (*lists, "overridden", "reason")
        kept = {name: value for name, value in found.items() if value or name not in optional}
        return {name: value for name, value in kept.items() if value is not None}

    @classmethod
    def from_json(cls, value: Json) -> "Column":
        column = read_record(cls, value, "config.json: schema")
        if column.kind not in KINDS:
            raise RunError(
                f"load: config.json: schema: kind must be one of {', '.join(KINDS)}; got "
                f"{column.kind!r}. Restore the file."
            )
        return replace(column, labels=labels_from_json(value.get("labels") or {}))


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
        """The columns that are modeled."""
        return tuple(column for column in self.columns if column.kind not in NOT_MODELED)

    def carried(self, x: np.ndarray) -> tuple[list[Column], np.ndarray]:
        """Drawn rows, (N, D), as the table has them: real columns within their limits and rounded,
        constant ones among them, in its order.
        """
        columns = [column for column in self.columns if column.kind != "ignore"]
        drawn = iter(x.T)
        held = [
            np.full(len(x), one.levels[0]) if one.kind == "constant" else one.held(next(drawn))
            for one in columns
        ]
        return columns, np.stack(held, 1)

    @property
    def mixed(self) -> bool:
        """Whether columns are of different kinds."""
        return len({column.law for column in self.used}) > 1

    @property
    def by_column(self) -> bool:
        """Whether each column is read as its kind says: where kinds differ, and where one was
        given; else by what all hold together.
        """
        return self.mixed or any(column.overridden for column in self.used)

    @property
    def labels(self) -> Labels:
        """What numbers that stand for words mean, in any column."""
        return {number: word for column in self.used for number, word in column.labels.items()}

    @property
    def names(self) -> list[str]:
        """Of the columns that are modeled."""
        return [column.name for column in self.used]

    def as_json(self) -> list[JsonObject]:
        return [column.as_json() for column in self.columns]

    @classmethod
    def from_json(cls, value: Iterable[Json]) -> "Schema":
        return cls(tuple(map(Column.from_json, value)))


def is_date(dtype: str) -> bool:
    """Whether a column that is written so holds dates: by a pattern, or as an Arrow type.

    >>> is_date("%Y-%m-%d"), is_date("timestamp[us, tz=UTC]"), is_date("float64")
    (True, True, False)
    """
    return "%" in dtype or dtype.startswith(("date32", "date64", "timestamp"))


def sort_of(dtype: str, labels: Labels) -> str:
    """What a column that is written so holds, in a word.

    >>> sort_of("%Y-%m-%d", {}), sort_of("string", {65.0: "A"}), sort_of("int64", {})
    ('dates', 'words', 'numbers')
    """
    if labels:
        return "words"
    unread = dtype in ("time", "other")
    return "dates" if is_date(dtype) else "other values" if unread else "numbers"


def column_names(width: int) -> tuple[str, ...]:
    """Names for columns that have none.

    >>> column_names(2)
    ('x1', 'x2')
    """
    return tuple(f"x{i + 1}" for i in range(width))


def check_names(names: Sequence[str], owner: str) -> None:
    """No two columns of one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            got = f"{name!r} twice"
            raise unusable(owner, "columns", "have different names", got, "Rename one of them.")
        seen.add(name)


def is_whole(values: np.ndarray) -> bool:
    """Whether all values are whole numbers.

    >>> is_whole(np.array([1.0, 2.0])), is_whole(np.array([1.0, np.inf]))
    (True, False)
    """
    return bool(np.isfinite(values).all() and (values == np.round(values)).all())


def first_few(items: Sequence[str], most: int = 6) -> str:
    """The first few of some names, and dots for the others.

    >>> first_few("abc", 2)
    'a, b, ...'
    """
    return ", ".join(items[:most]) + ", ..." * (len(items) > most)


def listed(items: Iterable[str], most: int = 5) -> str:
    """The first few of some names, and how many more there are.

    >>> listed("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    found = list(items)
    shown = ", ".join(found[:most])
    return f"{shown} and {len(found) - most} more" if len(found) > most else shown


def check_laws(owner: str, parameter: str, laws: Iterable[Law]) -> tuple[Law, ...]:
    """The laws of at least one column, each a known word or a number of states.

    >>> check_laws("Mixture", "laws", ["real", 3])
    ('real', 3)
    """
    if isinstance(laws, str) or not isinstance(laws, Iterable) or getattr(laws, "ndim", 1) == 0:
        allowed = "say what each column holds, such as ('real', 3)"
        raise invalid(owner, parameter, allowed, one_line(laws))
    laws = tuple(laws)
    check_count(owner, "the number of columns", len(laws))
    for law in laws:
        states = isinstance(law, int) and not isinstance(law, bool) and law >= 1
        if law not in NAMED and not states:
            allowed = f"be one of {', '.join(map(repr, NAMED))} or a number of states"
            raise invalid(owner, "a column", allowed, repr(law))
    return laws


Laws: TypeAlias = Annotated[Sequence[Law], check_laws]  # of all columns of a table


def support_of(laws: Sequence[Law]) -> Product:
    """The support of columns with these laws.

    >>> support_of(("real", "real", 3))
    Product(parts=(Real(D=2), Categorical(D=1, K=3)))
    """
    return Product(tuple(support_of_one(law, len(list(run))) for law, run in groupby(laws)))


def support_of_one(law: Law, width: int) -> Support:
    """The support of columns that all have one law."""
    return Categorical(width, law) if isinstance(law, int) else NAMED[law](width)


def places(laws: Sequence[Law]) -> dict[Law, list[int]]:
    """Where the columns of each law are.

    >>> places(("real", 3, "real"))
    {'real': [0, 2], 3: [1]}
    """
    found: dict[Law, list[int]] = {}
    for place, law in enumerate(laws):
        found.setdefault(law, []).append(place)
    return found


def kinds_in_words(laws: Sequence[Law]) -> str:
    """How many columns there are of each kind.

    >>> kinds_in_words(("real", 3, "real", 5, "count"))
    '2 real, 1 count, 2 categorical'
    """
    counts = {name: sum(law == name for law in laws) for name in NAMED}
    counts["categorical"] = sum(isinstance(law, int) for law in laws)
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def label_number(word: str) -> float:
    """The number of a word.

    >>> label_number("A"), label_number("C") < label_number("red")
    (65.0, True)
    """
    raw = word.encode()
    if len(raw) <= SHORT:
        return float(int.from_bytes(raw, "big"))
    return float((int.from_bytes(blake2b(raw, digest_size=8).digest(), "big") >> 12) | 1 << 51)


def numbered(words: Sequence[str]) -> tuple[np.ndarray, Labels]:
    """A column of words as numbers, and what the numbers mean."""
    table = {word: label_number(word) for word in dict.fromkeys(words)}
    labels: Labels = {}
    for word, number in table.items():
        check_distinct(labels, {number: word})
        labels[number] = word
    return np.array([table[word] for word in words]), labels


def label_of(value: float, labels: Labels) -> str:
    """The word that a number stands for, else the number itself.

    >>> label_of(65.0, {65.0: "A"}), label_of(2.5, {})
    ('A', '2.5')
    """
    return labels.get(value, f"{value:g}")


def check_distinct(labels: Labels, more: Labels) -> None:
    """No number stands for two words of one column."""
    if any(labels.get(number, word) != word for number, word in more.items()):
        raise DataError("load: two words of one column have the same number; rename one of them.")


def labels_to_json(labels: Labels) -> dict[str, str]:
    """Labels for a run's config."""
    return {f"{number:.0f}": word for number, word in labels.items()}


def labels_from_json(value: Mapping[str, object]) -> Labels:
    """Labels from a run's config."""
    try:
        labels = {float(number): word for number, word in value.items() if isinstance(word, str)}
    except ValueError:
        labels = {}
    if len(labels) < len(value):
        raise RunError(
            "load: config.json: labels must be words by number; got others. Restore the file as "
            "partita wrote it."
        )
    return labels
