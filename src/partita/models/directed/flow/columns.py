"""What makes a density of these columns infinite: copies of other columns, and values that repeat.

A flow can squeeze all mass onto a line, or onto single values, and its likelihood then grows without end.
"""

import math

import torch
from torch import Tensor

from partita.core import rng
from partita.core.protocols import Data

ROWS = 4096  # rows that are looked at
ATOM = 0.05  # share of the rows that one value may take up in a column of real numbers
FEW = 0.1  # different values in a column of real numbers, at least, as a share of the rows
LEAST_ROWS = 40  # with fewer a share says nothing
DEPENDENT = 1e-9  # share of a standardised column's variance that is left given the others, below which it is a copy
DISCRETE = (
    "so it is discrete: the density grows without end; dequantise it (partita.models.directed.flow.Dequantised), or use a model of masses."
)


def flow_cautions(data: Data, width: int, *, generator: torch.Generator) -> list[str]:
    """What is wrong with the columns of x, each in one sentence; columns past ``width`` are their context."""
    index = rng.permutation(len(data), generator)[:ROWS].cpu()
    rows = data.batch(index, generator=generator).x.double()
    return [*_atoms(rows[:, :width]), *_copies(rows[:, :width], rows[:, width:])]


def _atoms(x: Tensor) -> list[str]:
    """The first column with a value that takes up many rows, or with few different values."""
    if len(x) < LEAST_ROWS:
        return []
    for column in range(x.shape[1]):
        values, counts = x[:, column].unique(return_counts=True)
        share = float(counts.max()) / len(x)
        if share > ATOM:
            return [f"column {column} takes one value in {100 * share:.0f} % of the rows, {DISCRETE}"]
        if len(values) < FEW * len(x):
            return [f"column {column} has {len(values)} different values in {len(x)} rows, {DISCRETE}"]
    return []


def _copies(x: Tensor, context: Tensor) -> list[str]:
    """The first column that the context and the columns before it determine: the diagonal of a QR factorisation that vanishes."""
    table, C = torch.cat([context, x], 1), context.shape[1]
    if len(table) < 3:
        return []
    z = (table - table.mean(0)) / table.std(0).clamp_min(1e-300) / math.sqrt(len(table) - 1)
    alike = (z.mT @ z).abs()
    enough = len(z) > z.shape[1] + 1  # with fewer rows any column is a function of the others
    left = torch.linalg.qr(z, mode="r").R.diagonal().square() if enough else torch.ones_like(z[0])
    for column in range(max(1, C), table.shape[1]):
        twin = int(alike[:column, column].argmax())
        name = f"column {twin - C}" if twin >= C else f"column {twin} of the context"
        copied = float(alike[twin, column]) > 1 - DEPENDENT
        if copied or float(left[column]) < DEPENDENT:
            which = f"a copy of {name}" if copied else "a linear function of the columns before it"
            return [f"column {column - C} is {which}, so the density is degenerate and its likelihood grows without end; leave the column "
                    "out."]  # fmt: skip
    return []
