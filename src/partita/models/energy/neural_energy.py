r"""Any network as an energy.

.. math:: F(x) = g(x) + F_0(x) \;\text{on real supports}, \qquad F(x) = g(x) \;\text{on finite ones}
          (theory/latent.md, eq. 30.8)

F_0 is the energy of the reference, a fitted normal distribution, which keeps Z finite where g does
not fall faster than x'x grows.

Letters: N data, C chains, T temperatures, D visible, K states of one coordinate.
"""

from functools import partial
from typing import Self

import torch
from torch import Generator, Tensor
from torch.nn import functional

from partita.core.arguments import Network, check_categories, check_width
from partita.core.protocols import Capability, Data, Field, Reference, Settings
from partita.core.registry import MODELS
from partita.core.support import Binary, Categorical, Real, Spin, Support
from partita.errors import Unsupported, invalid
from partita.models.energy.growth import called, check_growth
from partita.models.energy.paths import FromNormal, FromProduct
from partita.models.energy.units import (
    MOMENT_ROWS,
    Covariance,
)
from partita.models.networked import Networked, build
from partita.nets import MLP

SUPPORTS: dict[str, type[Support]] = {
    support.__name__: support for support in (Real, Binary, Spin, Categorical)
}


@MODELS.register
class NeuralEnergy(Networked, FromProduct, FromNormal):
    """The energy g(x) of a network, added to the reference's on real supports.

    Arguments:
        net: Module from rows to one number each, ``(N, D)`` to ``(N,)`` or ``(N, 1)``. On a real
            support it may not fall faster than x'x grows; categories come to it one-hot, ``(N, D
            K)``.
        support: ``Real``, ``Binary``, ``Spin`` or ``Categorical``.
        covariance: Of the normal reference on a real support, ``"full"`` or ``"diagonal"``.

    >>> from partita.nets import MLP
    >>> model = NeuralEnergy(MLP(2, 1, generator=torch.Generator().manual_seed(0)), Real(2))
    >>> model(torch.zeros(5, 2)).shape
    torch.Size([5])
    """

    examples = {
        "NeuralEnergy, two real columns": {"net": partial(MLP, 2, 1), "support": Real(2)},
        "NeuralEnergy, many real columns": {"net": partial(MLP, 6, 1), "support": Real(6)},
        "NeuralEnergy, spins": {"net": partial(MLP, 22, 1), "support": Spin(22)},
    }
    capabilities = frozenset({Capability.NETWORK})

    def __init__(self, net: Network, support: Support, *, covariance: Covariance = "full") -> None:
        super().__init__()
        if type(support) not in SUPPORTS.values():
            raise Unsupported(
                f"NeuralEnergy cannot live on {support}: it needs one of {', '.join(SUPPORTS)}."
            )
        self.net, self.support, self.covariance = net, support, covariance
        like = next(net.parameters(), None)
        if like is None:
            raise invalid(
                "NeuralEnergy",
                "net",
                "have parameters to learn",
                type(net).__name__,
                "Give a network such as partita.nets.MLP.",
            )
        if self.real:
            self.register_normal(like)
            check_growth(
                "NeuralEnergy",
                "net",
                self.net_energy,
                self.reference().free_energy,
                support.width,
                like,
            )
        else:
            self.register_product(like)
            called(
                "NeuralEnergy",
                "net",
                self.net_energy,
                support.values()[0].to(like).expand(2, support.width),
            )

    @property
    def real(self) -> bool:
        """Whether x is real."""
        return isinstance(self.support, Real)

    def net_energy(self, x: Tensor) -> Tensor:
        """g(x), ``(*, D) -> (*)``; the network sees a table of rows."""
        check_width("NeuralEnergy", "x", x, self.support.width, self.title())
        rows = x.reshape(-1, self.support.width)
        if isinstance(self.support, Categorical):
            rows = (
                functional.one_hot(
                    check_categories("NeuralEnergy", "x", rows, self.support.K), self.support.K
                )
                .flatten(1)
                .to(x.dtype)
            )
        out = self.net(rows)
        if out.shape not in ((len(rows),), (len(rows), 1)):
            raise invalid(
                "NeuralEnergy",
                "net",
                f"map (N, {rows.shape[-1]}) to (N,) or (N, 1)",
                f"{tuple(rows.shape)} to {tuple(out.shape)}",
                "Give the last layer one output.",
            )
        return out.view(x.shape[:-1])

    def free_energy(self, x: Tensor) -> Tensor:
        """F(x), ``(*, D) -> (*)``."""
        own = self.net_energy(x)
        return own + self.reference().free_energy(x) if self.real else own

    def field(self, x: Tensor) -> Field:
        return Field(x, self.net_energy(x)[..., None])

    def energy_along(self, field: Field, beta: Tensor) -> Tensor:
        """The network's part scaled by beta; on finite supports the reference's part fades. What
        is forbidden stays so all the way.
        """
        assert field.input is not None
        start, own = self.reference().free_energy(field.x), field.input[..., 0]
        own = torch.where(own == torch.inf, own, beta * own)
        return start + own if self.real else (1 - beta) * start + own

    @torch.no_grad()
    def slope(self, x: Tensor, beta: Tensor | None = None) -> tuple[Tensor, Tensor] | None:
        """The gradients of an MLP and of the reference (theory/gradient_samplers.md, eq. 31.7)."""
        if not self.real or type(self.net) is not MLP:
            return None
        check_width("NeuralEnergy", "x", x, self.support.width, self.title())
        out, pull = self.net.pullback(x)
        own, along = out[..., 0], pull(torch.ones_like(out))
        start, normal = self.normal.slope(x)
        if beta is None:
            return start + own, normal + along
        return start + beta * own, normal + beta[..., None] * along

    def reference(self) -> Reference:
        return self.normal if self.real else self.product

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        if self.real:
            self.fit_normal(data, generator)
        else:
            self.fit_product(data, min(len(data), MOMENT_ROWS), generator)

    def settings(self) -> Settings:
        support = {"name": type(self.support).__name__, **vars(self.support)}
        return {**super().settings(), "support": support}

    @classmethod
    def from_settings(cls, settings: Settings, *, generator: Generator) -> Self:
        sizes = dict(settings["support"])
        support = SUPPORTS[sizes.pop("name")](**sizes)
        net = build(settings["net"], "NeuralEnergy", generator=generator)
        return cls(net, support, covariance=settings["covariance"])

    def title(self) -> str:
        return (
            f"NeuralEnergy({self.support.width})" if self.real else f"NeuralEnergy({self.support})"
        )
