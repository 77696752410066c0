r"""An encoder: a network from a row to a point on the unit sphere. No density; what contrastive
learning trains.

.. math:: v(x) = f_\theta(x) / \|f_\theta(x)\|          (theory/contrastive.md, eq. 51.1)

Letters: D columns, E dimensions of the embedding, C channels.
"""

from math import prod

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from partita.core.arguments import PositiveInt, Sizes, check_module, check_width
from partita.core.protocols import Capability, Data
from partita.core.registry import MODELS
from partita.core.support import Real
from partita.errors import invalid
from partita.models.networked import Networked
from partita.nets import MLP, ConvNet


@MODELS.register
class Encoder(Networked):
    """Rows to unit vectors; ``forward`` is the embedding.

    Arguments:
        visible: D.
        embedding: E.
        shape: (L,) or (height, width) of a row with any number of channels, channel after channel:
            convolutions; None: a perceptron.
        widths: Units of the perceptron's layers.
        channels: Of the convolutions.
        net: A network of :mod:`partita.nets` from D numbers to E in place of these.
        generator: Source of the first weights.

    >>> model = Encoder(5, 3, widths=(8,), generator=torch.Generator().manual_seed(0))
    >>> bool(model(torch.ones(2, 5)).norm(dim=-1).allclose(torch.ones(2)))
    True
    """

    examples = {
        "Encoder": {"visible": 2, "embedding": 2, "widths": (4,)},
    }
    capabilities = frozenset({Capability.EMBEDS})
    unsaved = ("shape", "widths", "channels")
    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        visible: PositiveInt,
        embedding: PositiveInt = 32,
        *,
        shape: Sizes | None = None,
        widths: Sizes = (256, 128),
        channels: Sizes = (32, 64),
        net: nn.Module | None = None,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.support, self.embedding = Real(visible), embedding
        if shape is not None and visible % prod(shape):
            raise invalid("Encoder", "shape", f"divide the {visible} columns into channels", shape)
        if net is None and shape is None:
            net = MLP(visible, embedding, widths=widths, gain=6**0.5, generator=generator)
        elif net is None and shape is not None:
            net = ConvNet(
                shape,
                embedding,
                depth=visible // prod(shape),
                channels=channels,
                pool="max",
                generator=generator,
            )
        self.net = check_module("Encoder", "net", net)
        like = next(self.net.parameters())
        self.register_buffer("shift", like.new_zeros(()))
        self.register_buffer("scale", like.new_ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """v(x), ``(*, D) -> (*, E)``."""
        check_width("Encoder", "x", x, self.support.width, self.title())
        return functional.normalize(self.net((x - self.shift) * self.scale), dim=-1)

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        """One shift and one scale for all columns, so that images stay images."""
        mean = data.mean()
        spread = (data.variance() + (mean - mean.mean()).square()).mean().sqrt()
        self.shift.copy_(mean.mean())
        self.scale.copy_(1 / spread.clamp_min(1e-12))

    def title(self) -> str:
        return f"Encoder({self.support.width}, {self.embedding})"
