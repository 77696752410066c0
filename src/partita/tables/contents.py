"""What a file holds: one array, or the arrays of a split; and the error for a file that is not
whole.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from partita.errors import DataError
from partita.tables.arrays import Columns
from partita.tables.labels import Labels
from partita.tables.schema import Schema


@dataclass(frozen=True)
class Splits:
    """The rows of a file, all together or in parts; the first axis is the row."""

    train: np.ndarray
    valid: np.ndarray | None = None
    test: np.ndarray | None = None
    columns: Columns = None
    weight: np.ndarray | None = None
    labels: Labels | None = None  # what numbers that stand for words mean
    schema: Schema | None = None  # what the columns of a table hold


def damaged(path: Path) -> DataError:
    """The error for a file that does not hold what its ending says."""
    return DataError(
        f"load: {path} must be a whole {path.suffix} file; got one that is cut short or damaged. "
        "Copy or download it again."
    )
