"""What the objectives share."""

from typing import NamedTuple, TypeVar

from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


class Nothing(NamedTuple):
    """The state of an objective that keeps none."""


def weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """Mean over a batch; weights have mean one over the data, so that batches stay unbiased."""
    return values.mean() if weight is None else (weight * values).mean()


def unwrapped(model: Module) -> Module:
    """The model inside a wrapper for data-parallel training: what samples, while gradients flow
    through the wrapper's forward.
    """
    return getattr(model, "module", model)  # Fabric and torch name it so
