"""Columns as categories: lists of values and the codes 0 to K - 1 that stand for them, and cuts of
real columns at their quantiles.

Letters: N rows, D columns, K categories.
"""

from itertools import chain

import numpy as np

from partita.errors import Argument, Words, invalid
from partita.tables.on_disk import OnDisk
from partita.tables.rows import Rows
from partita.tables.schema import Labels, first_few, label_of

Lists = tuple[tuple[float, ...], ...]  # one for each column, rising

BINS = 4  # of a real column that is cut
MOST_STATES = 64  # distinct values of a column that are taken for categories
# numbers of a table on disk that are ranked, and the key of the draw of its rows
RANKED, RANK_KEY = 1 << 24, 50_50
NUMBERS = (
    ", or fit to numbers of any size, as with ",
    Argument("columns", "*", "count"),
    " or ",
    Argument("columns", "*", "real"),
)
FLAT = 1e-12  # of a column's own size: a smaller deviation is none
SHARED = 1.2  # columns share one list if it is no longer than this many times their longest


def categories_of(rows: Rows, *others: Rows) -> Lists:
    """The values of each column, rising; one list for all where the columns draw on one alphabet,
    as those of sequences do.

    Arguments:
        rows: To learn from.
        others: Other parts of the same data: a word that is in one of them alone is a category too,
            never seen and so improbable.

    >>> categories_of(Rows([[1, 7], [2, 7], [1, 8]]))
    ((1.0, 2.0), (7.0, 8.0))
    >>> categories_of(Rows([[0, 1], [1, 2], [2, 1]]))
    ((0.0, 1.0, 2.0), (0.0, 1.0, 2.0))
    """
    own = [np.zeros(0)] * rows.width
    for x in chain.from_iterable(part.parts() for part in (rows, *others)):
        own = _joined(own, x.astype(np.float64))
    union = np.unique(np.concatenate(own))
    letters = bool(rows.labels) and all(len(word) == 1 for word in rows.labels.values())
    chosen = [union] * len(own) if letters or len(union) <= SHARED * max(map(len, own)) else own
    return tuple(tuple(values.tolist()) for values in chosen)


def _joined(seen: list[np.ndarray], x: np.ndarray) -> list[np.ndarray]:
    """The values of each column that were seen before, and those that rows add to them."""
    there = (column[~np.isnan(column)] for column in x.T)
    return [np.unique(np.concatenate(both)) for both in zip(seen, there, strict=True)]


def looks_categorical(rows: Rows) -> bool:
    """Whether every column holds words, or few enough whole numbers to be categories."""
    if rows.labels:
        return True
    seen = [np.zeros(0)] * rows.width
    for x in rows.parts():
        if (x != np.round(x)).any():
            return False
        seen = _joined(seen, x)
        if any(len(values) > MOST_STATES for values in seen):
            return False
    return True


def quantile_cuts(rows: Rows) -> Lists:
    """Where each column is cut into parts of about equally many rows; fewer parts where values
    repeat.
    """
    x = to_rank(rows)
    shares = np.arange(1, BINS) / BINS
    return tuple(tuple(np.unique(np.quantile(column, shares)).tolist()) for column in x.T)


def to_rank(rows: Rows) -> np.ndarray:
    """Rows in float64 whose medians and quantiles stand for those of all: all of them; of a table
    on disk some, spread over all of it.
    """
    some = max(1, RANKED // rows.width)
    if isinstance(rows.array, OnDisk) and len(rows) >= 2 * some:
        rows = rows.one_in(len(rows) // some, RANK_KEY)[0]
    return rows.tensor().numpy().astype(np.float64)


def to_codes(x: np.ndarray, lists: Lists) -> np.ndarray:
    """The place of each value in its column's list, float64; NaN stays NaN, and what is in no list
    becomes -1.
    """
    codes = np.full(x.shape, np.nan)
    for j, values in enumerate(np.asarray(values) for values in lists):
        there = ~np.isnan(x[:, j])
        place = np.searchsorted(values, x[there, j]).clip(max=len(values) - 1)
        codes[there, j] = np.where(values[place] == x[there, j], place, -1)
    return codes


def to_bins(x: np.ndarray, lists: Lists) -> np.ndarray:
    """The number of cuts below each value, float64; NaN stays NaN."""
    below = np.stack(
        [np.searchsorted(np.asarray(cuts), x[:, j], side="left") for j, cuts in enumerate(lists)], 1
    )
    return np.where(np.isnan(x), np.nan, below)


def from_codes(codes: np.ndarray, lists: Lists) -> np.ndarray:
    """Values by their place; a code beyond a column's list, which only a draw can have, becomes its
    last value.
    """
    columns = [
        np.asarray(values)[codes[:, j].astype(int).clip(max=len(values) - 1)]
        for j, values in enumerate(lists)
    ]
    return np.stack(columns, 1)


def check_known(x: np.ndarray, lists: Lists, labels: Labels, owner: str, first: int = 0) -> None:
    """Every value is one of its column's list, else one sentence with the value, as a word if it is
    one; rows count from ``first``.
    """
    unknown = to_codes(x, lists) == -1
    if unknown.any():
        row, column = np.argwhere(unknown)[0]
        value = float(x[row, column])
        known = first_few([label_of(value, labels) for value in lists[column]], 8)
        allowed = f"hold categories seen in training, in column {column}: {known}"
        got = f"{label_of(value, labels)} at row {first + row}"
        numbers = () if labels else NUMBERS
        remedy: Words = ("Map rare values to a category of their own", *numbers, ".")
        raise invalid(owner, "X", allowed, got, remedy)


def common_deviation(rows: Rows, owner: str) -> float:
    """The root of the mean variance of all columns; a table that does not vary at all has no
    density.
    """
    deviation = float(np.sqrt(_variances(rows, owner).mean()))
    if deviation <= FLAT * float(rows.mean().abs().max()):
        raise invalid(owner, "X", "vary to have a density", "one and the same row throughout")
    return deviation


def deviations(rows: Rows, owner: str, real: np.ndarray | None = None) -> np.ndarray:
    """Standard deviations; a column (a real one, where ``real`` tells which are) that does not vary
    has no density, and is named.
    """
    found = np.sqrt(_variances(rows, owner))
    flat = found <= FLAT * np.abs(rows.mean().numpy())
    flat = np.flatnonzero(flat if real is None else flat & real)
    if len(flat):
        which = "every" if real is None else "every real"
        allowed = f"vary in {which} column to have a density"
        got = f"one value throughout column {_name(rows, flat[0])!r}"
        raise invalid(owner, "X", allowed, got, "Leave constant columns out.")
    return found


def _variances(rows: Rows, owner: str) -> np.ndarray:
    """Of the columns; one whose numbers are too large to be squared is named."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = rows.variance().numpy()
    beyond = np.flatnonzero(~np.isfinite(found))
    if len(beyond):
        allowed = "hold numbers that can be squared, below 1e154"
        got = f"larger ones in column {_name(rows, beyond[0])!r}"
        raise invalid(owner, "X", allowed, got, "Divide them by a power of ten.")
    return found


def _name(rows: Rows, column: int) -> str | int:
    return (rows.columns or range(rows.width))[column]
