r"""Normalizing flows: an exact density from a chain of invertible layers.

.. math:: \log p(x) = \log \mathcal N\big(f_N \circ \cdots \circ f_1(x)\big)
          + \sum_i \log\left|\det \frac{\partial f_i}{\partial f_{i-1}}\right|
          (theory/flows.md, eq. 14.5)

Letters: N data, B batch, D visible, C context.
"""

import math
from functools import partial
from typing import TYPE_CHECKING, Annotated, cast

import torch
from torch import Generator, Tensor, nn
from torch.distributions import Independent, Normal, Transform, TransformedDistribution

from partita.core import rng
from partita.core.arguments import (
    Depth,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Sizes,
    check_count,
    check_width,
    one_of,
    within,
)
from partita.core.protocols import Capability, Data, DirectedModel, Settings
from partita.core.registry import MODELS
from partita.core.support import Real
from partita.errors import invalid
from partita.models.directed.flow import masks
from partita.models.directed.flow.coupling import (
    AffineCoupling,
    Marginals,
    SplineCoupling,
    make_conditioner,
)
from partita.models.directed.flow.layers import (
    ActNorm,
    Layer,
    LinearMixing,
    Logit,
    Mapped,
    Permutation,
    columns,
    rows,
    scale_of,
)
from partita.models.directed.flow.splines import MOST_BINS, parameters_per_coordinate
from partita.nets.base import Activation
from partita.tables.infer import copying, repeating

if TYPE_CHECKING:
    from partita.models.directed.flow.verify import Verdict

INITIAL_ROWS = 4096  # rows of data that the first scales are taken from
ROWS = 4096  # rows that are looked at for columns whose density is infinite
DISCRETE = (
    "so it is discrete: the density grows without end; dequantize it "
    "(partita.models.directed.flow.Dequantized), or use a model of masses."
)
COPY = "so the density is degenerate and its likelihood grows without end; leave the column out."
# names of indices that follow from an order or a mask
FOLLOW = ("kept", "moved", "back", "inverse")


