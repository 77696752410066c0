"""Models made of networks, which a saved run rebuilds from their descriptions."""

from copy import deepcopy
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor, nn

from partita.core.protocols import Model, Settings
from partita.errors import RunError, invalid
from partita.nets import NETS, Net

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


def describe(net: nn.Module) -> Settings | None:
    """A network of the table as JSON; None for a module of the user's own, which is code and is
    never saved.

    >>> from partita.nets import MLP
    >>> describe(MLP(2, 1, widths=(4,), generator=Generator()))
    {'net': 'MLP', 'inputs': 2, 'outputs': 1, 'widths': [4], 'activation': 'silu'}
    """
    name = type(net).__name__
    if not isinstance(net, Net) or NETS.get(name) is not type(net):
        return None
    return {"net": name, **net.settings()}


def build(description: Settings | None, owner: str, *, generator: Generator) -> nn.Module:
    """The network that :func:`describe` described, with fresh weights; only names of the table are
    ever built.
    """
    if description is None:
        raise RunError(
            f"load: the network of {owner} must be one of {', '.join(NETS)}; got a module of your "
            "own, which is code and is never saved. Build the model yourself and hand it over as "
            "load(path, model=...)."
        )
    settings = dict(description)
    name = settings.pop("net", None)
    if name not in NETS:
        raise RunError(
            f"load: net must be one of {', '.join(NETS)}; got {name!r}. The run was made by "
            "another version of partita."
        )
    return NETS[name](**settings, generator=generator)
