"""A column of a table: as it was read, and what it holds, for a schema."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from partita.errors import RunError
from partita.runtime.untrusted import check_like
from partita.tables.labels import Labels, labels_from_json

KINDS = ("real", "binary", "count", "category", "ignore")
SHAPE = {  # of a column in a config
    "name": str,
    "kind": str,
    "dtype": str,
    "levels": [float],
    "labels": dict,
    "missing": int,
    "asked": bool,
}


@dataclass(frozen=True)
class Series:
    """A column as it was read: numbers, with NaN where a value is missing; words as the numbers
    that stand for them.

    Where a column is too large to be held, ``values`` are some of it that settle its kind, and
    ``rows`` and ``missing`` speak of all.
    """

    name: str
    values: np.ndarray  # (N,), float64
    dtype: str = "float64"  # of the source: a NumPy name, "string", "category", "date" or "other"
    labels: Labels = field(default_factory=dict)
    rows: int | None = None
    missing: int | None = None

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
        levels: Of a category: the numbers of its values, rising.
        labels: What those numbers mean, where they stand for words.
        missing: How many values were missing where the schema was inferred.
        asked: Whether the kind was asked for, not inferred.
    """

    name: str
    kind: str
    dtype: str = "float64"
    levels: tuple[float, ...] = ()
    labels: Labels = field(default_factory=dict)
    missing: int = 0
    asked: bool = False

    def words(self, values: Iterable[float]) -> list[Any]:
        """Values as they are written: words, truth values, whole numbers, else floats; None where
        missing.
        """
        if self.labels:
            return [
                None if value != value else self.labels.get(value, f"{value:g}") for value in values
            ]
        numbered = self.dtype == "category" and all(level == round(level) for level in self.levels)
        make = bool if self.dtype == "bool" else round if numbered or "int" in self.dtype else float
        return [
            None if value != value else make(value) if abs(value) < math.inf else value
            for value in values
        ]

    def in_words(self) -> str:
        """The levels of a category, for people."""
        shown = [str(word) for word in self.words(self.levels[:6])]
        return ", ".join(shown) + (
            f", ... ({len(self.levels)} in all)" if len(self.levels) > 6 else ""
        )

    def as_json(self) -> dict[str, Any]:
        levels = {
            "levels": list(self.levels),
            "labels": {f"{number:.0f}": word for number, word in self.labels.items()},
        }
        more = {**(levels if self.levels else {}), **({"asked": True} if self.asked else {})}
        return {
            "name": self.name,
            "kind": self.kind,
            "dtype": self.dtype,
            "missing": self.missing,
            **more,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Column":
        check_like(value, SHAPE, "config.json: schema")
        check_like(
            value, {"name": str, "kind": str, "dtype": str}, "config.json: schema", whole=True
        )
        if value["kind"] not in KINDS:
            raise RunError(
                f"load: config.json: schema: kind must be one of {', '.join(KINDS)}; got "
                f"{value['kind']!r}. Restore the file."
            )
        levels = tuple(value.get("levels") or ())
        labels = labels_from_json(value.get("labels") or {})
        return cls(
            value["name"],
            value["kind"],
            value["dtype"],
            levels,
            labels,
            value.get("missing") or 0,
            bool(value.get("asked")),
        )
