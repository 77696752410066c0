r"""The generator of a generative adversarial network: draws without a likelihood.

.. math:: x = G(z), \qquad z \sim \mathcal N(0, I_L)          (theory/divergences.md, eq. 16.17)

Its density is not known, and where L < D there is none; it is judged by two-sample statistics.

Letters: B batch, D visible, L latent.
"""

import torch
from torch import Generator, Tensor, nn

from partita.core import rng
from partita.core.arguments import PositiveInt, Sizes, check_module
from partita.core.protocols import Capability, DirectedModel
from partita.core.registry import MODELS
from partita.core.support import Real
from partita.models.networked import Networked, check_maps
from partita.nets import MLP
from partita.nets.base import Activation


@MODELS.register
class GAN(Networked, DirectedModel):
    """A network from normal noise to rows; ``forward`` is the network, so that gradients flow from
    a critic through it.

    Arguments:
        visible: D, columns that come out.
        latent: L, columns of noise that go in.
        widths, activation: Of the network, where none is given.
        net: A network of :mod:`partita.nets`, or any module from ``(*, L)`` to ``(*, D)`` (which a
            saved run cannot rebuild by itself).
        generator: Source of the first weights.

    >>> g = torch.Generator().manual_seed(0)
    >>> GAN(2, generator=g).draw(5, generator=g).shape
    torch.Size([5, 2])
    """

    examples = {
        "GAN": {"visible": 2, "latent": 2, "widths": (8,)},
    }
    capabilities = frozenset({Capability.GENERATES})
    unsaved = ("widths", "activation")

    def __init__(
        self,
        visible: PositiveInt,
        latent: PositiveInt = 8,
        *,
        widths: Sizes = (128, 128),
        activation: Activation = "relu",
        net: nn.Module | None = None,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.visible, self.latent, self.support = visible, latent, Real(visible)
        if net is None:
            net = MLP(latent, visible, widths=widths, activation=activation, generator=generator)
        self.net = check_module("GAN", "net", net)
        check_maps("GAN", "net", net, latent, visible, self.like)

    def forward(self, z: Tensor) -> Tensor:
        """G(z), ``(*, L) -> (*, D)``."""
        return self.net(z)

    def noise(self, n: int, *, generator: Generator) -> Tensor:
        """z, ``(n, L)``."""
        return rng.normal((n, self.latent), self.like, generator)

    @torch.no_grad()
    def draw(self, n: int, *, generator: Generator) -> Tensor:
        return self.net(self.noise(n, generator=generator))

    def title(self) -> str:
        return f"GAN({self.visible}, {self.latent} latent)"
