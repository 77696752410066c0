r"""A deep causal network: mixers along the sequence and perceptrons across channels, each added to
what came before.

.. math:: u \leftarrow u + \mathrm{mixer}(\mathrm{norm}(u)), \qquad u \leftarrow u +
          \mathrm{MLP}(\mathrm{norm}(u))
    (theory/sequences.md, eq. 24.2)

Letters: B batch, L length, D width.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, cast

import torch
from torch import Generator, Tensor, nn

from partita.core.arguments import Depth, NonNegativeInt, PositiveInt, one_of, within
from partita.core.protocols import Settings
from partita.errors import invalid
from partita.nets.attention import Attention
from partita.nets.base import MOST, Dropout, Net, Options, linear
from partita.nets.causal import CausalConv
from partita.nets.h3 import H3
from partita.nets.hyena import Hyena
from partita.nets.mixer import Mixer
from partita.nets.recurrent import LSTM
from partita.nets.ssm import DiagonalSSM

MOST_DOUBLINGS = 9  # of the gap between taps of stacked convolutions, before it starts again at one


SSM = partial(DiagonalSSM, state=32, shortest=2.0, longest=500.0, mix=True)
MIXERS: dict[str, Callable[..., Mixer]] = {
    "hyena": Hyena,
    "h3": H3,
    "ssm": SSM,
    "attention": Attention,
    "conv": CausalConv,
    "lstm": LSTM,
}


class Block(nn.Module):
    """One mixer and one perceptron, each after a norm and added to its input."""

    def __init__(
        self, mixer: Mixer, expand: int, depth: int, dropout: Dropout, *, generator: Generator
    ) -> None:
        super().__init__()
        width = mixer.width
        self.mixer, self.dropout = mixer, dropout
        self.mixer_norm = nn.LayerNorm(width, device=generator.device)
        self.mlp: nn.Sequential | None = None
        if expand:
            self.mlp_norm = nn.LayerNorm(width, device=generator.device)
            self.mlp = nn.Sequential(
                linear(width, expand * width, generator=generator),
                nn.GELU(),
                linear(expand * width, width, generator=generator),
            )
        _shrink_outputs(self, depth)

    def forward(self, u: Tensor) -> Tensor:
        u = u + self.dropout(self.mixer(self.mixer_norm(u)))
        return u if self.mlp is None else u + self.dropout(self.mlp(self.mlp_norm(u)))

    def step(self, u: Tensor, state: object) -> tuple[Tensor, object]:
        y, state = self.mixer.step(self.mixer_norm(u), state)
        u = u + y
        return (u if self.mlp is None else u + self.mlp(self.mlp_norm(u))), state


class SequenceNet(Net):
    """A stack of blocks that maps ``(B, L, D)`` to ``(B, L, D)``, causal, for any length.

    Arguments:
        width: D.
        layers: Blocks.
        mixer: ``"hyena"``, ``"h3"``, ``"ssm"``, ``"attention"``, ``"conv"`` or ``"lstm"``.
        options: Settings of the mixer, such as ``{"order": 3}``.
        expand: Hidden units of each perceptron as a multiple of D; 0 leaves it out.
        dropout: Share of what goes in, of what each block adds and of what comes out that is left
            out while a model learns.
        generator: Source of the first weights.

    >>> net = SequenceNet(8, 2, "hyena", generator=torch.Generator().manual_seed(0))
    >>> net(torch.zeros(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        width: PositiveInt,
        layers: Depth,
        mixer: Annotated[str, one_of(*MIXERS)] = "hyena",
        *,
        options: Options = None,
        expand: NonNegativeInt = 4,
        dropout: Annotated[float, within(0, MOST)] = 0.0,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.width, self.mixer = width, mixer
        try:
            mixers = [
                MIXERS[mixer](width, **_of_layer(mixer, options or {}, i), generator=generator)
                for i in range(layers)
            ]
        except TypeError as error:
            allowed = f"be settings of the {mixer} mixer"
            raise invalid("SequenceNet", "options", allowed, options, f"({error})") from None
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(part, expand, layers, self.dropout, generator=generator) for part in mixers
        )
        self.norm = nn.LayerNorm(width, device=generator.device)

    def forward(self, u: Tensor) -> Tensor:
        """All steps at once."""
        blocks = self._blocks()
        u = self.dropout(blocks[0].mixer.check(u))
        for block in blocks:
            u = block(u)
        return self.dropout(self.norm(u))

    def start(self, batch: int, capacity: int) -> list[object]:
        """The state before the first of at most ``capacity`` steps."""
        return [block.mixer.start(batch, capacity) for block in self._blocks()]

    def step(self, u: Tensor, state: list[object]) -> tuple[Tensor, list[object]]:
        """One step, ``(B, D) -> (B, D)``."""
        following = []
        for block, past in zip(self._blocks(), state, strict=True):
            u, past = block.step(u, past)
            following.append(past)
        return self.norm(u), following

    def _blocks(self) -> list[Block]:
        return cast(list[Block], list(self.blocks))


def _of_layer(mixer: str, options: Settings, layer: int) -> Settings:
    """The options of one layer's mixer; gaps of convolutions double from layer to layer."""
    if mixer != "conv":
        return options
    if "gap" in options:
        raise TypeError("the gaps of conv are set by its layers")
    return {**options, "gap": 2 ** (layer % MOST_DOUBLINGS)}


@torch.no_grad()
def _shrink_outputs(block: Block, depth: int) -> None:
    """Divide what a block adds by sqrt(2 depth), so that a deep stack starts near the identity."""
    outs = [block.mixer.out] if block.mlp is None else [block.mixer.out, block.mlp[-1]]
    for out in outs:
        for parameter in out.parameters():
            parameter.mul_((2 * depth) ** -0.5)
