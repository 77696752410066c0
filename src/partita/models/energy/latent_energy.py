r"""An energy of deep features and binary hidden units, which are summed out exactly.

.. math:: E(x, h) = x^\top x + h^\top W f(x) - c^\top h - b^\top x, \qquad
          F(x) = x^\top x - b^\top x - \textstyle\sum_k \mathrm{softplus}(-\alpha_k), \quad \alpha =
          W f(x) - c
          (theory/latent.md, eq. 30.1, 30.4)

Z is finite if f lowers the energy slower than x'x raises it. Along the path the joint is annealed:
W and c are scaled by beta, x'x - b'x is interpolated from the energy of a fitted normal
distribution.

Letters: N data, C chains, T temperatures, D visible, H hidden, K features.
"""

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Generator, Tensor, nn
from torch.distributions import Bernoulli, Normal
from torch.nn import functional

from partita.core.arguments import Network, PositiveInt, check_width
from partita.core.protocols import Capability, Data, Field
from partita.core.registry import MODELS
from partita.core.support import Real
from partita.errors import Unsupported, invalid
from partita.models.energy.growth import check_growth
from partita.models.energy.paths import FromNormal, interpolated
from partita.models.energy.units import Covariance, GaussianReference
from partita.models.networked import Networked
from partita.nets import MLP

SMALL = 0.1  # at the start, so that all hidden units together bend the normal energy only a little
WIDEST, NARROWEST = 8.0, 0.125  # deviations of a column for which x'x is a sensible scale


