"""Models made of networks, which a saved run rebuilds from their descriptions."""

from copy import deepcopy
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor, nn

from partita.core.protocols import Model, Settings
from partita.errors import invalid
from partita.nets import build, describe

# what a module raises that does not take what it is given
UNFIT = (RuntimeError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Networked(Model):
    """A model whose constructor takes networks, each held in an attribute of the same name."""

    networks: ClassVar[tuple[str, ...]] = ("net",)

    def settings(self) -> Settings:
        made = {name: describe(getattr(self, name)) for name in self.networks}
        return {**super().settings(), **made}

    @classmethod
    def from_settings(cls, settings: Settings, *, generator: Generator) -> Self:
        made = {
            name: build(settings[name], cls.__name__, generator=generator) for name in cls.networks
        }
        return super().from_settings({**settings, **made}, generator=generator)


def check_maps(
    owner: str, name: str, net: nn.Module, inputs: int, outputs: int, like: Tensor, remedy: str = ""
) -> None:
    """A network takes in and gives what the model needs; a copy of it is tried on two rows of
    zeros, so that nothing in it moves.
    """
    allowed = f"map (2, {inputs}) to (2, {outputs})"
    try:
        with torch.no_grad():
            shape = tuple(deepcopy(net).eval()(like.new_zeros(2, inputs)).shape)
    except UNFIT as error:
        got = f"an error ({str(error).splitlines()[0]})"
        raise invalid(owner, name, allowed, got, remedy) from None
    if shape != (2, outputs):
        raise invalid(owner, name, allowed, shape, remedy)
