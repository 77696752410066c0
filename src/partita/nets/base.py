r"""Networks that describe themselves, so that a saved run rebuilds them: a name and settings as
JSON, never code; and the layers they share, dropout among them (Srivastava et al. 2014).

.. math:: u \leftarrow u \, m / (1 - p), \qquad m \sim \mathrm{Bernoulli}(1 - p)
          (theory/sequences.md, eq. 24.5)

Nothing is dropped but inside :func:`dropping`, which hands in the randomness: a model is the same
however it is looked at, and no switch can be left in the wrong place.

Letters: p share that is left out, m which numbers stay.
"""

from abc import ABC
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, TypeAlias

from torch import Generator, Tensor, nn

from partita.core import rng
from partita.core.arguments import check_real
from partita.core.protocols import Built, Settings
from partita.errors import invalid, one_line

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "softplus": nn.Softplus,
    "gelu": nn.GELU,
    "relu": nn.ReLU,
}

MOST = 0.95  # share: of hardly anything that is left nothing is learned
_source: ContextVar[Generator | None] = ContextVar("dropping", default=None)


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


@contextmanager
def dropping(generator: Generator) -> Iterator[None]:
    """In here every :class:`Dropout` leaves out numbers, drawn from ``generator``."""
    token = _source.set(generator)
    try:
        yield
    finally:
        _source.reset(token)


class Dropout(nn.Module):
    """Leaves out each number with probability ``share`` inside :func:`dropping`, and is the
    identity elsewhere.

    >>> import torch
    >>> layer, ones = Dropout(0.5), torch.ones(1000)
    >>> with dropping(torch.Generator().manual_seed(0)):
    ...     seen = layer(ones)
    >>> sorted(set(seen.tolist())), torch.equal(layer(ones), ones)
    ([0.0, 2.0], True)
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = check_real("Dropout", "share", share, 0, MOST)

    def forward(self, u: Tensor) -> Tensor:
        generator = _source.get()
        if generator is None or not self.share:
            return u
        kept = rng.uniform(u.shape, u, generator) >= self.share
        return u * kept / (1 - self.share)

    def extra_repr(self) -> str:
        return f"{self.share:g}"
