r"""The path from one model to another, on which Bennett's ratio gives the difference of their log
Z.

.. math:: F_\beta(x) = (1 - \beta)\, F_b(x) + \beta\, F_a(x)          (theory/scoring.md, eq. 5.11)

Letters: C chains, D visible.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from partita.core.protocols import Data, EnergyModel, Field
from partita.errors import invalid


@dataclass(frozen=True)
class FirstModel:
    """Stands where a path has its reference; its log Z counts as zero, for a difference does not
    need it.
    """

    model: EnergyModel

    @property
    def log_z(self) -> Tensor:
        return self.model.like.new_zeros(())

    def free_energy(self, x: Tensor) -> Tensor:
        return self.model.free_energy(x)

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        """Where chains begin: no exact draws of the model, but of its reference."""
        return self.model.reference().draw(n, generator=generator)


class Between(EnergyModel):
    """``first`` at beta = 0, ``last`` at beta = 1: a view of both that owns no parameters."""

    first: EnergyModel
    last: EnergyModel
    begins_exactly = False

    def __init__(self, first: EnergyModel, last: EnergyModel) -> None:
        super().__init__()
        if first.support != last.support:
            raise invalid(
                "Bridge.ratio",
                "both models",
                "live on one support",
                f"{last.support} and {first.support}",
            )
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "last", last)
        self.support = first.support
        self.differentiable = first.differentiable and last.differentiable

    def free_energy(self, x: Tensor) -> Tensor:
        return self.last.free_energy(x)

    def field(self, x: Tensor) -> Field:
        return Field(x, torch.stack([self.first.free_energy(x), self.last.free_energy(x)], -1))

    def energy_along(self, field: Field, beta: Tensor) -> Tensor:
        assert field.input is not None
        return torch.lerp(field.input[..., 0], field.input[..., 1], beta.to(field.input))

    def reference(self) -> FirstModel:
        return FirstModel(self.first)

    def anchor_rows(self, n: int) -> Tensor | None:
        """Training rows of both, in turn; None unless both remember some."""
        rows = [model.anchor_rows(n) for model in (self.first, self.last)]
        if rows[0] is None or rows[1] is None:
            return None
        return torch.where(
            (torch.arange(n) // 2 % 2 == 0)[:, None].to(rows[0].device), rows[0], rows[1]
        )

    def initialize(self, data: Data, *, generator: torch.Generator) -> None:
        """Both models were fitted before."""

    def settings(self) -> dict[str, Any]:
        return {}

    def title(self) -> str:
        return f"the path from {self.first.title()} to {self.last.title()}"

    @property
    def like(self) -> Tensor:
        return self.last.like
