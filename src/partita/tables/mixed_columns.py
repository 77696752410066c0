r"""Columns of a mixed table as a model has them: real ones standardized, zeros and ones and counts
as they are, categories numbered.

.. math:: z_i = (x_i - m_i) / s_i \text{ for real } i, \qquad
          \log p(x_o) = \log p(z_o) - \sum_{i \in o\ \mathrm{real}} \log s_i
          (theory/mixed_tables.md, eq. 45.3)

The other columns are relabeled at most, which changes no mass.

Letters: N rows, D columns, o observed, m shifts, s scales.
"""

from collections.abc import Sequence

import numpy as np

from partita.errors import InputError, invalid
from partita.tables import Rows
from partita.tables.categories import Lists, from_codes, to_codes, variances
from partita.tables.column_kinds import Law
from partita.tables.schema import Schema

MIXED = "mixture, vae or autoregressive"
SORTS = ("real", "binary", "count", "category")
ALLOWED = {"binary": "only 0 and 1", "count": "counts 0, 1, 2, ...", "real": "finite numbers"}
TAKEN = {  # the kinds of column that an encoding of one sort can hold
    **dict.fromkeys(("real", "scaled", "raw"), ("real",)),
    **dict.fromkeys(("binary", "signs", "median", "median-signs"), ("binary",)),
    "count": ("binary", "count"),
    "category": ("binary", "count", "category"),
}


def kinds_of(rows: Rows) -> tuple[str, ...]:
    """The kind of each column of a table with a schema."""
    if rows.schema is None:
        raise invalid(
            "fit",
            "X",
            "be a table whose columns have kinds",
            "an array",
            "Give a frame, or a .csv or .parquet file.",
        )
    return tuple(column.kind for column in rows.schema.used)


def lists_of(schema: Schema) -> Lists:
    """The values of each category, rising; none for other columns."""
    return tuple(column.levels for column in schema.used)


def moments_of(rows: Rows, kinds: Sequence[str], owner: str) -> tuple[np.ndarray, np.ndarray]:
    """m and s of the equation: means and deviations of real columns, 0 and 1 of the others."""
    real = np.array([kind == "real" for kind in kinds])
    mean, deviation = rows.mean().numpy(), np.sqrt(variances(rows, owner))
    flat = np.flatnonzero(real & (deviation <= 1e-12 * np.abs(mean)))
    if len(flat):
        name = (rows.columns or range(rows.width))[flat[0]]
        raise invalid(
            owner,
            "X",
            "vary in every real column to have a density",
            f"one value throughout column {name!r}",
            "Leave constant columns out.",
        )
    return np.where(real, mean, 0.0), np.where(real, deviation, 1.0)


def laws_of(kinds: Sequence[str], lists: Lists) -> tuple[Law, ...]:
    """What each encoded column holds; a category with one value is certain, and adds nothing to a
    score.
    """
    return tuple(
        len(values) if kind == "category" else kind
        for kind, values in zip(kinds, lists, strict=True)
    )


def unseen(x: np.ndarray, kinds: Sequence[str], lists: Lists) -> np.ndarray:
    """Which values are categories that are in no list, ``(N, C)`` for C columns of categories."""
    at = _categories(kinds)
    return to_codes(x[:, at], tuple(lists[i] for i in at)) == -1


def encode(
    x: np.ndarray, kinds: Sequence[str], shift: np.ndarray, scale: np.ndarray, lists: Lists
) -> np.ndarray:
    """Rows in the model's units, float64; NaN stays NaN, and a category that is in no list becomes
    -1.
    """
    z = (np.asarray(x, dtype=np.float64) - shift) / scale
    at = _categories(kinds)
    z[:, at] = to_codes(np.asarray(x, dtype=np.float64)[:, at], tuple(lists[i] for i in at))
    return z


def decode(
    z: np.ndarray, kinds: Sequence[str], shift: np.ndarray, scale: np.ndarray, lists: Lists
) -> np.ndarray:
    """Rows in the table's units."""
    x, at = z * scale + shift, _categories(kinds)
    if at:
        x[:, at] = from_codes(z[:, at], tuple(lists[i] for i in at))
    return x


def check(x: np.ndarray, kinds: Sequence[str], lists: Lists, owner: str, first: int = 0) -> None:
    """Every value that is not missing is one that its column may hold; ``first`` is the number of
    the first row.
    """
    for i, (kind, values) in enumerate(zip(kinds, x.T, strict=True)):
        if kind == "category":
            bad, allowed = ~np.isin(values, lists[i]), "categories seen in training"
        else:
            bad, allowed = _outside(kind, values), ALLOWED[kind]
        bad &= ~np.isnan(values)
        if bad.any():
            row = int(bad.argmax())
            raise invalid(
                owner, "X", f"hold {allowed} in column {i}", f"{values[row]:g} at row {first + row}"
            )


def refusal(rows: Rows, kind: str, family: str) -> InputError | None:
    """The error for columns of a table that a family cannot take by its encoding; None where it
    takes all.

    Columns of numbers that are all of one sort, where none was asked for, are left to the
    encoding's own check.
    """
    schema = getattr(rows, "schema", None)
    if schema is None or kind not in TAKEN or not (schema.by_column or schema.labels):
        return None
    names = schema.named({column.kind for column in schema.used} - set(TAKEN[kind]))
    if not names:
        return None
    kinds = {column.name: column.kind for column in schema.used}
    shown = ", ".join(f"{name!r} ({kinds[name]})" for name in names[:5]) + (
        f" and {len(names) - 5} more" if len(names) > 5 else ""
    )
    wanted = " or ".join(TAKEN[kind])
    remedy = (
        f"Use {MIXED}, which take mixed columns; or read them otherwise, as in --column "
        f"{names[0]!r}={TAKEN[kind][0]}."
    )
    return invalid(f"family {family}", "columns", f"all be {wanted}", shown, remedy)


def no_words(rows: Rows, family: str) -> InputError:
    """The error for columns of words where a family takes numbers alone."""
    schema = getattr(rows, "schema", None)
    names = ["0"] if schema is None else [column.name for column in schema.used if column.labels]
    shown = ", ".join(map(repr, names[:5])) + (
        f" and {len(names) - 5} more" if len(names) > 5 else ""
    )
    remedy = (
        f"Use {MIXED}, which take words; encode such columns as numbers; or leave them out, as in "
        f"--column {names[0]!r}=ignore."
    )
    return invalid(
        f"family {family}",
        "columns",
        "be numeric",
        f"text or other values in column{'s' * (len(names) > 1)} {shown}",
        remedy,
    )


def _categories(kinds: Sequence[str]) -> list[int]:
    return [i for i, kind in enumerate(kinds) if kind == "category"]


def _outside(kind: str, x: np.ndarray) -> np.ndarray:
    if kind == "binary":
        return (x != 0) & (x != 1)
    return np.isinf(x) if kind == "real" else (x < 0) | (x != np.round(x))