@MODELS.register
class LatentEnergy(Networked, FromNormal):
    """Hidden units ``h`` in {0, 1}^H that see x through any network f.

    Arguments:
        f: Module from ``(N, D)`` to ``(N, K)``; it may not lower the energy faster than x'x raises
            it.
        visible: Number of real coordinates D.
        hidden: Number of binary hidden units H.
        features: Number of outputs K of f.
        covariance: Of the normal reference, ``"full"`` or ``"diagonal"``.
        generator: Source of the initial W (H x K).

    >>> from partita.nets import MLP
    >>> g = torch.Generator().manual_seed(0)
    >>> model = LatentEnergy(MLP(2, 8, generator=g), visible=2, hidden=4, features=8, generator=g)
    >>> model(torch.zeros(5, 2)).shape
    torch.Size([5])
    """

    examples = {
        "LatentEnergy, two columns": {
            "f": partial(MLP, 2, 8),
            "visible": 2,
            "hidden": 16,
            "features": 8,
        },
        "LatentEnergy, many columns": {
            "f": partial(MLP, 6, 8),
            "visible": 6,
            "hidden": 16,
            "features": 8,
        },
    }
    penalized = ("W",)
    networks = ("f",)
    capabilities = frozenset({Capability.JOINT, Capability.NETWORK})

    def __init__(
        self,
        f: Network,
        visible: PositiveInt,
        hidden: PositiveInt,
        features: PositiveInt,
        *,
        covariance: Covariance = "full",
        generator: Generator,
    ) -> None:
        super().__init__()
        self.support, self.covariance = Real(visible), covariance
        self.f = f
        self.W = nn.Parameter(
            torch.randn(hidden, features, generator=generator, device=generator.device)
            * SMALL
            * features**-0.5
        )
        self.b = nn.Parameter(self.W.new_zeros(visible))
        self.c = nn.Parameter(self.W.new_zeros(hidden))
        self.register_normal(self.W, variance=0.5)  # of exp(-x'x)
        check_growth(
            "LatentEnergy",
            "f",
            self._bent,
            lambda x: self._quadratic(x.to(self.W)),
            visible,
            next(f.parameters(), self.W),
        )

    @property
    def visible(self) -> int:
        """D."""
        return self.support.width

    @property
    def hidden(self) -> int:
        """H."""
        return self.W.shape[0]

    def features(self, x: Tensor) -> Tensor:
        """f(x), ``(*, D) -> (*, K)``; the network sees a table of rows."""
        check_width("LatentEnergy", "x", x, self.visible, self.title())
        rows = x.reshape(-1, self.visible)
        out = self.f(rows)
        if out.shape != (len(rows), self.W.shape[1]):
            raise invalid(
                "LatentEnergy",
                "f",
                f"map (N, {self.visible}) to (N, {self.W.shape[1]})",
                f"{tuple(rows.shape)} to {tuple(out.shape)}",
            )
        return out.view(*x.shape[:-1], -1)

    def alpha(self, x: Tensor) -> Tensor:
        """W f(x) - c, ``(*, D) -> (*, H)``: minus the log-odds of each hidden unit (eq. 30.2)."""
        return functional.linear(self.features(x), self.W, -self.c)

    def energy(self, x: Tensor, h: Tensor, beta: Tensor | None = None) -> Tensor:
        """E(x, h), ``(*, D), (*, H) -> (*)``; at ``beta`` along the path if given."""
        inputs, own = (h * self.alpha(x)).sum(-1), self._quadratic(x)
        if beta is None:
            return own + inputs
        return interpolated(self.normal.free_energy(x), own, beta) + beta * inputs

    def free_energy(self, x: Tensor) -> Tensor:
        """F(x), ``(*, D) -> (*)`` (eq. 30.4)."""
        # logsigmoid(alpha) is -softplus(-alpha), uncut at 20
        return functional.logsigmoid(self.alpha(x)).sum(-1) + self._quadratic(x)

    def field(self, x: Tensor) -> Field:
        return Field(x, self.alpha(x))

    def energy_along(self, field: Field, beta: Tensor) -> Tensor:
        assert field.input is not None
        own = self._quadratic(field.x)
        bent = functional.logsigmoid(beta[..., None] * field.input).sum(-1)
        return interpolated(self.normal.free_energy(field.x), own, beta) + bent

    @torch.no_grad()
    def slope(self, x: Tensor, beta: Tensor | None = None) -> tuple[Tensor, Tensor] | None:
        """dF/dx = 2 x - b + sum_k sigma(-alpha_k) w_k' df/dx, by the chain rule through an MLP;
        along the path with ``beta`` (eq. 31.7).
        """
        if type(self.f) is not MLP:
            return None
        check_width("LatentEnergy", "x", x, self.visible, self.title())
        f, pull = self.f.pullback(x)
        alpha, b = functional.linear(f, self.W, -self.c), 1.0 if beta is None else beta[..., None]
        along = pull(b * torch.sigmoid(-b * alpha) @ self.W)
        own, slope = self._quadratic(x), 2 * x - self.b
        bent = functional.logsigmoid(b * alpha).sum(-1)
        if beta is not None:
            start, normal = self.normal.slope(x)
            own, slope = interpolated(start, own, beta), interpolated(normal, slope, beta, 1)
        return own + bent, slope + along

    def hidden_given_visible(
        self, x: Tensor, beta: Tensor | None = None, field: Field | None = None
    ) -> Bernoulli:
        """p(h | x) = product of sigmoid(-alpha_k) (eq. 30.2)."""
        alpha = self.alpha(x) if field is None or field.input is None else field.input
        return Bernoulli(
            probs=torch.sigmoid(-alpha if beta is None else -beta[..., None] * alpha),
            validate_args=False,
        )

    def visible_given_hidden(self, h: Tensor, beta: Tensor | None = None) -> Normal:
        """p(x | h): N((b - A'W'h) / 2, I / 2) where f(x) = A x + a is one linear layer; refused
        otherwise (eq. 30.3).
        """
        if not isinstance(self.f, nn.Linear) or beta is not None:
            raise Unsupported(
                f"{self.title()}.visible_given_hidden: p(x | h) is proportional to exp(b'x - x'x - "
                "h'W f(x)), and f couples the coordinates of x, so it does not factorize. It does "
                "where f is affine (give f=nn.Linear, unannealed) or a sum of functions of single "
                "coordinates. Use the sampler Alternating(MALA()), which draws h given x and "
                "moves x by its gradient given h."
            )
        return Normal(
            0.5 * (self.b - h @ self.W @ self.f.weight), math.sqrt(0.5), validate_args=False
        )

    def reference(self) -> GaussianReference:
        return replace(self.normal, offset=self.hidden * math.log(2))

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        self.b.copy_(2 * self.fit_normal(data, generator))

    def data_warnings(self, data: Data, *, generator: Generator) -> list[str]:
        deviation, mean = data.variance().sqrt(), data.mean().abs()
        odd = ((deviation > WIDEST) | (deviation < NARROWEST) | (mean > WIDEST)).nonzero()
        return [
            f"column {int(column)} has mean {float(data.mean()[column]):.3g} and deviation "
            f"{float(deviation[column]):.3g}; standardize the columns, for the energy's x'x has a "
            "scale of its own."
            for column in odd[:1]
        ]

    def title(self) -> str:
        return f"LatentEnergy({self.visible}, {self.hidden})"

    def _bent(self, x: Tensor) -> Tensor:
        """What f adds, whatever its dtype."""
        return functional.logsigmoid(
            functional.linear(self.features(x).to(self.W), self.W, -self.c)
        ).sum(-1)

    def _quadratic(self, x: Tensor) -> Tensor:
        return x.square().sum(-1) - x @ self.b


def energy_gradients(
    model: LatentEnergy, x: Tensor, weight: Tensor | None = None
) -> dict[str, Tensor]:
    r"""E[dE/dtheta] with h averaged given x, by parameter name; the likelihood gradient is model
    minus data (eq. 30.5).

    .. math:: \partial_\theta: \nabla_\theta f(x)^\top \textstyle\sum_k w_k\, \sigma(-\alpha_k),
              \quad
              \partial_W: \sigma(-\alpha) f(x)^\top, \quad \partial_b: -x, \quad \partial_c:
              -\sigma(-\alpha)

    Arguments:
        x: Rows, data or draws of the model or points of a grid, ``(n, D)``.
        weight: Of each row, ``(n,)``; they count equally if not given.
    """
    p = (
        torch.full((len(x),), 1 / len(x), dtype=x.dtype, device=x.device)
        if weight is None
        else weight / weight.sum()
    )
    f = model.features(x)
    # sigma(-alpha), weighed
    s = torch.sigmoid(-functional.linear(f, model.W, -model.c)).detach() * p[:, None]
    names = [name for name, _ in model.f.named_parameters()]
    through = torch.autograd.grad(f, list(model.f.parameters()), s @ model.W) if names else ()
    own = {"W": s.mT @ f.detach(), "b": -(p @ x), "c": -s.sum(0)}
    return {**own, **{f"f.{name}": g for name, g in zip(names, through, strict=True)}}
