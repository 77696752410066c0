"""Networks, described by JSON-able settings so that saved runs rebuild them."""

from torch import Generator, nn

from partita.core.protocols import Settings
from partita.errors import RunError
from partita.nets.attention import Attention
from partita.nets.base import Net
from partita.nets.causal import CausalConv
from partita.nets.conv import ConvDecoder, ConvNet
from partita.nets.h3 import H3
from partita.nets.hyena import Hyena
from partita.nets.mlp import MLP
from partita.nets.recurrent import LSTM
from partita.nets.sequence import SequenceNet
from partita.nets.ssm import DenseSSM, DiagonalSSM

SEQUENCES = (Attention, CausalConv, DenseSSM, DiagonalSSM, H3, Hyena, LSTM, SequenceNet)
NETS: dict[str, type[Net]] = {net.__name__: net for net in (MLP, ConvNet, ConvDecoder, *SEQUENCES)}

__all__ = [
    "H3",
    "LSTM",
    "MLP",
    "NETS",
    "Attention",
    "CausalConv",
    "ConvDecoder",
    "ConvNet",
    "DenseSSM",
    "DiagonalSSM",
    "Hyena",
    "Net",
    "SequenceNet",
    "build",
    "describe",
]


def describe(net: nn.Module) -> Settings | None:
    """A network of the table as JSON; None for a module of the user's own, which is code and is
    never saved.

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
