"""Gray levels that are read as probabilities of a one: how they are made binary, and which of them
means one.
"""

from typing import Any, Literal

import numpy as np

from partita.errors import invalid
from partita.tables.arrays import chunks

Binarize = Literal["dynamic"] | float | None


def check_binarize(binarize: Any, owner: str) -> Binarize:
    """A way to make rows binary, or none."""
    if binarize is None or (isinstance(binarize, str) and binarize == "dynamic"):
        return binarize
    if isinstance(binarize, (int, float)) and 0 < binarize < 1:
        return float(binarize)
    raise invalid(
        owner, "binarize", "be None, 'dynamic' or a threshold between 0 and 1", repr(binarize)
    )


def gray_scale(table: np.ndarray, scale: float | None, owner: str) -> float:
    """The gray level that means one; gray levels beyond it are refused."""
    low, high = _range(table)
    if scale is None:
        scale = 255.0 if table.dtype == np.uint8 and high > 1 else 1.0
    if low < 0 or high > scale:
        remedy = "Give the largest gray level as scale, or leave binarize out."
        raise invalid(
            owner,
            "x",
            f"hold gray levels from 0 to {scale:g} to be made binary",
            f"values from {low:g} to {high:g}",
            remedy,
        )
    return float(scale)


def _range(table: np.ndarray) -> tuple[float, float]:
    ends = [(part.min(), part.max()) for part in (table[part] for part in chunks(*table.shape))]
    return float(min(low for low, _ in ends)), float(max(high for _, high in ends))
