r"""Are these draws from this density? Two tests that know nothing of Z.

A few Metropolis moves that leave f invariant leave the law of any summary g of its draws as it was,
and Stein's identities hold for draws of a smooth f without bounds:

.. math:: E\big[g(x') - g(x)\big] = 0, \qquad E\big[\partial_i \log f\big] = 0, \qquad
          E\big[1 + (x_i - \mu_i)\, \partial_i \log f\big] = 0
          (theory/evidence.md, eq. 60.9)

The summaries g are log f, every coordinate and its square. Each mean is held against its error over
correlated draws, and the smallest probability counts times their number (Bonferroni).

Letters: C chains, n draws of each, D coordinates.
"""

import math
from typing import NamedTuple

import torch
from scipy.special import stdtr
from torch import Tensor

from partita.core import rng
from partita.core.batched import Batched
from partita.diagnostics.chains import DRAWS_PER_DEGREE
from partita.evaluators.partition.chains.bridge_sampling import effective

FALSE_ALARM = 0.001  # of each of the two tests, on draws of the density
MOVES, MOVED, MOVED_BY_LOOP = 12, 1200, 240  # Metropolis steps; chains that take them
SLOPES, SLOPES_BY_LOOP = 8000, 800  # draws at which gradients are taken
OPTIMAL = 2.38  # over the root of D: deviations of a move (Roberts et al. 1997)


class Probability(NamedTuple):
    """How likely draws of the density are to look at least as foreign as these; 1 where a test
    could not be made.
    """

    moves: float = 1.0
    slopes: float = 1.0

    @property
    def passed(self) -> bool:
        return min(self.moves, self.slopes) >= FALSE_ALARM


def same_density(
    x: Tensor,
    log_f: Tensor,
    target: Batched,
    *,
    bounded: bool,
    generator: torch.Generator,
) -> Probability:
    """Both tests on draws ``x`` ``(C, n, D)`` with log density ``log_f`` ``(C, n)``.

    Arguments:
        bounded: Whether the density is zero somewhere, where Stein's identities need not hold.
    """
    moves = after_moves(x, log_f, target, generator=generator)
    slopes = by_slopes(x, target) if target.differentiable and not bounded else 1.0
    return Probability(moves, slopes)


def after_moves(x: Tensor, log_f: Tensor, target: Batched, *, generator: torch.Generator) -> float:
    """The test by Metropolis moves from some of the draws."""
    D = x.shape[-1]
    start = _some(x, MOVED if target.batched else MOVED_BY_LOOP)
    energy = _some(log_f[..., None], start.shape[0] * start.shape[1])[..., 0]
    flat = x.flatten(0, 1)
    step = torch.linalg.cholesky(torch.cov(flat.mT).reshape(D, D)) * (OPTIMAL / math.sqrt(D))
    at, height = start.flatten(0, 1), energy.flatten()
    for _ in range(MOVES):
        proposed = at + rng.normal(at.shape, at, generator) @ step.mT
        new = target(proposed)
        accepted = rng.uniform(height.shape, height, generator).log() < new - height
        at, height = (
            torch.where(accepted[:, None], proposed, at),
            torch.where(accepted, new, height),
        )
    center, scale = flat.mean(0), flat.std(0)
    before, after = (start.flatten(0, 1) - center) / scale, (at - center) / scale
    change = torch.cat(
        [(height - energy.flatten())[:, None], after - before, after.square() - before.square()], -1
    )
    return smallest_probability(change.view(start.shape[0], start.shape[1], -1))


def by_slopes(x: Tensor, target: Batched) -> float:
    """The test by Stein's identities."""
    x = _some(x, SLOPES if target.batched else SLOPES_BY_LOOP)
    slope = target.gradient(x.flatten(0, 1)).view_as(x)
    center, scale = x.mean((0, 1)), x.flatten(0, 1).std(0)
    slope = slope * scale
    terms = torch.cat([slope, 1 + (x - center) / scale * slope], -1)
    return smallest_probability(terms) if bool(torch.isfinite(terms).all()) else 1.0


def smallest_probability(terms: Tensor) -> float:
    """Of the means of K series ``(C, n, K)`` to be as far from zero as they are, times K."""
    smallest, K = 1.0, terms.shape[-1]
    for series in terms.unbind(-1):
        spread = float(series.std())
        if not spread > 0:
            continue
        ess = effective(series)
        z = abs(float(series.mean())) / spread * math.sqrt(ess)
        smallest = min(smallest, 2 * float(stdtr(max(2.0, ess / DRAWS_PER_DEGREE), -z)))
    return min(1.0, K * smallest)


def _some(x: Tensor, most: int) -> Tensor:
    """At most about ``most`` draws, evenly over each chain: ``(C, n, K)`` to ``(C, m, K)``."""
    C, n, _ = x.shape
    m = max(4, min(n, most // C))
    return x[:, torch.linspace(0, n - 1, m).round().long()]
