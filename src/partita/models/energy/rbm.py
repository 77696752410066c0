r"""The restricted Boltzmann machine, with Bernoulli, Gaussian or categorical visible units.

.. math:: E(x, h) = -\eta \cdot t(x) - c^\top h - x^\top W h, \qquad
          F(x) = -\eta \cdot t(x) - \textstyle\sum_j \mathrm{softplus}(c_j + x^\top W_{:,j})
          (theory/energy.md, eq. 2.2)

For Bernoulli units the first term is b'x; for Gaussian ones b and sigma are the mean and deviation
of x where no hidden unit is on. Along the path W and c are scaled by beta and eta is interpolated
from the reference (the joint is annealed).

Letters: N data, B batch, C chains, T temperatures, D visible, H hidden.
"""

import math
from typing import Annotated, cast

import torch
from torch import Generator, Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.distributions import Bernoulli, Distribution
from torch.nn import functional

from partita.core.arguments import NonNegativeFloat, PositiveInt, Several, check_width, one_of
from partita.core.enumeration import Side
from partita.core.protocols import Capability, Data, EnergyModel, Field, Reference
from partita.core.registry import MODELS
from partita.core.support import Binary
from partita.errors import invalid
from partita.models.energy.flips import flip_sums
from partita.models.energy.units import (
    UNITS,
    Natural,
    UnitsReference,
    frequencies,
    smoothed_logits,
    units_named,
)

FAR = 20.0  # deviations from zero at which float32 begins to matter to a quadratic energy


def hidden_input(x: Tensor, W: Tensor, c: Tensor) -> Tensor:
    r"""Input :math:`c + W^\top x` to every hidden unit, ``(*, D) -> (*, H)``."""
    return torch.addmm(c, x.reshape(-1, len(W)), W).view(*x.shape[:-1], len(c))


class _Sum(FunctionCtx):
    saved_tensors: tuple[Tensor, Tensor]


class HiddenSum(torch.autograd.Function):
    r"""log of the sum over h of exp((c + W'x)'h), with its closed-form gradient V'H
    (theory/energy.md, eq. 2.6).

    .. math:: S(x) = \sum_j \mathrm{softplus}(a_j), \quad a = c + W^\top x, \qquad
              \partial_W \sum_i g_i S(x_i) = V^\top \mathrm{diag}(g)\, \sigma(A), \quad \partial_c =
              g^\top \sigma(A)
    """

    @staticmethod
    def forward(ctx: _Sum, x: Tensor, W: Tensor, c: Tensor, a: Tensor | None) -> Tensor:
        a = hidden_input(x, W, c) if a is None else a
        ctx.save_for_backward(x, torch.sigmoid(a))
        return functional.softplus(a).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: _Sum, *grad_outputs: Tensor
    ) -> tuple[None, Tensor, Tensor, None]:
        (g,) = grad_outputs
        x, h = (t.reshape(-1, t.shape[-1]) for t in ctx.saved_tensors)
        g = g.reshape(-1)
        return None, x.mT @ (h * g[:, None]), g @ h, None


def hidden_sum(x: Tensor, W: Tensor, c: Tensor, a: Tensor | None = None) -> Tensor:
    """Sum of softplus(c + W'x) over hidden units, from its input ``a`` if precomputed; by
    autograd where x wants gradients.
    """
    if x.requires_grad:
        return functional.softplus(hidden_input(x, W, c)).sum(-1)
    return cast(Tensor, HiddenSum.apply(x, W, c, a))


def sufficient_statistics(x: Tensor, h: Tensor, weight: Tensor | None = None) -> dict[str, Tensor]:
    r"""Means of x h', x and h over rows: :math:`V^\top H / N` and its margins (theory/energy.md,
    eq. 2.6).
    """
    weight = (
        torch.full(x.shape[:1], 1 / len(x), dtype=x.dtype, device=x.device)
        if weight is None
        else weight / weight.sum()
    )
    weighted = x * weight[:, None]
    return {"W": weighted.mT @ h, "b": weighted.sum(0), "c": weight @ h}


