r"""Gray levels as real numbers: uniform noise fills the steps between them, and the density bounds
the mass.

.. math:: \log P(x) = \log \int_{[0,1)^D} p(x + u)\, du \;\ge\; E_u[\log p(x + u)]
          (theory/flows.md, eq. 14.10)

Letters: N rows, D columns, K levels, R draws of the noise.
"""

import math

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from partita.core import rng
from partita.core.arguments import check_count, check_rows
from partita.core.protocols import in_double
from partita.core.quantity import Quantity, half_width
from partita.diagnostics.weights import verdict_on_ess, verdict_on_reach
from partita.errors import invalid
from partita.models.directed.flow.flow import Flow
from partita.tables import Rows

ROWS_AT_ONCE = 2048


class Dequantized(Rows):
    """Whole numbers 0 to K - 1 with uniform noise on [0, 1) drawn anew in every batch: real rows
    between 0 and K.

    ``partita.evaluate`` scores one such draw; the mass of the levels themselves is what
    :func:`evaluate_levels` bounds.

    Arguments:
        x: Gray levels, (N, D), of any dtype, followed by the C columns of their context if there is
            one.
        levels: K.
        weight: One nonnegative number per row.
        context: C, columns at the end that stay as they are.

    >>> rows = Dequantized([[0, 3], [1, 2]], 4)
    >>> bool((rows.tensor(torch.Generator()).floor() == torch.tensor([[0, 3], [1, 2]])).all())
    True
    """

    def __init__(
        self, x: ArrayLike, levels: int, weight: ArrayLike | None = None, *, context: int = 0
    ) -> None:
        super().__init__(x, weight, owner="Dequantized")
        self.levels = check_count("Dequantized", "levels", levels, 2)
        self.context = check_count("Dequantized", "context", context, 0)
        if context >= self.width:
            raise invalid(
                "Dequantized",
                "context",
                f"leave some of the {self.width} columns for gray levels",
                context,
            )
        check_levels(
            "Dequantized",
            torch.from_numpy(np.asarray(self.array))[:, : self.width - context],
            levels,
        )
        self._noisy = (torch.arange(self.width) < self.width - context).double()

    def _draw(self, index: np.ndarray, generator: Generator) -> Tensor:
        return dequantized(super()._draw(index, generator), generator, self.context)

    def mean(self) -> Tensor:
        return super().mean() + 0.5 * self._noisy

    def variance(self) -> Tensor:
        mean, total = super().mean().numpy(), np.zeros(self.width)
        for values, weight in self._expected():
            total += weight @ (values - mean) ** 2
        return torch.from_numpy(total / len(self)) + self._noisy / 12


def dequantized(x: Tensor, generator: Generator, context: int = 0) -> Tensor:
    """x + u with u uniform on [0, 1), kept inside its step against rounding; columns of context
    stay.
    """
    levels, given = x.tensor_split([x.shape[-1] - context], -1)
    noisy = torch.minimum(
        levels + rng.uniform(levels.shape, x, generator), torch.nextafter(levels + 1, levels)
    )
    return torch.cat([noisy, given], -1)


def check_levels(owner: str, x: Tensor, levels: int) -> None:
    """Whole numbers from 0 to K - 1."""
    x = x.double()
    outside = (x < 0) | (x > levels - 1) | (x != x.round())
    if bool(outside.any()):
        at = outside.nonzero()[0].tolist()
        raise invalid(
            owner,
            "x",
            f"hold whole numbers from 0 to {levels - 1}",
            f"{x[tuple(at)].item():g} at row {at[0]}, column {at[-1]}",
        )


@torch.no_grad()
def evaluate_levels(
    flow: Flow,
    x: Tensor,
    levels: int,
    *,
    draws: int = 16,
    level: float = 0.95,
    generator: Generator,
) -> Quantity:
    """A lower bound on the mean log-mass of gray levels, in nats: the mean over R draws of the
    noise inside the logarithm.

    ``bits_per_dimension(q, D)`` makes bits of it; they are of the data, for every step of the
    preprocessing counts. Rows of a conditional flow are gray levels followed by their context.
    """
    check_rows("evaluate_levels", "x", x)
    check_count("evaluate_levels", "draws", draws, 2)
    check_levels("evaluate_levels", x[:, : x.shape[1] - flow.context], levels)
    flow = in_double(flow)
    parts = [_of_rows(flow, part.to(flow.like), draws, generator) for part in x.split(ROWS_AT_ONCE)]
    rows, noise = (torch.cat(both) for both in zip(*parts, strict=True))
    value, se = float(rows.mean()), math.sqrt(float(noise.sum())) / len(x)
    spread = float(rows.std()) / math.sqrt(len(rows)) if len(rows) > 1 else 0.0
    # a logarithm of a mean errs low by half of its variance
    half, short = half_width(se, level), float(noise.mean())
    ess = float((draws / (1 + draws * noise)).mean())
    verdict = verdict_on_reach(half + short, verdict_on_ess(ess, draws))
    return Quantity(
        value,
        value - half,
        value + half + short,
        level,
        "lower",
        method=f"dequantization, {draws} draws",
        n=len(rows),
        se_data=spread,
        verdict=verdict,
        direction="low",
        details={"rows": rows, "draws": draws, "ess": ess},
    )


def _of_rows(flow: Flow, x: Tensor, draws: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """log of the mean density over the noise for each row, and the variance of that from the noise
    (by the delta method).
    """
    log_p = torch.stack(
        [flow.log_prob(dequantized(x, generator, flow.context)) for _ in range(draws)]
    )
    log_mean = torch.logsumexp(log_p, 0) - math.log(draws)
    relative = (log_p - log_mean).exp().var(0) / draws
    return log_mean, relative
