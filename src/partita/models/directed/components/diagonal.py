r"""Gaussian components without covariances: one variance for each column (diagonal), or one for all
(spherical).

.. math:: \sigma_{ki}^2 = \frac{\sum_n r_{nk} m_{ni} (x_{ni} - \mu_{ki})^2}{\sum_n r_{nk} m_{ni}}
          (theory/mixtures.md, eq. 10.6)

and for the spherical ones numerator and denominator are summed over columns. A variance below
``floor`` is held there, which is the maximizer under that constraint, and is reported.

Letters: B rows, D columns, K components, m observed.
"""

import math

import torch
from torch import Generator, Tensor, nn

from partita.core import rng
from partita.models.directed.components.base import (
    Factorized,
    Located,
    Statistics,
    means_of,
    observed,
)


class DiagonalGaussian(Located[Tensor, Tensor], Factorized):
    """Means ``location`` (K, D) and standard deviations exp(``log_scale``), (K, D) or (K, 1) if
    ``spherical``.
    """

    held_back = (
        "a variance of {whose} fell below {floor:g} and is held there; use fewer components or a "
        "larger floor."
    )

    def __init__(
        self,
        count: int,
        visible: int,
        *,
        spherical: bool = False,
        floor: float,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.locate(count, visible, floor, device)
        self.spherical = spherical
        self.log_scale = nn.Parameter(self.location.new_zeros(count, 1 if spherical else visible))

    def features(self, x: Tensor) -> Tensor:
        mask, x = observed(x - self.origin)
        return torch.stack([mask, x, x * x])

    def natural(self) -> Tensor:
        m = self.location - self.origin
        precision = torch.exp(-2 * self.log_scale).expand_as(self.location)
        constant = -0.5 * (m * m * precision + math.log(2 * math.pi)) - self.log_scale
        return torch.stack([constant, m * precision, -0.5 * precision], 1)

    def mean(self) -> Tensor:
        return self.location

    @torch.no_grad()
    def maximize(self, statistics: Statistics) -> None:
        n, total, squares = statistics["t"].unbind(1)
        m = means_of(total, n, self.location - self.origin)
        spread = squares - total * m
        if self.spherical:
            n, spread = n.sum(-1, keepdim=True), spread.sum(-1, keepdim=True)
        variance = means_of(spread, n, torch.exp(2 * self.log_scale))
        self.location.copy_(m + self.origin)
        self.held.copy_((variance < self.floor).any(-1))
        self.log_scale.copy_(0.5 * variance.clamp_min(self.floor).log())

    @torch.no_grad()
    def spread(self, mean: Tensor, variance: Tensor, generator: Generator) -> None:
        super().spread(mean, variance, generator)
        spread = variance.mean(-1, keepdim=True) if self.spherical else variance
        self.log_scale.copy_(0.5 * spread.clamp_min(self.floor).log().expand_as(self.log_scale))

    def draw(self, index: Tensor, *, generator: Generator) -> Tensor:
        location = self.location[index]
        return (
            location + rng.normal(location.shape, location, generator) * self.log_scale.exp()[index]
        )

    def freedom(self) -> int:
        return self.location.numel() + self.log_scale.numel()
