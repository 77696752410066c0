r"""An encoder: a network from a row to a point on the unit sphere. No density; what contrastive
learning trains.

.. math:: v(x) = f_\theta(x) / \|f_\theta(x)\|          (theory/contrastive.md, eq. 51.1)

Letters: D columns, E dimensions of the embedding, C channels.
"""

from collections.abc import Sequence
from math import prod
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from partita.core.checks import check_count, check_counts, check_module, check_width
from partita.core.protocols import Capability, Data, Model, Settings
from partita.core.registry import MODELS
from partita.core.support import Real
from partita.errors import invalid
from partita.nets import MLP, ConvNet, build, describe


@MODELS.register
class Encoder(Model):
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
    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        visible: int,
        embedding: int = 32,
        *,
        shape: Sequence[int] | None = None,
        widths: Sequence[int] = (256, 128),
        channels: Sequence[int] = (32, 64),
        net: nn.Module | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.support = Real(check_count("Encoder", "visible", visible))
        self.embedding = check_count("Encoder", "embedding", embedding)
        shape = None if shape is None else check_counts("Encoder", "shape", shape)
        if shape is not None and visible % prod(shape):
            raise invalid("Encoder", "shape", f"divide the {visible} columns into channels", shape)
        if net is None and shape is None:
            net = MLP(visible, embedding, widths=widths, gain=6**0.5, generator=generator)
        elif net is None:
            assert shape is not None
            net = ConvNet(
                shape,
                embedding,
                depth=visible // prod(shape),
                channels=channels,
                pool="max",
                generator=generator,
            )
        check_module("Encoder", "net", net)
        self.net = net
        like = next(net.parameters())
        self.register_buffer("shift", like.new_zeros(()))
        self.register_buffer("scale", like.new_ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """v(x), ``(*, D) -> (*, E)``."""
        check_width("Encoder", "x", x, self.support.width, self.title())
        return functional.normalize(self.net((x - self.shift) * self.scale), dim=-1)

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: torch.Generator) -> None:
        """One shift and one scale for all columns, so that images stay images."""
        mean = data.mean()
        spread = (data.variance() + (mean - mean.mean()).square()).mean().sqrt()
        self.shift.copy_(mean.mean())
        self.scale.copy_(1 / spread.clamp_min(1e-12))

    def settings(self) -> Settings:
        return {
            "visible": self.support.width,
            "embedding": self.embedding,
            "net": describe(self.net),
        }

    @classmethod
    def from_settings(cls, settings: Settings, *, generator: torch.Generator) -> Self:
        net = build(settings["net"], "Encoder", generator=generator)
        return cls(settings["visible"], settings["embedding"], net=net, generator=generator)

    def title(self) -> str:
        return f"Encoder({self.support.width}, {self.embedding})"
