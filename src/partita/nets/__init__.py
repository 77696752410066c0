"""Networks, described by JSON-able settings so that saved runs rebuild them."""

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
]