@MODELS.register
class Flow(DirectedModel):
    """Couplings with activation normalization and mixing between them, over a standard normal.

    Arguments:
        visible: D, columns of x.
        layers: Number of couplings; two make every column both move and be heard.
        coupling: ``"affine"`` (RealNVP) or ``"spline"`` (rational-quadratic, stronger).
        widths: Units of each conditioner's layers; channels for images.
        activation: Of the conditioners.
        context: C, columns that the density is conditioned on, standardized like the first data.
            Rows are then x followed by its context, D + C columns, and ``log_prob`` is log p(x |
            context).
        mixing: Between couplings: ``"lu"`` (learned), ``"permutation"`` (random, fixed),
            ``"reverse"`` or ``"none"``.
        bins, bound: Of splines: K, and b where they become the identity.
        image: (channels, height, width) with C I J = D: checkerboard and channel masks,
            convolutions, no mixing.
        levels, alpha: For columns between 0 and ``levels``: first their logit, the ends kept
            ``alpha`` away. None for real columns.
        generator: Source of the first weights.

    >>> g = torch.Generator().manual_seed(0)
    >>> flow = Flow(2, layers=2, widths=(16,), generator=g)
    >>> flow.log_prob(torch.zeros(3, 2)).shape, flow.draw(5, generator=g).shape
    (torch.Size([3]), torch.Size([5, 2]))
    """

    examples = {
        "Flow": {"visible": 2, "layers": 2, "widths": (8,)},
    }
    capabilities = frozenset({Capability.LOG_PROB, Capability.INVERTIBLE})
    zero: Tensor
    context_mean: Tensor
    context_scale: Tensor

    def __init__(
        self,
        visible: PositiveInt,
        layers: Depth = 8,
        coupling: Annotated[str, one_of("affine", "spline")] = "affine",
        *,
        widths: Sizes = (64, 64),
        activation: Activation = "relu",
        context: NonNegativeInt = 0,
        mixing: Annotated[str, one_of("none", "reverse", "permutation", "lu")] = "lu",
        bins: Annotated[int, partial(check_count, least=2, most=MOST_BINS)] = 8,
        bound: PositiveFloat = 5.0,
        image: Sizes | None = None,
        levels: PositiveFloat | None = None,
        alpha: Annotated[float, within(0.0, 0.4)] = 1e-6,
        generator: Generator,
    ) -> None:
        super().__init__()
        if image is not None and math.prod(masks.check_image(image)) != visible:
            raise invalid("Flow", "image", f"have {visible} values to match visible", tuple(image))
        self.visible, self.context = visible, context
        self.support = Real(visible + context)
        self.chain = nn.ModuleList(_layers(self.arguments, generator))
        self.register_buffer("zero", torch.zeros(visible, device=generator.device))
        if context:
            self.register_buffer("context_mean", torch.zeros(context, device=generator.device))
            self.register_buffer("context_scale", torch.ones(context, device=generator.device))

    @property
    def layers(self) -> list[Layer]:
        """The chain, from data to latent."""
        return cast(list[Layer], list(self.chain))

    def to_latent(self, x: Tensor, context: Tensor | None = None) -> Mapped:
        """z = f(x) and log |det df/dx|, ``(*, D) -> (*, D), (*)``."""
        z, log_det = self._to_latent(*columns(x, self._given(context)))
        return rows(z, x.shape), log_det.reshape(x.shape[:-1])

    def to_data(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """x with f(x) = z, ``(*, D) -> (*, D)``."""
        shape, (z, context) = z.shape, columns(z, self._given(context))
        for layer in reversed(self.layers):
            z = layer.to_data(z, context)
        return rows(z, shape)

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """log p(x), or log p(x | context) of rows with their context, ``(*, D + C) -> (*)``."""
        x, context = self._split(x, context)
        z, log_det = self._to_latent(*columns(x, self._given(context)))
        log_p = log_det - 0.5 * z.square().sum(0) - 0.5 * self.visible * math.log(2 * math.pi)
        return log_p.reshape(x.shape[:-1])

    @torch.no_grad()
    def draw(self, n: int, *, context: Tensor | None = None, generator: Generator) -> Tensor:
        """``n`` exact draws, ``(n, D)``; of a conditional flow one for each row of ``context``,
        ``(n, C)``.
        """
        if self.context and (context is None or context.shape != (n, self.context)):
            got = None if context is None else tuple(context.shape)
            raise invalid("Flow.draw", "context", f"have shape ({n}, {self.context})", got)
        return self.to_data(rng.normal((n, self.visible), self.like, generator), context)

    def distribution(self, context: Tensor | None = None) -> TransformedDistribution:
        """The flow as a ``torch.distributions`` object; its ``log_prob`` and ``rsample`` carry
        gradients.
        """
        self._check_context("Flow.distribution", context)
        zero = self.zero if context is None else self.zero.expand(*context.shape[:-1], -1)
        base = Independent(
            Normal(zero, torch.ones_like(zero), validate_args=False), 1, validate_args=False
        )
        given = self._given(context)
        transforms: list[Transform] = [layer.transform(given) for layer in reversed(self.layers)]
        return TransformedDistribution(base, transforms, validate_args=False)

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        """Send some rows through the layers, each of which standardizes what reaches it."""
        index = rng.permutation(len(data), generator)[:INITIAL_ROWS].cpu()
        x, context = self._split(data.batch(index, generator=generator).x.to(self.like), None)
        if context is not None:
            self.context_mean.copy_(context.mean(0))
            self.context_scale.copy_(scale_of(context, 0)[0])
        x, context = columns(x, self._given(context))
        for layer in self.layers:
            layer.fit_to(x)
            x, _ = layer.to_latent(x, context)

    def resize_buffers(self, weights: dict[str, Tensor]) -> None:
        """Nothing grows; indices that follow from others, which earlier checkpoints hold, are left
        out.
        """
        for name in [name for name in weights if name.rpartition(".")[2] in FOLLOW]:
            del weights[name]

    def data_warnings(self, data: Data, *, generator: Generator) -> list[str]:
        return flow_warnings(data, self.visible, generator=generator)

    def verify(self, x: Tensor | None = None, *, generator: Generator) -> "Verdict":
        """Check the flow against itself: round trip, autograd Jacobian, mass over a grid, masks;
        see :func:`verify_flow`.
        """
        from partita.models.directed.flow.verify import verify_flow

        return verify_flow(self, x, generator=generator)

    def title(self) -> str:
        given, made = f" given {self.context}" if self.context else "", self.arguments
        return f"Flow({self.visible}{given}, {made['layers']} {made['coupling']} couplings)"

    def _to_latent(self, x: Tensor, context: Tensor | None) -> Mapped:
        """The chain, ``(D, B) -> (D, B), (B)``."""
        log_det = x.new_zeros(())
        for layer in self.layers:
            x, more = layer.to_latent(x, context)
            log_det = log_det + more
        return x, log_det.expand(x.shape[1])

    def _split(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """x and its context, given beside it or in its last columns."""
        if context is not None or not self.context:
            check_width("Flow.log_prob", "x", x, self.visible, self.title())
            self._check_context("Flow.log_prob", context)
            return x, context
        check_width("Flow.log_prob", "x", x, self.visible + self.context, self.title())
        return x[..., : self.visible], x[..., self.visible :]

    def _given(self, context: Tensor | None) -> Tensor | None:
        """The context as the conditioners see it: its units must not matter."""
        return None if context is None else (context - self.context_mean) / self.context_scale

    def _check_context(self, owner: str, context: Tensor | None) -> None:
        """C columns for a conditional flow, none for another."""
        if (context is None) != (self.context == 0) or (
            context is not None and context.shape[-1] != self.context
        ):
            needed = "be None, for the flow is not conditional"
            if self.context:
                needed = f"have shape (*, {self.context})"
            got = None if context is None else tuple(context.shape)
            raise invalid(owner, "context", needed, got)


def _layers(settings: Settings, generator: Generator) -> list[Layer]:
    """The chain from data to latent: a logit if there are levels, then for each coupling a
    normalization, the coupling, a mix.
    """
    D, made = settings["visible"], []
    if settings["levels"] is not None:
        made.append(Logit(settings["levels"], settings["alpha"]))
    # which column each place holds; which ones were kept last
    origin, kept = torch.arange(D), torch.zeros(D, dtype=torch.bool)
    for i in range(settings["layers"]):
        mask = _mask(settings, i, origin, kept)
        kept = torch.zeros_like(kept).index_copy(0, origin, mask)
        made += [
            ActNorm(D, generator=generator),
            *_coupling(settings, mask.to(generator.device), generator),
        ]
        if i < settings["layers"] - 1 and settings["image"] is None and D > 1:
            for mix in _mixing(settings["mixing"], D, generator):
                made, origin = [*made, mix], origin[mix.order.cpu()]
    return [*made, ActNorm(D, generator=generator)]


def _mask(settings: Settings, i: int, origin: Tensor, kept: Tensor) -> Tensor:
    """Every second layer keeps what the one before it moved, wherever the mix has put it, so that
    any two cover all columns.
    """
    if settings["image"] is not None:
        return masks.image_mask(settings["image"], i)
    return ~kept[origin] if i % 2 and len(origin) > 1 else masks.alternating(len(origin), i)


def _coupling(settings: Settings, mask: Tensor, generator: Generator) -> list[Layer]:
    bins, image = settings["bins"], settings["image"]
    per = 2 if settings["coupling"] == "affine" else parameters_per_coordinate(bins)
    net = make_conditioner(
        mask,
        settings["context"],
        per,
        settings["widths"],
        settings["activation"],
        image,
        generator=generator,
    )
    if settings["coupling"] == "affine":
        return [AffineCoupling(mask, net, per)]
    marginals = Marginals(settings["visible"], bins, settings["bound"], generator=generator)
    return [SplineCoupling(mask, net, bins, settings["bound"]), marginals]


def _mixing(name: str, width: int, generator: Generator) -> list[LinearMixing | Permutation]:
    if name == "lu":
        return [LinearMixing(width, generator=generator)]
    if name == "permutation":
        return [Permutation(rng.permutation(width, generator))]
    if name == "reverse":
        return [Permutation(torch.arange(width - 1, -1, -1, device=generator.device))]
    return []


def flow_warnings(data: Data, width: int, *, generator: Generator) -> list[str]:
    """What is wrong with the columns of x, each in one sentence; columns past ``width`` are their
    context.
    """
    index = rng.permutation(len(data), generator)[:ROWS].cpu()
    rows = data.batch(index, generator=generator).x.double()
    found = {DISCRETE: repeating(rows[:, :width]), COPY: copying(rows[:, :width], rows[:, width:])}
    return [f"column {at[0]} {at[1]}, {why}" for why, at in found.items() if at is not None]
