r"""Generated sets whose entropy is known, so that the best reachable log-likelihood, -H, is known
too.

.. math:: H = -E[\log p(x)], \qquad E_{p}[\log q(x)] \le -H \text{ with equality at } q = p
"""

import math

import torch
from torch import Tensor

from partita.core.arguments import check_count
from partita.core.rng import normal, seed
from partita.core.support import Binary

RADIUS = 4 / math.sqrt(2)  # of the circle that holds the eight centers
SPREAD = 0.5 / math.sqrt(2)  # standard deviation of each of the eight
MOONS_NOISE = 0.1
CHECKERBOARD_ENTROPY = math.log(32)  # uniform on an area of 8 squares of side 2


def bars_and_stripes(side: int = 4) -> Tensor:
    """All patterns of full columns and all of full rows, ``(2 * 2**side, side**2)``; empty and full
    occur twice, as is usual.

    >>> bars_and_stripes(1).flatten().tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    check_count("bars_and_stripes", "side", side)
    lines = Binary(side).states(0, 2**side, torch.zeros(()))
    bars = lines[:, None, :].expand(-1, side, -1)
    return torch.cat([bars, bars.mT]).flatten(1)


def bars_and_stripes_entropy(side: int = 4) -> float:
    r"""Entropy of the patterns in nats, :math:`\log N - (4 / N) \log 2` with N = 2 * 2**side: two
    of them have twice the weight.

    >>> round(bars_and_stripes_entropy(4), 4)
    3.3791
    """
    n = 2 * 2 ** check_count("bars_and_stripes_entropy", "side", side)
    return math.log(n) - 4 / n * math.log(2)


def moons(n: int, *, generator: torch.Generator) -> Tensor:
    """Two interleaved half circles with normal noise, scikit-learn's, ``(n, 2)``; their entropy has
    no closed form.
    """
    from sklearn.datasets import make_moons

    x, _ = make_moons(check_count("moons", "n", n), noise=MOONS_NOISE, random_state=seed(generator))
    return torch.from_numpy(x).float()


def eight_gaussians(n: int, *, generator: torch.Generator) -> Tensor:
    """A mixture of eight equal round normal distributions on a circle, ``(n, 2)``."""
    check_count("eight_gaussians", "n", n)
    centers = _centers().float()
    which = torch.randint(8, (n,), generator=generator, device=generator.device)
    like = centers.to(generator.device)
    return like[which] + SPREAD * normal((n, 2), like, generator)


def eight_gaussians_log_prob(x: Tensor) -> Tensor:
    """The exact log density of :func:`eight_gaussians`, ``(*, 2) -> (*)``."""
    squares = (x[..., None, :] - _centers().to(x)).square().sum(-1)
    return torch.logsumexp(-squares / (2 * SPREAD**2), -1) - math.log(8 * 2 * math.pi * SPREAD**2)


def eight_gaussians_entropy() -> float:
    """Entropy in nats by the trapezoidal rule on a fine grid, which is exact to rounding for so
    smooth a density.

    >>> round(eight_gaussians_entropy(), 3)
    2.832
    """
    axis = torch.linspace(-6, 6, 601, dtype=torch.float64)
    log_p = eight_gaussians_log_prob(torch.cartesian_prod(axis, axis))
    return float(-(log_p.exp() * log_p).sum() * (axis[1] - axis[0]) ** 2)


def checkerboard(n: int, *, generator: torch.Generator) -> Tensor:
    """Uniform on the 8 black squares of side 2 of a board on [-4, 4]^2, ``(n, 2)``; its entropy is
    ``CHECKERBOARD_ENTROPY``.
    """
    check_count("checkerboard", "n", n)
    device = generator.device
    column = torch.randint(4, (n,), generator=generator, device=device)
    row = 2 * torch.randint(2, (n,), generator=generator, device=device) + column % 2
    inside = torch.rand(n, 2, generator=generator, device=device)
    return 2 * (torch.stack([column, row], -1) + inside) - 4


def _centers() -> Tensor:
    angle = torch.arange(8, dtype=torch.float64) * math.pi / 4
    return RADIUS * torch.stack([angle.cos(), angle.sin()], -1)
