"""What a network must say to be rebuilt from a saved run: its name and its settings as JSON, never
code.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from partita.core.protocols import Built
from partita.errors import invalid

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "softplus": nn.Softplus,
    "gelu": nn.GELU,
    "relu": nn.ReLU,
}


class Net(Built, ABC):
    """A network that describes itself."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Constructor arguments as JSON."""


def activation(owner: str, name: str) -> nn.Module:
    """The activation of a name."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise invalid(owner, "activation", "be one of " + ", ".join(ACTIVATIONS), repr(name))
    return ACTIVATIONS[name]()


def check_options(owner: str, parameter: str, value: object) -> dict[str, Any]:
    """Settings of a part by name, or none."""
    if value is not None and not (
        isinstance(value, dict) and all(isinstance(name, str) for name in value)
    ):
        raise invalid(
            owner,
            parameter,
            "be settings by name, such as {'order': 3}",
            " ".join(repr(value).split()),
        )
    return dict(value or {})  # type: ignore[arg-type]


class _Unset(nn.Linear):
    def reset_parameters(self) -> None:
        """No weights from anywhere else; torch's ``skip_init`` takes eight times as long."""


def linear(
    inputs: int, outputs: int, *, gain: float = 1.0, generator: torch.Generator
) -> nn.Linear:
    """A linear layer whose first weights come from ``generator``: uniform with variance gain^2 / (3
    inputs), torch's own at gain 1.
    """
    layer = _Unset(inputs, outputs, device=generator.device)
    bound = inputs**-0.5
    nn.init.uniform_(layer.weight, -gain * bound, gain * bound, generator=generator)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer
