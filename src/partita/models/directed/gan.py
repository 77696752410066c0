r"""The generator of a generative adversarial network: draws without a likelihood.

.. math:: x = G(z), \qquad z \sim \mathcal N(0, I_L)          (theory/divergences.md, eq. 16.17)

Its density is not known, and where L < D there is none; it is judged by two-sample statistics.

Letters: B batch, D visible, L latent.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Self

import torch
from torch import Tensor, nn

from partita.core import rng
from partita.core.checks import check_count, check_module
from partita.core.protocols import Capability, DirectedModel, Settings
from partita.core.registry import MODELS
from partita.core.support import Real
from partita.errors import invalid
from partita.nets import build, describe
from partita.nets.mlp import MLP


@MODELS.register
class GAN(DirectedModel):
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

    def __init__(
        self,
        visible: int,
        latent: int = 8,
        *,
        widths: Sequence[int] = (128, 128),
        activation: str = "relu",
        net: nn.Module | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.visible = check_count("GAN", "visible", visible)
        self.latent = check_count("GAN", "latent", latent)
        self.support = Real(visible)
        if net is None:
            net = MLP(latent, visible, widths=widths, activation=activation, generator=generator)
        self.net = net
        check_module("GAN", "net", self.net)
        with torch.no_grad():
            # of a copy: a look moves nothing
            shape = deepcopy(self.net).eval()(self.like.new_zeros(2, latent)).shape
        if shape != (2, visible):
            raise invalid("GAN", "net", f"map (2, {latent}) to (2, {visible})", tuple(shape))

    def forward(self, z: Tensor) -> Tensor:
        """G(z), ``(*, L) -> (*, D)``."""
        return self.net(z)

    def noise(self, n: int, *, generator: torch.Generator) -> Tensor:
        """z, ``(n, L)``."""
        return rng.normal((n, self.latent), self.like, generator)

    @torch.no_grad()
    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        return self.net(self.noise(n, generator=generator))

    def settings(self) -> Settings:
        return {"visible": self.visible, "latent": self.latent, "net": describe(self.net)}

    @classmethod
    def from_settings(cls, settings: Settings, *, generator: torch.Generator) -> Self:
        net = build(settings["net"], "GAN", generator=generator)
        return cls(**{**settings, "net": net}, generator=generator)

    def title(self) -> str:
        return f"GAN({self.visible}, {self.latent} latent)"
