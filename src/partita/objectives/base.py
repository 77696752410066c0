"""What the objectives share."""

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.protocols import Batch, Data, Losses, Model, Objective


class Nothing(NamedTuple):
    """The state of an objective that keeps none."""


class Stateless(Objective[Nothing]):
    """An objective that keeps no state: one loss of a batch, and numbers to record."""

    def init(self, model: Any, data: Data, *, generator: torch.Generator) -> Nothing:
        capability.require(type(self).__name__, model)
        return Nothing()

    @abstractmethod
    def loss(
        self, model: Any, batch: Batch, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The model's loss, and numbers to record."""

    def losses(
        self, model: Any, batch: Batch, state: Nothing, *, generator: torch.Generator
    ) -> Losses[Nothing]:
        loss, numbers = self.loss(model, batch, generator)
        return {"model": loss}, state, numbers


def trial_rows(data: Data, model: Model, generator: torch.Generator) -> Tensor:
    """Two rows at most, on which to try a model before a fit."""
    index = torch.arange(min(2, len(data)))
    return data.batch(index, generator=rng.child(generator)).x.to(model.like)
