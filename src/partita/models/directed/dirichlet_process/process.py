r"""The Dirichlet process itself: sticks, the urn, the law of its partitions, and the posterior of
its concentration.

.. math:: \pi_k = V_k \prod_{j<k} (1 - V_j), \quad V_k \sim \mathrm{Beta}(1, \alpha), \quad G =
          \sum_k \pi_k \delta_{\theta_k}
          (theory/dirichlet.md, eq. 20.1)

Letters: n draws or rows, K clusters, alpha the concentration, H the base measure.
"""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.distributions import Beta, Gamma

from partita.core import rng
from partita.core.arguments import check_count, check_real

Base = Callable[[int], Tensor]  # n independent draws of H


def stick_breaking(alpha: float, *, tail: float = 1e-10, generator: Generator) -> Tensor:
    """Weights of one draw of the process, ``(K,)``, broken until less than ``tail`` of the stick is
    left; the rest goes to the last.

    >>> weights = stick_breaking(2.0, generator=torch.Generator().manual_seed(0))
    >>> round(float(weights.sum()), 12)
    1.0
    """
    check_real("stick_breaking", "alpha", alpha, 0, open_low=True)
    check_real("stick_breaking", "tail", tail, 0, 1, open_low=True)
    expected = math.ceil(alpha * -math.log(tail)) + 32  # -log(1 - V) is exponential with rate alpha
    law = Beta(torch.ones((), dtype=torch.float64), torch.tensor(alpha, dtype=torch.float64))
    kept = torch.empty(0, dtype=torch.float64)
    while not len(kept) or float(torch.log1p(-kept).sum()) > math.log(tail):
        kept = torch.cat([kept, rng.draw(law, generator, (expected,))])
    left = torch.cat([kept.new_ones(1), (1 - kept).cumprod(0)])
    count = int((left > tail).sum())
    weights = kept[:count] * left[:count]
    weights[-1] += left[count]
    return weights


def polya_urn(n: int, alpha: float, base: Base, *, generator: Generator) -> tuple[Tensor, Tensor]:
    """``n`` draws from a G that is itself integrated out, and the number of the ball each repeats:
    ``(n, ...), (n,)``.

    Draw i is new, from H, with probability alpha / (alpha + i - 1), else one of the earlier draws,
    each equally likely (eq. 20.3).
    """
    check_count("polya_urn", "n", n)
    check_real("polya_urn", "alpha", alpha, 0, open_low=True)
    u = torch.rand(n, generator=generator, device=generator.device, dtype=torch.float64)
    # below i: the draw to repeat; above: a new one
    place = u * (alpha + torch.arange(n, dtype=torch.float64, device=u.device))
    labels, balls = [], 0
    for i, p in enumerate(place.tolist()):
        labels.append(labels[int(p)] if p < i else balls)
        balls += p >= i
    index = torch.tensor(labels, device=u.device)
    return base(balls)[index], index


def expected_clusters(n: int, alpha: float) -> float:
    """E[K] of n draws: sum over i of alpha / (alpha + i - 1) (eq. 20.4).

    >>> round(expected_clusters(100, 1.0), 4)
    5.1874
    """
    ends = torch.tensor([alpha + n, alpha], dtype=torch.float64)
    return float(alpha * -torch.digamma(ends).diff())


def log_partition_prior(counts: Tensor, alpha: Tensor | float) -> Tensor:
    """log p(partition) of the urn from cluster sizes ``(*, K)``, zeros allowed: the Ewens law (eq.
    20.5).

    >>> p = [
    ...     log_partition_prior(torch.tensor(sizes), 1.0).exp()
    ...     for sizes in ([2.0, 0.0], [1.0, 1.0])
    ... ]
    >>> round(float(sum(p)), 6)
    1.0
    """
    counts = counts.double()
    alpha = torch.as_tensor(alpha, dtype=torch.float64, device=counts.device)
    occupied = counts > 0
    blocks = torch.where(occupied, torch.lgamma(counts.clamp_min(1)), 0.0).sum(-1)
    return (
        occupied.sum(-1) * alpha.log()
        + blocks
        + torch.lgamma(alpha)
        - torch.lgamma(alpha + counts.sum(-1))
    )


def draw_concentration(
    alpha: Tensor,
    clusters: Tensor,
    n: int,
    shape: float,
    rate: float,
    *,
    generator: Generator,
) -> Tensor:
    r"""The next alpha given K clusters of n rows under a Gamma(shape, rate) prior, all ``(C,)``:
    Escobar and West 1995 (eq. 20.8).

    .. math:: \eta \sim \mathrm{Beta}(\alpha + 1, n), \qquad
              \alpha \sim w\, \Gamma(a + K, b - \log \eta) + (1 - w)\, \Gamma(a + K - 1, b - \log
              \eta)
    """
    alpha = alpha.double()
    eta = rng.draw(Beta(alpha + 1, alpha.new_tensor(float(n))), generator)
    inverse_scale = rate - eta.log()
    odds = (shape + clusters - 1) / (n * inverse_scale)
    more = rng.uniform(alpha.shape, alpha, generator) < odds / (1 + odds)
    return rng.draw(Gamma(shape + clusters - 1 + more.double(), inverse_scale), generator)
