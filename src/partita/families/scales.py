r"""One noise variance for all columns: in common units, or in units of each column's own.

.. math:: -2 \log \hat L = N \Bigl(\sum_{i \le d} \log \lambda_i + (D - d) \log \sigma^2 + D (1 +
          \log 2\pi)\Bigr) + N \sum_j \log s_j^2
          (theory/mixtures.md, eq. 10.15)

Probabilistic PCA is not the same in other units: a table whose columns are in different ones gets a
noise that drowns the small columns and fits the large ones to the last digit. In standardized
columns (s their deviations) it is another model of the same table, with D - 1 more parameters. Both
maxima are known, so the smaller BIC chooses, over the d for which these are fewer than an
unrestricted covariance has: beyond them, units hardly matter to the maximum.

Letters: N rows, D columns, d latent dimensions.
"""

import math
from collections.abc import Iterable

import numpy as np
import torch

from partita.errors import InputError
from partita.tables import Rows
from partita.tables.encoding import Encoding

# of a part of the table, evenly spread, that the choice is made on
MOST_COLUMNS, CELLS = 400, 1 << 20


def asks_for_own_scales(rows: Rows, dimensions: Iterable[int], floor: float) -> bool:
    """Whether the best closed form in standardized columns has the smaller BIC; never where a
    column does not vary.

    Where values are missing, covariances are those of the rows in which both are there.

    >>> g = np.random.default_rng(0)
    >>> x = g.normal(size=(200, 2)) @ g.normal(size=(2, 6)) + 0.3 * g.normal(size=(200, 6))
    >>> [
    ...     asks_for_own_scales(Rows(x * units), range(6), 1e-6)
    ...     for units in (np.ones(6), 10.0 ** np.arange(6))
    ... ]
    [False, True]
    """
    try:
        Encoding.fit(rows, "real")
    except InputError:  # a column does not vary
        return False
    covariance = _covariance(_part(rows))
    deviation = np.sqrt(covariance.diagonal())
    if not (deviation > 0).all():  # in the part that is looked at
        return False
    n, width = len(rows), len(deviation)
    dimensions = {min(d, most_dimensions(width)) for d in dimensions}
    common = least_bic(np.linalg.eigvalsh(covariance), n, dimensions, floor)
    own = least_bic(
        np.linalg.eigvalsh(covariance / np.outer(deviation, deviation)), n, dimensions, floor
    )
    return own + 2 * n * float(np.log(deviation).sum()) + (width - 1) * math.log(n) < common


def most_dimensions(width: int) -> int:
    """The largest d with (D - d)^2 >= D + d (Ledermann 1937).

    >>> most_dimensions(4), most_dimensions(13), most_dimensions(100)
    (1, 8, 86)
    """
    return int(width + 0.5 - 0.5 * math.sqrt(8 * width + 1))


def least_bic(values: np.ndarray, n: int, dimensions: Iterable[int], floor: float) -> float:
    """The smallest BIC over some numbers of dimensions, from the eigenvalues of the covariance of n
    rows.
    """
    falling = np.maximum(np.sort(values)[::-1], floor * values.mean())
    width, found = len(falling), []
    for d in dimensions:
        deviance = n * (
            np.log(falling[:d]).sum()
            + (width - d) * math.log(falling[d:].mean())
            + width * (1 + math.log(2 * math.pi))
        )
        found.append(deviance + (width + 1 + width * d - d * (d - 1) / 2) * math.log(n))
    return float(min(found))


def _part(rows: Rows) -> np.ndarray:
    """Some of the table, (n, D)."""
    count = min(len(rows), max(2, CELLS // rows.width))
    x = (
        rows.take(np.linspace(0, len(rows) - 1, count).round().astype(int))
        .tensor(torch.Generator().manual_seed(0))
        .double()
        .numpy()
    )
    return x[:, np.linspace(0, rows.width - 1, min(rows.width, MOST_COLUMNS)).round().astype(int)]


def _covariance(x: np.ndarray) -> np.ndarray:
    """Of the rows in which both columns are there, (D, D), in the unit of the largest number, whose
    square might be none.
    """
    there, x = ~np.isnan(x), x / np.nanmax(np.abs(x))
    mean = np.where(there, x, 0.0).sum(0) / np.maximum(1, there.sum(0))
    off = np.where(there, x - mean, 0.0)
    return (off.T @ off) / np.maximum(1, there.T.astype(float) @ there)
