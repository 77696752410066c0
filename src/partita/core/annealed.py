r"""A model part of the way from its reference to itself.

.. math:: F_\beta(x) = -\big((1-\beta)\,\eta_0 + \beta\,\eta\big) \cdot t(x)
          - \sum_j \mathrm{softplus}\big(\beta\,(c_j + x^\top W_{:,j})\big)
          (theory/energy.md, eq. 2.7)

for an RBM; every model has such a path (``EnergyModel.energy_along``), and here it is stopped on
the way.

Letters: beta place on the way, eta natural parameters, t(x) statistics, c_j and W the hidden
units'.
"""

from typing import Any

import torch
from torch import Tensor

from partita.core.enumeration import Side
from partita.core.protocols import Data, EnergyModel, Field, Reference, Settings


class Annealed(EnergyModel):
    """A model part of the way from its reference: ``Annealed(m, a).annealed(b)`` is ``Annealed(m, a
    b)``.
    """

    base: Any  # an EnergyModel, perhaps with conditionals
    beta: Tensor  # of a view never a plain number

    def __init__(self, base: EnergyModel, beta: Tensor | float) -> None:
        super().__init__()
        object.__setattr__(self, "base", base)  # not a submodule: a view owns no parameters
        self.beta = torch.as_tensor(  # type: ignore[assignment]
            beta, device=base.like.device, dtype=base.like.dtype
        )
        self.support = base.support
        self.capabilities = base.capabilities
        self.differentiable = base.differentiable

    def free_energy(self, x: Tensor) -> Tensor:
        return self.base.energy_along(self.base.field(x), self.beta)

    def field(self, x: Tensor) -> Field:
        return self.base.field(x)

    def energy_along(self, field: Field, beta: Tensor) -> Tensor:
        return self.base.energy_along(field, self.beta * beta)

    def energy(self, x: Tensor, h: Tensor) -> Tensor:
        return self.base.energy(x, h, self.beta)

    def hidden_given_visible(self, x: Tensor, field: Field | None = None) -> Any:
        return self.base.hidden_given_visible(x, self.beta, field)

    def visible_given_hidden(self, h: Tensor) -> Any:
        return self.base.visible_given_hidden(h, self.beta)

    def slope(self, x: Tensor, beta: Tensor | None = None) -> tuple[Tensor, Tensor] | None:
        return self.base.slope(x, self._at(beta))

    def _at(self, beta: Tensor | None) -> Tensor:
        """This place on the path of the base, or ``beta`` of the way to it."""
        return self.beta if beta is None else self.beta * beta

    def site_energies(
        self, x: Tensor, i: int, values: Tensor, beta: Tensor | None = None
    ) -> Tensor:
        return self.base.site_energies(x, i, values, self._at(beta))

    def conditional_logits(self, x: Tensor, beta: Tensor | None = None) -> Tensor:
        return self.base.conditional_logits(x, self._at(beta))

    def sides(self) -> list[Side]:
        return [
            *super().sides(),
            *(self._annealed_side(side) for side in self.base.sides() if side.name == "hidden"),
        ]

    def _annealed_side(self, side: Side) -> Side:
        return side._replace(free_energy=lambda h: side.free_energy(h, self.beta))

    def reference(self) -> Reference:
        return self.base.reference()

    def title(self) -> str:
        return f"{self.base.title()} annealed"

    def annealed(self, beta: Tensor | float) -> EnergyModel:
        return Annealed(self.base, self.beta * beta)

    def given_component(
        self, x: Tensor, beta: Tensor | None = None, *, generator: torch.Generator
    ) -> EnergyModel:
        return self.base.given_component(x, self._at(beta), generator=generator)

    def anchor_rows(self, n: int) -> Tensor | None:
        return self.base.anchor_rows(n)

    def initialize(self, data: Data, *, generator: torch.Generator) -> None:
        self.base.initialize(data, generator=generator)

    def settings(self) -> Settings:
        return self.base.settings()

    def double(self) -> "Annealed":
        return Annealed(self.base.double(), self.beta.double())

    @property
    def like(self) -> Tensor:
        return self.base.like
