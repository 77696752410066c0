r"""Statistics of two samples: the kernel distance between them, and how much of one the other
covers.

.. math:: \mathrm{MMD}^2 = E[k(x, x')] - 2 E[k(x, y)] + E[k(y, y')], \qquad k(x, y) = e^{-|x - y|^2
          / 2 h^2}
          (theory/divergences.md, eq. 15.9)

Letters: n rows of x, m rows of y, D width, h bandwidth.
"""

import torch
from torch import Tensor

from partita.core.arguments import (
    PositiveFloat,
    PositiveInt,
    check_finite,
    check_rows,
    check_width,
    validated,
)

MEDIAN_ROWS = 1000  # rows of each sample that the median distance is taken over


def check_two(owner: str, x: Tensor, y: Tensor, least: int = 2) -> None:
    """Two finite tables of the same width with at least ``least`` rows each."""
    for name, table in (("x", x), ("y", y)):
        check_rows(owner, name, table, least)
        check_finite(owner, name, table)
    check_width(owner, "y", y, x.shape[1], f"x, which has {x.shape[1]} columns")


def median_bandwidth(x: Tensor, y: Tensor) -> float:
    """The median distance between different rows of the two samples together, a bandwidth without a
    choice; 1 where all are equal.
    """
    apart = torch.pdist(torch.cat([x[:MEDIAN_ROWS].double(), y[:MEDIAN_ROWS].double()]))
    apart = apart[apart > 0]
    return float(apart.median()) if len(apart) else 1.0


def _distances(x: Tensor, y: Tensor) -> Tensor:
    """|x_i - y_j|, about a common middle: far from zero a product would lose all digits."""
    middle = x.mean(0)
    return torch.cdist(x - middle, y - middle)


@validated
def gaussian_kernel(x: Tensor, y: Tensor, bandwidth: PositiveFloat) -> Tensor:
    """k(x_i, y_j), ``(n, D), (m, D) -> (n, m)``."""
    return _distances(x, y).square_().mul_(-0.5 / bandwidth**2).clamp_min_(-80.0).exp_()


def mmd2(x: Tensor, y: Tensor, bandwidth: float | None = None) -> Tensor:
    """The unbiased estimate of the squared kernel distance (Gretton et al. 2012, lemma 6); it can
    be slightly negative.

    >>> x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    >>> bool(mmd2(x, x + 3) > 0.5)
    True
    """
    check_two("mmd2", x, y)
    h = median_bandwidth(x, y) if bandwidth is None else bandwidth
    within = [
        (k.sum() - k.diagonal().sum()) / (len(k) * (len(k) - 1))
        for k in (gaussian_kernel(part, part, h) for part in (x, y))
    ]
    return within[0] + within[1] - 2 * gaussian_kernel(x, y, h).mean()


@validated
def coverage(x: Tensor, y: Tensor, neighbors: PositiveInt = 5) -> Tensor:
    """Share of the rows of x with a row of y no farther away than their k-th neighbor in x (Naeem
    et al. 2020): modes not missed.

    For two samples of one distribution and of one size it is :math:`1 - 2^{-k}` on average, and
    tends to zero as modes are lost.
    """
    check_two("coverage", x, y, neighbors + 1)
    x, y = x.double(), y.double()
    radius = _distances(x, x).kthvalue(neighbors + 1, 1).values  # the nearest is the row itself
    return (_distances(x, y).amin(1) <= radius).double().mean()


def modes_covered(
    y: Tensor, centers: Tensor, radius: float, least: float = 0.2
) -> tuple[int, float]:
    """How many known modes hold at least ``least`` of their even share of the rows of y, and the
    share of rows within ``radius`` of one.
    """
    distance, nearest = torch.cdist(y, centers.to(y)).min(1)
    near = distance <= radius
    counts = torch.bincount(nearest[near], minlength=len(centers))
    return int((counts >= least * len(y) / len(centers)).sum()), float(near.float().mean())
