r"""Where the path to a model begins: a product over finite lists of values, or a normal
distribution, fitted to base rates and kept as buffers.

.. math:: \eta_\beta = (1 - \beta)\, \eta_0 + \beta\, \eta

Letters: D visible, K values of a coordinate.
"""

import math

import torch
from torch import Generator, Tensor

from partita.core.protocols import Data, EnergyModel, Reference
from partita.models.energy.units import (
    FactorizedReference,
    GaussianReference,
    fitted_normal,
    frequencies,
    smoothed_logits,
)


def interpolated(start: Tensor, end: Tensor, beta: Tensor | None, dims: int = 0) -> Tensor:
    """``end``, or the point at ``beta`` on the line to it from ``start``; ``dims`` is the number of
    last dimensions that beta lacks.
    """
    if beta is None:
        return end
    return torch.lerp(start.expand_as(end), end, beta[(..., *[None] * dims)].to(end))


class FromProduct(EnergyModel):
    """A model whose path begins at a product over the values of each coordinate."""

    reference_logits: Tensor  # (D, K), or (C, D, K) where each chain has its own

    def register_product(self, like: Tensor) -> None:
        """Make room for the reference and for rows of training data."""
        width, values = self.support.width, self.support.values()
        self.register_anchors(width, like)
        self.register_buffer("reference_logits", like.detach().new_zeros(width, len(values)))

    @property
    def hidden_nats(self) -> float:
        """Log of the number of hidden states, which see no input at the reference."""
        return 0.0

    def reference(self) -> Reference:
        return self.product

    @property
    def product(self) -> FactorizedReference:
        """The product with its hidden states."""
        values = self.support.values().to(self.reference_logits)
        return FactorizedReference(values, self.reference_logits, self.hidden_nats)

    def fit_product(self, data: Data, rows: int, generator: Generator) -> None:
        """Set the reference to the base rates of data that count as so many rows."""
        self.set_anchors(data, generator=generator)
        table = frequencies(data, self.support.values(), generator)
        self.reference_logits.copy_(smoothed_logits(table, rows))

    def own_logits(self, x: Tensor) -> Tensor | None:
        """:meth:`conditional_logits` of the model itself where all sites come from one product,
        ``(*, D) -> (*, D, K)``; None by default.
        """
        return None

    def site_logits(self, x: Tensor, i: int) -> Tensor | None:
        """Those of one site, ``(*, D) -> (*, K)``, where they have a quicker way than the energies
        of all values; None by default.
        """
        return None

    def conditional_logits(self, x: Tensor, beta: Tensor | None = None) -> Tensor:
        own = self.own_logits(x)
        if own is None:
            return super().conditional_logits(x, beta)
        return interpolated(self.reference_logits, own, beta, 2)

    def site_energies(
        self, x: Tensor, i: int, values: Tensor, beta: Tensor | None = None
    ) -> Tensor:
        own = self.site_logits(x, i)
        if own is None:
            return super().site_energies(x, i, values, beta)
        logits = interpolated(self.reference_logits[..., i, :], own, beta, 1)
        chosen = torch.bucketize(values, self.support.values().to(values))
        return -logits[..., chosen].movedim(-1, 0)


class FromNormal(EnergyModel):
    """A model whose path begins at a normal distribution."""

    covariance: str
    reference_mean: Tensor
    reference_whitening: Tensor

    def register_normal(self, like: Tensor, variance: float = 1.0) -> None:
        """Make room for the reference and for rows of training data."""
        width, like = self.support.width, like.detach()
        self.register_anchors(width, like)
        self.register_buffer("reference_mean", like.new_zeros(width))
        whitening = torch.eye(width, dtype=like.dtype, device=like.device)
        self.register_buffer("reference_whitening", math.sqrt(1 / variance) * whitening)

    @property
    def normal(self) -> GaussianReference:
        """The normal distribution, without hidden states."""
        return GaussianReference(self.reference_mean, self.reference_whitening)

    def fit_normal(self, data: Data, generator: Generator) -> Tensor:
        """Set the reference to the distribution nearest to the data; returns its mean."""
        self.set_anchors(data, generator=generator)
        mean, whitening = fitted_normal(type(self).__name__, data, self.covariance, generator)
        self.reference_mean.copy_(mean)
        self.reference_whitening.copy_(whitening)
        return mean
