r"""A path to a model from a mixture that knows its modes, in place of the model's own reference.

.. math:: F_\beta(x) = \big[F_\beta(x)\big]_{\text{own}} - (1 - \beta)\, F_0(x)
          - \log \sum_z \big(\pi_z\, p_z(x)\big)^{1 - \beta} + \beta \log K
          (theory/scoring.md, eq. 5.21)

The component z is one more hidden variable: given z the path is the model's own, begun at the
product p_z, so every kernel of the model serves. At 0 the path is the mixture, whose log Z is 0; at
1 it is the model, whose log Z is its own.

Letters: C chains, D visible, K components, V values of a coordinate.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Generator, Tensor
from torch.nn import functional

from partita.core import rng
from partita.core.annealed import Annealed
from partita.core.protocols import Capability, Data, EnergyModel, Field, Reference, Settings


@dataclass(frozen=True)
class Components(ABC):
    """A normalized mixture of K distributions that a model's path can begin at."""

    log_weights: Tensor  # (K,)

    @abstractmethod
    def log_parts(self, x: Tensor) -> Tensor:
        """log pi_z + log p_z(x), ``(*, D) -> (*, K)``."""

    @abstractmethod
    def draw_from(self, z: Tensor, generator: Generator) -> Tensor:
        """One draw of each of the components ``z``, ``(n,) -> (n, D)``."""

    @abstractmethod
    def begun(self, model: EnergyModel, z: Tensor) -> EnergyModel:
        """The model with p_z as the reference of each chain."""

    @property
    def log_z(self) -> Tensor:
        return self.log_weights.new_zeros(())

    @property
    def size(self) -> int:
        """K."""
        return len(self.log_weights)

    def free_energy(self, x: Tensor) -> Tensor:
        return -torch.logsumexp(self.log_parts(x), -1)

    def draw(self, n: int, *, generator: Generator) -> Tensor:
        return self.draw_from(rng.categories(self.log_weights.expand(n, -1), generator), generator)

    def weighing(self, log_weights: Tensor) -> Self:
        """The mixture with other weights."""
        return replace(self, log_weights=log_weights)


@dataclass(frozen=True)
class ProductMixture(Components):
    """Products over a finite list of values, mixed."""

    values: Tensor  # (V,)
    logits: Tensor  # (K, D, V), log-probabilities

    def log_parts(self, x: Tensor) -> Tensor:
        if len(self.values) == 2:
            first, second = self.logits.unbind(-1)
            hot = (x - self.values[0]) / (self.values[1] - self.values[0])
            return functional.linear(hot, second - first, first.sum(-1) + self.log_weights)
        hot = (x[..., None] == self.values).to(self.logits.dtype).flatten(-2)
        return functional.linear(hot, self.logits.flatten(1), self.log_weights)

    def draw_from(self, z: Tensor, generator: Generator) -> Tensor:
        return self.values[rng.categories(self.logits[z], generator)]

    def begun(self, model: EnergyModel, z: Tensor) -> EnergyModel:
        return model.begun_at(self.logits[z])


@dataclass(frozen=True)
class NormalMixture(Components):
    """Normal distributions, mixed."""

    mean: Tensor  # (K, D)
    whitening: Tensor  # (K, D, D), lower triangular: R with R covariance R' = I

    def log_parts(self, x: Tensor) -> Tensor:
        u = torch.einsum("kij,...kj->...ki", self.whitening, x[..., None, :] - self.mean)
        scale = self.whitening.diagonal(dim1=-2, dim2=-1).log().sum(-1) - 0.5 * x.shape[
            -1
        ] * math.log(2 * math.pi)
        return self.log_weights + scale - 0.5 * u.square().sum(-1)

    def draw_from(self, z: Tensor, generator: Generator) -> Tensor:
        u = rng.normal((len(z), self.mean.shape[1], 1), self.mean, generator)
        return (
            self.mean[z] + torch.linalg.solve_triangular(self.whitening[z], u, upper=False)[..., 0]
        )

    def begun(self, model: EnergyModel, z: Tensor) -> EnergyModel:
        variance = self.whitening.diagonal(dim1=-2, dim2=-1).pow(-2)
        return model.begun_at(torch.stack([self.mean[z], variance[z]], -1))


class Guided(EnergyModel):
    """A view of a model whose path begins at a mixture."""

    base: EnergyModel

    def __init__(self, base: EnergyModel, mixture: Components) -> None:
        super().__init__()
        object.__setattr__(self, "base", base)  # not a submodule: a view owns no parameters
        # with a component, E(x, h) is not all
        self.mixture, self.support, self.capabilities = (
            mixture,
            base.support,
            base.capabilities - {Capability.JOINT},
        )
        self.differentiable = base.differentiable

    def free_energy(self, x: Tensor) -> Tensor:
        return self.base.free_energy(x)

    def field(self, x: Tensor) -> Field:
        return self.base.field(x)

    def energy_along(self, field: Field, beta: Tensor) -> Tensor:
        parts = self.mixture.log_parts(field.x)
        own = self.base.energy_along(field, beta) - (1 - beta) * self.base.reference().free_energy(
            field.x
        )
        return (
            own
            - torch.logsumexp((1 - beta)[..., None] * parts, -1)
            + beta * math.log(self.mixture.size)
        )

    def given_component(
        self, x: Tensor, beta: Tensor | None = None, *, generator: Generator
    ) -> EnergyModel:
        if beta is None:
            return self.base
        z = rng.categories((1 - beta)[..., None] * self.mixture.log_parts(x), generator)
        return Annealed(self.mixture.begun(self.base, z), beta)

    def reference(self) -> Reference:
        return self.mixture

    def landmarks(self, n: int) -> Tensor | None:
        return self.base.landmarks(n)

    def anchor_rows(self, n: int) -> Tensor | None:
        return self.base.anchor_rows(n)

    def remembering(self, rows: Tensor | None, owner: str) -> EnergyModel:
        return self if rows is None else Guided(self.base.remembering(rows, owner), self.mixture)

    def initialize(self, data: Data, *, generator: Generator) -> None:
        self.base.initialize(data, generator=generator)

    def settings(self) -> Settings:
        return self.base.settings()

    def title(self) -> str:
        return self.base.title()

    @property
    def like(self) -> Tensor:
        return self.base.like
