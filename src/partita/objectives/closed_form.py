"""Maximum likelihood in one step, for the models whose solution is a formula."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from partita.core import capability
from partita.core.protocols import Data, Update
from partita.objectives.base import Nothing
from partita.objectives.em import batches


@dataclass(frozen=True)
class ClosedForm(Update[Nothing]):
    """The model's own ``solve(data)``, for complete rows.

    >>> import partita
    >>> from partita.models import PPCA
    >>> g = torch.Generator().manual_seed(0)
    >>> partita.fit(
    ...     PPCA(4, 2, generator=g), torch.randn(50, 4, generator=g), ClosedForm(), generator=g
    ... ).stopped
    'converged'
    """

    def init(self, model: Any, data: Data, *, generator: torch.Generator) -> Nothing:
        capability.require("ClosedForm", model)
        return Nothing()

    @torch.no_grad()
    def update(
        self, model: Any, data: Data, state: Nothing, *, generator: torch.Generator
    ) -> tuple[Nothing, dict[str, Tensor]]:
        model.solve(data, generator=generator)
        return state, {"loss": -total_log_prob(model, data, generator=generator) / len(data)}


@torch.no_grad()
def total_log_prob(model: Any, data: Data, *, generator: torch.Generator) -> Tensor:
    """The weighted sum of log p(x) over all rows, read in chunks."""
    total = torch.zeros((), dtype=torch.float64)
    for batch in batches(data, generator):
        log_p = model.log_prob(batch.x.to(model.like)).double()
        total += (log_p.sum() if batch.weight is None else batch.weight.to(log_p) @ log_p).cpu()
    return total
