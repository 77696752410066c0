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
from typing import Annotated

from torch import Generator, Tensor, nn

from partita.core.arguments import Flag, PositiveInt, Sizes, check_count, check_width, one_of
from partita.errors import invalid
from partita.nets.base import ACTIVATIONS, Activation, Net, init_uniform, linear

POOLS = {"max": (nn.MaxPool1d, nn.MaxPool2d), "average": (nn.AvgPool1d, nn.AvgPool2d)}


class _Convolutional(Net):
    """What the encoder and the decoder share: sizes, their checks, and a block of layers."""

    def _check(self, shape: Sequence[int], channels: Sequence[int], kernel: int) -> None:
        owner = type(self).__name__
        if len(shape) not in (1, 2):
            allowed, remedy = "be (length,) or (height, width)", "Channels are given as depth."
            raise invalid(owner, "shape", allowed, shape, remedy)
        check_count(owner, "the number of channels", len(channels))
        if kernel % 2 == 0:
            raise invalid(owner, "kernel", "be odd, so that sizes stay", kernel)

    def _block(self, before: int, after: int, generator: Generator) -> list[nn.Module]:
        made = self.arguments
        make = separable_convolution if made["separable"] else convolution
        layer = make(before, after, made["kernel"], len(made["shape"]), generator=generator)
        return [layer, ACTIVATIONS[made["activation"]]()]


class ConvNet(_Convolutional):
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

    >>> import torch
    >>> net = ConvNet((8, 8), 3, channels=(4,), generator=torch.Generator().manual_seed(0))
    >>> net(torch.zeros(5, 64)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        shape: Sizes,
        outputs: PositiveInt,
        *,
        depth: PositiveInt = 1,
        channels: Sizes = (16, 32),
        kernel: PositiveInt = 3,
        pool: Annotated[str, one_of(*POOLS, "none")] = "average",
        separable: Flag = False,
        activation: Activation = "silu",
        generator: Generator,
    ) -> None:
        super().__init__()
        self._check(shape, channels, kernel)
        self.shape, self.depth = shape, depth
        self.inputs, self.outputs = depth * prod(shape), outputs
        self.blocks = nn.Sequential()
        size, before = shape, depth
        for after in channels:
            self.blocks.extend(self._block(before, after, generator))
            before = after
            if pool != "none":
                self.blocks.append(POOLS[pool][len(size) - 1](2))
                size = tuple(n // 2 for n in size)
        if min(size) < 1:
            allowed = f"pool {shape} at most until one place is left"
            raise invalid("ConvNet", "channels", allowed, f"{len(channels)} poolings")
        self.last = linear(before * prod(size), outputs, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """``(*, C L) -> (*, outputs)``."""
        check_width("ConvNet", "x", x, self.inputs, f"{self.depth} x {self.shape}")
        y = self.blocks(x.reshape(-1, self.depth, *self.shape)).flatten(1)
        return self.last(y).reshape(*x.shape[:-1], self.outputs)


class ConvDecoder(_Convolutional):
    """A linear layer to a small map, then doubling, convolution and activation, repeated: a
    decoder.

    Arguments:
        inputs: Numbers that go in.
        shape: (L,) or (I, J) of what comes out, flat; sizes need not be powers of two.
        depth: Channels that come out.
        channels: Of each block, from the smallest map to the largest.
        kernel, separable, activation, generator: As in :class:`ConvNet`.

    >>> import torch
    >>> ConvDecoder(3, (7, 5), channels=(4,), generator=torch.Generator().manual_seed(0))(
    ...     torch.zeros(2, 3)
    ... ).shape
    torch.Size([2, 35])
    """

    def __init__(
        self,
        inputs: PositiveInt,
        shape: Sizes,
        *,
        depth: PositiveInt = 1,
        channels: Sizes = (32, 16),
        kernel: PositiveInt = 3,
        separable: Flag = False,
        activation: Activation = "silu",
        generator: Generator,
    ) -> None:
        super().__init__()
        self._check(shape, channels, kernel)
        self.inputs, self.outputs = inputs, depth * prod(shape)
        sizes = [shape]
        for _ in channels:
            sizes.insert(0, tuple(-(-n // 2) for n in sizes[0]))
        self.first_shape = (channels[0], *sizes[0])
        self.first = linear(inputs, prod(self.first_shape), generator=generator)
        self.blocks = nn.Sequential()
        following = (*channels[1:], channels[-1])
        for before, after, size in zip(channels, following, sizes[1:], strict=True):
            self.blocks.append(nn.Upsample(tuple(size)))
            self.blocks.extend(self._block(before, after, generator))
        self.blocks.append(
            convolution(channels[-1], depth, kernel, len(shape), generator=generator)
        )

    def forward(self, z: Tensor) -> Tensor:
        """``(*, inputs) -> (*, C L)``."""
        check_width("ConvDecoder", "z", z, self.inputs, "its inputs")
        y = self.first(z).reshape(-1, *self.first_shape)
        return self.blocks(y).reshape(*z.shape[:-1], self.outputs)


def convolution(
    before: int,
    after: int,
    kernel: int,
    places: int,
    *,
    groups: int = 1,
    generator: Generator,
) -> nn.Module:
    """A convolution over one or two axes that keeps their sizes, with first weights from
    ``generator``.
    """
    kind = (nn.Conv1d, nn.Conv2d)[places - 1]
    layer = nn.utils.skip_init(
        kind, before, after, kernel, padding="same", groups=groups, device=generator.device
    )
    bound = (before // groups * kernel**places) ** -0.5
    init_uniform(layer, bound, generator)
    return layer


def separable_convolution(
    before: int, after: int, kernel: int, places: int, *, generator: Generator
) -> nn.Sequential:
    """One filter per channel, then a mix of the channels at every place, (21.3)."""
    depthwise = convolution(before, before, kernel, places, groups=before, generator=generator)
    return nn.Sequential(depthwise, convolution(before, after, 1, places, generator=generator))
