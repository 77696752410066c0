r"""A deep causal network: mixers along the sequence and perceptrons across channels, each added to
what came before.

.. math:: u \leftarrow u + \mathrm{mixer}(\mathrm{norm}(u)), \qquad u \leftarrow u +
          \mathrm{MLP}(\mathrm{norm}(u))
    (theory/sequences.md, eq. 24.2)

Letters: B batch, L length, D width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from partita.core.checks import check_choice, check_count, check_layers, check_real
from partita.errors import invalid
from partita.nets.attention import Attention
from partita.nets.base import Net, check_options, linear
from partita.nets.causal import CausalConv
from partita.nets.dropout import MOST, Dropout
from partita.nets.h3 import H3
from partita.nets.hyena import Hyena
from partita.nets.mixer import Mixer
from partita.nets.recurrent import LSTM
from partita.nets.ssm import DiagonalSSM

MOST_DOUBLINGS = 9  # of the gap between taps of stacked convolutions, before it starts again at one


def _conv(width: int, layer: int, *, generator: torch.Generator, kernel: int = 4) -> Mixer:
    """Gaps double from layer to layer."""
    return CausalConv(width, kernel, 2 ** (layer % MOST_DOUBLINGS), generator=generator)


def _ssm(width: int, layer: int, *, generator: torch.Generator, **settings: Any) -> Mixer:
    return DiagonalSSM(
        width,
        **{"state": 32, "shortest": 2.0, "longest": 500.0, "mix": True, **settings},
        generator=generator,
    )


def _plain(kind: type[Mixer]) -> Callable[..., Mixer]:
    def make(width: int, layer: int, *, generator: torch.Generator, **settings: Any) -> Mixer:
        return kind(width, **settings, generator=generator)  # type: ignore[call-arg]

    return make


MIXERS: dict[str, Callable[..., Mixer]] = {
    "hyena": _plain(Hyena),
    "h3": _plain(H3),
    "ssm": _ssm,
    "attention": _plain(Attention),
    "conv": _conv,
    "lstm": _plain(LSTM),
}


class Block(nn.Module):
    """One mixer and one perceptron, each after a norm and added to its input."""

    def __init__(
        self, mixer: Mixer, expand: int, depth: int, dropout: Dropout, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        width = mixer.width
        self.mixer, self.dropout = mixer, dropout
        self.mixer_norm = nn.LayerNorm(width, device=generator.device)
        self.mlp: nn.Module | None = None
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

    def step(self, u: Tensor, state: Any) -> tuple[Tensor, Any]:
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
        width: int,
        layers: int,
        mixer: str = "hyena",
        *,
        options: dict[str, Any] | None = None,
        expand: int = 4,
        dropout: float = 0.0,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        check_choice("SequenceNet", "mixer", mixer, tuple(MIXERS))
        self.width = check_count("SequenceNet", "width", width)
        self.layers = check_layers("SequenceNet", "layers", layers)
        self.mixer, self.options = mixer, check_options("SequenceNet", "options", options)
        self.expand = check_count("SequenceNet", "expand", expand, 0)
        try:
            mixers = [
                MIXERS[mixer](width, i, **self.options, generator=generator) for i in range(layers)
            ]
        except TypeError as error:
            raise invalid(
                "SequenceNet",
                "options",
                f"be settings of the {mixer} mixer",
                self.options,
                f"({error})",
            ) from None
        self.dropout = Dropout(check_real("SequenceNet", "dropout", dropout, 0, MOST))
        self.blocks = nn.ModuleList(
            Block(part, expand, layers, self.dropout, generator=generator) for part in mixers
        )
        self.norm = nn.LayerNorm(width, device=generator.device)

    def forward(self, u: Tensor) -> Tensor:
        """All steps at once."""
        u = self.dropout(self.blocks[0].mixer.check(u))  # type: ignore[operator, union-attr]
        for block in self.blocks:
            u = block(u)
        return self.dropout(self.norm(u))

    def start(self, batch: int, capacity: int) -> list[Any]:
        """The state before the first of at most ``capacity`` steps."""
        return [block.mixer.start(batch, capacity) for block in self.blocks]  # type: ignore[union-attr]

    def step(self, u: Tensor, state: list[Any]) -> tuple[Tensor, list[Any]]:
        """One step, ``(B, D) -> (B, D)``."""
        following = []
        for block, past in zip(self.blocks, state, strict=True):
            u, past = block.step(u, past)  # type: ignore[operator]
            following.append(past)
        return self.norm(u), following

    def settings(self) -> dict[str, Any]:
        return {
            "width": self.width,
            "layers": self.layers,
            "mixer": self.mixer,
            "options": self.options,
            "expand": self.expand,
            "dropout": self.dropout.share,
        }


@torch.no_grad()
def _shrink_outputs(block: Block, depth: int) -> None:
    """Divide what a block adds by sqrt(2 depth), so that a deep stack starts near the identity."""
    outs = [block.mixer.out, None if block.mlp is None else block.mlp[-1]]  # type: ignore[index]
    for out in outs:
        for parameter in [] if out is None else out.parameters():
            parameter.mul_((2 * depth) ** -0.5)
