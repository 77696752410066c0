r"""Convolution networks on sequences and images: encoders, decoders and energies.

.. math:: Y_{o, l} = \sum_c \sum_{k=0}^{K-1} X_{c,\, l + k}\, W_{o, c, k}
          (theory/sequences.md, eq. 21.1)

which is a cross-correlation: the filter is not turned around. Depthwise separable convolution
applies one filter per channel and then mixes channels at every place, (21.3): K C + C O weights in
place of K C O.

Letters: C channels, L (or I x J) places, K filter size, O output channels.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from partita.core.checks import check_choice, check_count, check_counts, check_flag, check_width
from partita.errors import invalid
from partita.nets.base import Net, activation, linear

POOLS = {"max": (nn.MaxPool1d, nn.MaxPool2d), "average": (nn.AvgPool1d, nn.AvgPool2d)}


class ConvNet(Net):
    """Convolution, activation and pooling, repeated; then a linear layer: an encoder, or an energy
    with one output.

    Arguments:
        shape: (L,) or (I, J): the places of one row, which arrives flat, channel after channel.
        outputs: Numbers that come out.
        depth: C, channels that go in.
        channels: Of each block.
        kernel: K, odd.
        pool: ``"max"``, ``"average"`` or ``"none"``; pools by two after each block.
        separable: Depthwise separable convolutions in place of full ones.
        activation: ``"silu"``, ``"tanh"``, ``"softplus"``, ``"gelu"`` or ``"relu"``.
        generator: Source of the first weights.

    >>> net = ConvNet((8, 8), 3, channels=(4,), generator=torch.Generator().manual_seed(0))
    >>> net(torch.zeros(5, 64)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        shape: Sequence[int],
        outputs: int,
        *,
        depth: int = 1,
        channels: Sequence[int] = (16, 32),
        kernel: int = 3,
        pool: str = "average",
        separable: bool = False,
        activation: str = "silu",
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.shape = _check_shape("ConvNet", shape)
        self.depth = check_count("ConvNet", "depth", depth)
        _check_sizes("ConvNet", channels, kernel, separable)
        check_count("ConvNet", "outputs", outputs)
        check_choice("ConvNet", "pool", pool, (*POOLS, "none"))
        self.channels = tuple(channels)
        self.kernel = kernel
        self.pool = pool
        self.separable = separable
        self.activation = activation
        self.inputs, self.outputs = depth * prod(self.shape), outputs
        blocks, size, before = [], self.shape, depth
        for after in self.channels:
            blocks += _block(before, after, len(size), self.settings(), generator)
            size, before = (size if pool == "none" else tuple(n // 2 for n in size)), after
        if min(size) < 1:
            raise invalid(
                "ConvNet",
                "channels",
                f"pool {self.shape} at most until one place is left",
                f"{len(channels)} poolings",
            )
        self.blocks = nn.Sequential(*blocks)
        self.last = linear(before * prod(size), outputs, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """``(*, C L) -> (*, outputs)``."""
        check_width("ConvNet", "x", x, self.inputs, f"{self.depth} x {self.shape}")
        y = self.blocks(x.reshape(-1, self.depth, *self.shape)).flatten(1)
        return self.last(y).reshape(*x.shape[:-1], self.outputs)

    def settings(self) -> dict[str, Any]:
        return {
            "shape": list(self.shape),
            "outputs": self.outputs,
            "depth": self.depth,
            "channels": list(self.channels),
            "kernel": self.kernel,
            "pool": self.pool,
            "separable": self.separable,
            "activation": self.activation,
        }


class ConvDecoder(Net):
    """A linear layer to a small map, then doubling, convolution and activation, repeated: a
    decoder.

    Arguments:
        inputs: Numbers that go in.
        shape: (L,) or (I, J) of what comes out, flat; sizes need not be powers of two.
        depth: Channels that come out.
        channels: Of each block, from the smallest map to the largest.
        kernel, separable, activation, generator: As in :class:`ConvNet`.

    >>> ConvDecoder(3, (7, 5), channels=(4,), generator=torch.Generator().manual_seed(0))(
    ...     torch.zeros(2, 3)
    ... ).shape
    torch.Size([2, 35])
    """

    def __init__(
        self,
        inputs: int,
        shape: Sequence[int],
        *,
        depth: int = 1,
        channels: Sequence[int] = (32, 16),
        kernel: int = 3,
        separable: bool = False,
        activation: str = "silu",
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.shape = _check_shape("ConvDecoder", shape)
        self.depth = check_count("ConvDecoder", "depth", depth)
        _check_sizes("ConvDecoder", channels, kernel, separable)
        check_count("ConvDecoder", "inputs", inputs)
        self.channels = tuple(channels)
        self.kernel = kernel
        self.separable = separable
        self.activation = activation
        self.inputs, self.outputs = inputs, depth * prod(self.shape)
        sizes = [self.shape]
        for _ in self.channels:
            sizes.insert(0, tuple(-(-n // 2) for n in sizes[0]))
        self.first_shape = (self.channels[0], *sizes[0])
        self.first = linear(inputs, prod(self.first_shape), generator=generator)
        self.blocks = nn.Sequential()
        for before, after, size in zip(
            self.channels, (*self.channels[1:], self.channels[-1]), sizes[1:], strict=True
        ):
            self.blocks.extend(
                [
                    nn.Upsample(size),
                    *_block(
                        before, after, len(size), {**self.settings(), "pool": "none"}, generator
                    ),
                ]
            )
        self.blocks.append(
            convolution(self.channels[-1], depth, kernel, len(self.shape), generator=generator)
        )

    def forward(self, z: Tensor) -> Tensor:
        """``(*, inputs) -> (*, C L)``."""
        check_width("ConvDecoder", "z", z, self.inputs, "its inputs")
        y = self.first(z).reshape(-1, *self.first_shape)
        return self.blocks(y).reshape(*z.shape[:-1], self.outputs)

    def settings(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "shape": list(self.shape),
            "depth": self.depth,
            "channels": list(self.channels),
            "kernel": self.kernel,
            "separable": self.separable,
            "activation": self.activation,
        }


def convolution(
    before: int,
    after: int,
    kernel: int,
    places: int,
    *,
    groups: int = 1,
    generator: torch.Generator,
) -> nn.Module:
    """A convolution over one or two axes that keeps their sizes, with first weights from
    ``generator``.
    """
    kind = (nn.Conv1d, nn.Conv2d)[places - 1]
    layer = nn.utils.skip_init(
        kind, before, after, kernel, padding="same", groups=groups, device=generator.device
    )
    bound = (before // groups * kernel**places) ** -0.5
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer


def separable_convolution(
    before: int, after: int, kernel: int, places: int, *, generator: torch.Generator
) -> nn.Sequential:
    """One filter per channel, then a mix of the channels at every place, (21.3)."""
    depthwise = convolution(before, before, kernel, places, groups=before, generator=generator)
    return nn.Sequential(depthwise, convolution(before, after, 1, places, generator=generator))


def _check_shape(owner: str, shape: Sequence[int]) -> tuple[int, ...]:
    sizes = check_counts(owner, "shape", shape)
    if len(sizes) not in (1, 2):
        raise invalid(
            owner, "shape", "be (length,) or (height, width)", sizes, "Channels are given as depth."
        )
    return sizes


def _block(
    before: int, after: int, places: int, settings: dict[str, Any], generator: torch.Generator
) -> list[nn.Module]:
    make = separable_convolution if settings["separable"] else convolution
    layers: list[nn.Module] = [make(before, after, settings["kernel"], places, generator=generator)]
    layers.append(activation("ConvNet", settings["activation"]))
    return (
        layers if settings["pool"] == "none" else [*layers, POOLS[settings["pool"]][places - 1](2)]
    )


def _check_sizes(owner: str, channels: Sequence[int], kernel: int, separable: bool) -> None:
    check_flag(owner, "separable", separable)
    check_count(owner, "the number of channels", len(check_counts(owner, "channels", channels)))
    if check_count(owner, "kernel", kernel) % 2 == 0:
        raise invalid(owner, "kernel", "be odd, so that sizes stay", kernel)
