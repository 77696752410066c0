"""What the objectives share."""

from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from partita.core.protocols import Data


class Nothing(NamedTuple):
    """The state of an objective that keeps none."""


class GradientObjective:
    """Defaults of the Objective role: gradients as they are, nothing between epochs.

    ``deterministic`` losses, functions of the batch alone, may be minimized by L-BFGS; losses
    ``in_nats`` are small where a fit goes well.
    """

    deterministic: ClassVar[bool] = False
    in_nats: ClassVar[bool] = True

    def deterministic_on(self, model: Any) -> bool:
        """Whether the loss of this model is a function of the batch alone; as ``deterministic``
        says unless the model decides.
        """
        return self.deterministic

    def shared(self, processes: int) -> Self:
        """What one of several processes takes on, where they share out the rows; chains of its own
        are shared out too.
        """
        return self

    def precondition(self, model: Any, state: Any) -> None:
        """Gradients stay as they are."""

    def epoch(self, model: Any, data: Data, state: Any, *, generator: torch.Generator) -> Any:
        """Nothing between epochs."""
        return state


def weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """Mean over a batch; weights have mean one over the data, so that batches stay unbiased."""
    return values.mean() if weight is None else (weight * values).mean()


def unwrapped(model: Any) -> Any:
    """The model inside a wrapper for data-parallel training: what samples, while gradients flow
    through the wrapper's forward.
    """
    return getattr(model, "module", model)
