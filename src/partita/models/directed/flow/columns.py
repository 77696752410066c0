"""What makes a density of these columns infinite: copies of other columns, and values that repeat.

A flow can squeeze all mass onto a line, or onto single values, and its likelihood then grows without end.
"""

import torch
from torch import Tensor

from partita.core import rng
from partita.core.protocols import Data

ROWS = 4096  # rows that are looked at
ATOM = 0.05  # share of the rows that one value may take up in a column of real numbers
LEAST_ROWS = 40  # with fewer a share says nothing
DEPENDENT = 1e-9  # share of a standardised column's variance that is left given the others, below which it is a copy


def flow_cautions(data: Data, width: int, *, generator: torch.Generator) -> list[str]:
    """What is wrong with the columns of x, each in one sentence."""
    index = rng.permutation(len(data), generator)[:ROWS].cpu()
    x = data.batch(index, generator=generator).x[:, :width].double()
    return [*_atoms(x), *_copies(x)]


def _atoms(x: Tensor) -> list[str]:
    if len(x) < LEAST_ROWS:
        return []
    for column in range(x.shape[1]):
        values, counts = x[:, column].unique(return_counts=True)
        share = float(counts.max()) / len(x)
        if share > ATOM:
            value = float(values[counts.argmax()])
            return [f"column {column} takes the value {value:g} in {100 * share:.0f} % of the rows, so it is discrete: the density grows "
                    "without end; dequantise it (partita.models.directed.flow.Dequantised), or use a model of masses."]  # fmt: skip
    return []


def _copies(x: Tensor) -> list[str]:
    """Columns that the others determine: the pivots of a Cholesky factorisation of the correlations that vanish."""
    if len(x) <= x.shape[1] + 1:
        return []
    z = (x - x.mean(0)) / x.std(0).clamp_min(1e-300)
    correlation = (z.mT @ z) / (len(z) - 1)
    for column in range(1, x.shape[1]):
        before = correlation[:column, :column] + 1e-14 * torch.eye(column, dtype=x.dtype, device=x.device)
        against = correlation[:column, column]
        left = correlation[column, column] - against @ torch.linalg.solve(before, against)
        if float(left) < DEPENDENT:
            twin = int(against.abs().argmax())
            copied = float(against.abs().max()) > 1 - DEPENDENT
            which = f"a copy of column {twin}" if copied else "a linear function of the columns before it"
            return [f"column {column} is {which}, so the density is degenerate and its likelihood grows without end; leave the column out."]
    return []
