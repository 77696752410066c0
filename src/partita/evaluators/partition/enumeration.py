r"""log Z by summing over all states of the smaller side: exact.

.. math:: \log Z = \log \sum_x e^{-F(x)} = \log \sum_h e^{-F_h(h)}
          (theory/energy.md, eq. 1.3, 2.5)
"""

from dataclasses import dataclass
from typing import Literal

import torch

from partita.core.arguments import check_choice, check_parameters
from partita.core.capability import EXACT_BITS, require
from partita.core.enumeration import Side, log_partition
from partita.core.protocols import EnergyModel, in_double
from partita.core.quantity import Quantity
from partita.errors import invalid


@dataclass(frozen=True)
class Enumeration:
    """Exact log Z of a model with few states, summed in float64.

    Arguments:
        side: ``"smaller"``, or ``"visible"`` or ``"hidden"`` to insist on one.
    """

    side: Literal["smaller", "visible", "hidden"] = "smaller"

    def __post_init__(self) -> None:
        check_choice("Enumeration", "side", self.side, ("smaller", "visible", "hidden"))

    @torch.no_grad()
    def __call__(self, model: EnergyModel, *, generator: torch.Generator | None = None) -> Quantity:
        require("Enumeration", model)
        check_parameters(
            "Enumeration",
            model.title(),
            model.named_parameters(),
            "Fit it again with a lower learning_rate.",
        )
        model = in_double(model)
        side = self._choose(model)
        value = float(log_partition(side, model.like))
        return Quantity(
            value,
            method=f"enumeration of 2^{side.support.bits:g} {side.name} states",
            details={"side": side.name},
        )

    def _choose(self, model: EnergyModel) -> Side:
        if self.side == "smaller":
            return min(model.sides(), key=lambda side: side.support.bits)
        for side in model.sides():
            if side.name == self.side and side.support.bits <= EXACT_BITS:
                return side
        raise invalid(
            "Enumeration",
            "side",
            f"be a side of {model.title()} with at most 2^{EXACT_BITS} states",
            repr(self.side),
        )
