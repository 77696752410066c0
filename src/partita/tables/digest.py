"""What a column shows when it is seen in parts: the few of its values that settle its kind, and all
of them where they are categories.
"""

from dataclasses import dataclass, field

import numpy as np

from partita.errors import DataError
from partita.tables.labels import Labels
from partita.tables.schema import Series


@dataclass
class Digest:
    """A column of a table that is too large to be held.

    Arguments:
        name: Of the column.
        every: Whether all its different values are kept, also of numbers.

    >>> seen = Digest("age", dtype="float64")
    >>> for part in ([3.0, np.nan, 40.0], [7.0, 0.5, 12.0]):
    ...     seen.add(Series("age", np.array(part)))
    >>> seen.series().values.tolist(), seen.rows, seen.missing
    ([0.5, 3.0, 40.0], 6, 1)
    """

    name: str
    every: bool = False
    dtype: str = "float64"
    values: np.ndarray = field(default_factory=lambda: np.zeros(0))
    labels: Labels = field(default_factory=dict)
    rows: int = 0
    missing: int = 0

    def add(self, part: Series) -> None:
        """Look at some more of it."""
        lost = np.isnan(part.values)
        self.rows, self.missing = self.rows + len(lost), self.missing + int(lost.sum())
        # of text, whose numbers may be whole for long
        self.dtype = "float64" if "float64" in (self.dtype, part.dtype) else part.dtype
        for number, word in part.labels.items():
            if self.labels.setdefault(number, word) != word:
                raise DataError(
                    "load: two words of one column have the same number; rename one of them."
                )
        values = np.concatenate([self.values, part.values[~lost]])
        self.values = np.unique(
            values if self.every or self.labels or part.dtype == "category" else telling(values)
        )

    def series(self) -> Series:
        """As much of the column as a schema is inferred from."""
        return Series(self.name, self.values, self.dtype, self.labels, self.rows, self.missing)


def telling(values: np.ndarray) -> np.ndarray:
    """The values that settle what numbers can be: the ends, one that is not whole, one that is
    neither 0 nor 1.
    """
    if not len(values):
        return values
    broken, other = values != np.round(values), (values != 0) & (values != 1)
    return np.concatenate([[values.min(), values.max()], values[broken][:1], values[other][:1]])