def centered_gradient(
    gW: Tensor, gb: Tensor, gc: Tensor, mu: Tensor, lam: Tensor, s: Tensor | float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    r"""The gradient in coordinates centered at (mu, lambda), brought back to W, b, c
    (theory/learning.md, eq. 6.4).

    .. math:: g_W' = g_W - \mu g_c^\top - (s g_b) \lambda^\top, \quad g_b' = g_b - s\, g_W' \lambda,
              \quad g_c' = g_c - g_W'^\top \mu

    with s = 1 for Bernoulli units and s = sigma^2 for Gaussian ones, whose mean at h = lambda is b
    + sigma^2 W lambda. A positive-definite linear map of the plain gradient, so its stationary
    points are the same; ``gW`` is changed in place. Melchior, Fischer and Wiskott (2016), How to
    center deep Boltzmann machines.
    """
    gW.addr_(mu, gc, alpha=-1).addr_(s * gb, lam, alpha=-1)
    return gW, gb - s * (gW @ lam), gc - mu @ gW


def check_varying(mean: Tensor, variance: Tensor) -> None:
    """Refuse constant columns, on which a density is infinite."""
    constant = (variance <= 1e-20 * mean.square()).nonzero().flatten().tolist()
    if constant:
        raise invalid(
            "RBM",
            "x",
            "vary in every column when visible_units='gaussian'",
            f"the same value throughout column {constant[0]}",
            "Remove constant columns.",
        )


@MODELS.register
class RBM(EnergyModel):
    """Visible and hidden layers with weights ``W`` (D x H) between them and biases ``b`` (D) and
    ``c`` (H).

    Arguments:
        visible: Number of visible units D.
        hidden: Number of binary hidden units H.
        visible_units: ``"bernoulli"``, ``"gaussian"`` (then ``log_sigma`` (D) is a parameter too)
            or ``"categorical"`` (then W is D K x H and b is D K: one row for every state of every
            unit).
        states: Number of states K of a categorical unit.
        scale: Standard deviation of the initial weights.
        generator: Source of the initial weights.

    >>> g = torch.Generator().manual_seed(0)
    >>> model = RBM(visible=4, hidden=3, generator=g)
    >>> model(torch.zeros(2, 4)).shape
    torch.Size([2])
    """

    examples = {
        "RBM, few hidden units": {"visible": 30, "hidden": 8},
        "RBM, many hidden units": {"visible": 30, "hidden": 24},
        "RBM, categorical visibles": {
            "visible": 12,
            "hidden": 24,
            "visible_units": "categorical",
            "states": 4,
        },
        "RBM, gaussian visibles": {"visible": 6, "hidden": 24, "visible_units": "gaussian"},
    }
    penalized = ("W",)
    unsaved = ("scale",)
    capabilities = frozenset({Capability.CONDITIONALS, Capability.CENTERING, Capability.FIELD})
    forward_methods = ("hidden_free_energy",)
    reference_natural: Tensor

    def __init__(
        self,
        visible: PositiveInt,
        hidden: PositiveInt,
        *,
        visible_units: Annotated[str, one_of(*UNITS)] = "bernoulli",
        states: Several | None = None,
        scale: NonNegativeFloat = 0.01,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.units = units_named(visible_units, states)
        self.support = self.units.support(visible)
        self.W = nn.Parameter(
            scale
            * torch.randn(
                visible * self.units.states, hidden, generator=generator, device=generator.device
            )
        )
        self.b = nn.Parameter(self.W.new_zeros(len(self.W)))
        self.c = nn.Parameter(self.W.new_zeros(hidden))
        self.log_sigma = (
            nn.Parameter(self.W.new_zeros(visible)) if visible_units == "gaussian" else None
        )
        self.register_anchors(visible, self.W)
        self.register_buffer(
            "reference_natural", torch.stack(list(self.natural())).detach().clone()
        )

    @property
    def visible(self) -> int:
        """D."""
        return self.support.width

    @property
    def hidden(self) -> int:
        """H."""
        return self.W.shape[1]

    def natural(self, beta: Tensor | None = None) -> Natural:
        """Natural parameters of the visible units at ``beta`` (None: of the model itself), R times
        ``(*, D)``.
        """
        eta = self.units.natural(self.b, self.log_sigma)
        if beta is None:
            return eta
        return [
            torch.lerp(start, end, beta[..., None])
            for start, end in zip(self.reference_natural, eta, strict=True)
        ]

    def energy(self, x: Tensor, h: Tensor) -> Tensor:
        """E(x, h), ``(*, D), (*, H) -> (*)``."""
        return -self.units.pairing(x, self.natural()) - (h * self._hidden_input(x)).sum(-1)

    def free_energy(self, x: Tensor, field: Field | None = None) -> Tensor:
        """F(x), ``(*, D) -> (*)``; ``field`` saves the product where it is known."""
        check_width("RBM.free_energy", "x", x, self.visible, self.title())
        t = self.units.statistic(x)
        return -self.units.pairing(x, self.natural()) - hidden_sum(
            t, self.W, self.c, None if field is None else field.input
        )

    def hidden_free_energy(self, h: Tensor, beta: Tensor | None = None) -> Tensor:
        """-log of the sum (or integral) over x of exp(-E(x, h)), ``(*, H) -> (*)``: the same Z,
        written over h.
        """
        bias = h @ self.c
        return -(bias if beta is None else beta * bias) - self.units.log_normalizer(
            self._visible_natural(h, beta)
        )

    def sides(self) -> list[Side]:
        return [*super().sides(), Side("hidden", Binary(self.hidden), self.hidden_free_energy)]

    def field(self, x: Tensor) -> Field:
        return Field(x, self._hidden_input(x))

    def energy_along(self, field: Field, beta: Tensor) -> Tensor:
        assert field.input is not None
        start, end = (
            self.units.pairing(field.x, eta)
            for eta in (tuple(self.reference_natural), self.natural())
        )
        return -torch.lerp(start, end, beta.to(end)) - functional.softplus(
            beta[..., None] * field.input
        ).sum(-1)

    def conditional_logits(self, x: Tensor, beta: Tensor | None = None) -> Tensor:
        if self.units.name != "bernoulli" or beta is not None:
            return super().conditional_logits(x, beta)
        on = self.b + flip_sums(x, self.W, self.c)
        return torch.stack([torch.zeros_like(on), on], -1)

    def hidden_given_visible(
        self, x: Tensor, beta: Tensor | None = None, field: Field | None = None
    ) -> Bernoulli:
        """p(h | x) = product of sigmoid(c + W'x); ``field`` if precomputed."""
        inputs = self._hidden_input(x) if field is None or field.input is None else field.input
        return Bernoulli(
            probs=torch.sigmoid(inputs if beta is None else beta[..., None] * inputs),
            validate_args=False,
        )

    def visible_given_hidden(self, h: Tensor, beta: Tensor | None = None) -> Distribution:
        """p(x | h): sigmoid(b + W h), a normal with mean b + sigma^2 W h, or softmax(b + W h) over
        the states of each unit.
        """
        return self.units.distribution(self._visible_natural(h, beta))

    def reference(self) -> Reference:
        return UnitsReference(self.units, tuple(self.reference_natural), self.hidden * math.log(2))

    def begun_at(self, table: Tensor) -> "RBM":
        return self.viewed(reference_natural=torch.stack(list(self.units.from_product(table))))

    @torch.no_grad()
    def landmarks(self, n: int) -> Tensor:
        """The likeliest x given no hidden unit, all of them, or one alone, those with the longest
        weights first.
        """
        strongest = self.W.norm(dim=0).argsort(descending=True)[: max(0, n - 2)]
        h = torch.cat(
            [
                self.W.new_zeros(1, self.hidden),
                self.W.new_ones(1, self.hidden),
                torch.eye(self.hidden).to(self.W)[strongest],
            ]
        )
        return self.units.mode(self._visible_natural(h, None))

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        self.set_anchors(data, generator=generator)
        mean, n = data.mean(), len(data)
        if self.units.name == "categorical":
            mean = variance = (
                smoothed_logits(frequencies(data, self.support.values(), generator), n)
                .exp()
                .flatten()
            )
            self.b.copy_(mean.log())
        elif self.log_sigma is None:
            # half a count, so that no pixel is impossible
            mean = variance = (mean * n + 0.5) / (n + 1)
            self.b.copy_(torch.logit(mean))
        else:
            variance = data.variance()
            check_varying(mean, variance)
            self.b.copy_(mean)
            self.log_sigma.copy_(0.5 * variance.log())
        self.reference_natural.copy_(torch.stack(list(self.units.from_moments(mean, variance))))

    def data_warnings(self, data: Data, *, generator: Generator) -> list[str]:
        if self.log_sigma is None:
            return []
        far = (data.mean().abs() > FAR * data.variance().sqrt()).nonzero().flatten().tolist()
        return [
            f"column {column} is more than {FAR:g} deviations away from zero; standardize the "
            "columns, for a quadratic energy loses such differences to rounding."
            for column in far[:1]
        ]

    @torch.no_grad()
    def center(self, mu: Tensor) -> None:
        """Replace the gradients of W, b and c by their centered form, at ``mu`` and the hidden
        units' response to it.

        Categories have no mean; their base rates, which the reference has, take its place.
        """
        assert self.W.grad is not None and self.b.grad is not None and self.c.grad is not None
        mu = self.reference_natural[0].exp() if self.units.name == "categorical" else mu
        lam = torch.sigmoid(self.c + mu @ self.W)
        s = 1.0 if self.log_sigma is None else torch.exp(2 * self.log_sigma)
        self.W.grad, self.b.grad, self.c.grad = centered_gradient(
            self.W.grad, self.b.grad, self.c.grad, mu, lam, s
        )

    def title(self) -> str:
        return f"RBM({self.visible}, {self.hidden})"

    def _hidden_input(self, x: Tensor) -> Tensor:
        return hidden_input(self.units.statistic(x), self.W, self.c)

    def _visible_natural(self, h: Tensor, beta: Tensor | None) -> Natural:
        """Natural parameters of x given h: the first row gains beta W h."""
        first, *others = self.natural(beta)
        if beta is None:
            return functional.linear(h, self.W, first), *others
        return first + beta[..., None] * (h @ self.W.mT), *others
