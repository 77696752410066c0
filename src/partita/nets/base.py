"""Networks that describe themselves, so that a saved run rebuilds them: a name and settings as
JSON, never code.
"""

from abc import ABC
from collections.abc import Callable
from typing import Annotated, TypeAlias

from torch import Generator, nn

from partita.core.protocols import Built, Settings
from partita.errors import invalid, one_line

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "softplus": nn.Softplus,
    "gelu": nn.GELU,
    "relu": nn.ReLU,
}


class Net(Built, ABC):
    """A network that describes itself by its constructor's arguments."""


def check_activation(owner: str, parameter: str, value: object) -> object:
    """The name of an activation."""
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise invalid(owner, parameter, "be one of " + ", ".join(ACTIVATIONS), repr(value))
    return value


Activation: TypeAlias = Annotated[str, check_activation]


def check_options(owner: str, parameter: str, value: object) -> Settings:
    """Settings of a part by name; none of them for None."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        allowed = "be settings by name, such as {'order': 3}"
        raise invalid(owner, parameter, allowed, one_line(value))
    return dict(value)


Options: TypeAlias = Annotated[Settings | None, check_options]


class _Unset(nn.Linear):
    def reset_parameters(self) -> None:
        """No weights from anywhere else; torch's ``skip_init`` takes eight times as long."""


def init_uniform(layer: nn.Module, bound: float, generator: Generator) -> None:
    """Draw all parameters of a layer between -bound and bound."""
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)


def linear(inputs: int, outputs: int, *, gain: float = 1.0, generator: Generator) -> nn.Linear:
    """A linear layer whose first weights come from ``generator``: uniform with variance gain^2 / (3
    inputs), torch's own at gain 1.
    """
    layer = _Unset(inputs, outputs, device=generator.device)
    bound = inputs**-0.5
    nn.init.uniform_(layer.weight, -gain * bound, gain * bound, generator=generator)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer
