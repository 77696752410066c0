"""What makes a density of these columns infinite: copies of other columns, and values that repeat.

A flow can squeeze all mass onto a line, or onto single values, and its likelihood then grows
without end.
"""

import math

import torch
from torch import Generator, Tensor

from partita.core import rng
from partita.core.protocols import Data

ROWS = 4096  # rows that are looked at
ATOM = 0.05  # share of the rows that one value may take up in a column of real numbers
FEW = 0.1  # different values in a column of real numbers, at least, as a share of the rows
LEAST_ROWS = 40  # with fewer a share says nothing
# share of a standardized column's variance that is left given the others, below which it is a copy
DEPENDENT = 1e-9
DISCRETE = (
    "so it is discrete: the density grows without end; dequantize it "
    "(partita.models.directed.flow.Dequantized), or use a model of masses."
)
COPY = "so the density is degenerate and its likelihood grows without end; leave the column out."


def flow_warnings(data: Data, width: int, *, generator: Generator) -> list[str]:
    """What is wrong with the columns of x, each in one sentence; columns past ``width`` are their
    context.
    """
    index = rng.permutation(len(data), generator)[:ROWS].cpu()
    rows = data.batch(index, generator=generator).x.double()
    found = {DISCRETE: repeating(rows[:, :width]), COPY: copying(rows[:, :width], rows[:, width:])}
    return [f"column {at[0]} {at[1]}, {why}" for why, at in found.items() if at is not None]


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
