r"""Invertible layers whose log-determinant is cheap, and how each becomes a ``torch.distributions``
transform.

.. math:: \log p(x) = \log p_z\big(f(x)\big) + \log\left|\det \frac{\partial f}{\partial x}\right|
          (theory/flows.md, eq. 14.1)

A layer f goes from data to latent (``to_latent``, the direction of the density), with the
log-determinant in the same pass, and back (``to_data``, the direction of draws, which need none).
Inside the chain the batch is last, ``(D, B)``: a column is then one piece of memory, and taking,
mixing and summing columns all run along it.

Letters: B batch, D width, C context.
"""

from abc import ABC, abstractmethod

import torch
from torch import Generator, Tensor, nn
from torch.distributions import Transform, constraints

from partita.core import rng
from partita.errors import RunError, invalid

# values (D, B), and log |det| of the map that made them, (B) or a number for all
Mapped = tuple[Tensor, Tensor]


def columns(x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Rows with the batch last, ``(*, D) -> (D, B)``, and their context, repeated along leading
    dimensions that it lacks.
    """
    if context is not None:
        context = context.expand(*x.shape[:-1], -1).reshape(-1, context.shape[-1]).mT.contiguous()
    return x.reshape(-1, x.shape[-1]).mT.contiguous(), context


def rows(x: Tensor, shape: torch.Size) -> Tensor:
    """Back to rows, ``(D, B) -> (*, D)``."""
    return x.mT.reshape(shape).contiguous()


def scale_of(x: Tensor, rows: int) -> Tensor:
    """Standard deviations over the dimension of the rows, which stays; a constant column has no
    scale, and gets one.
    """
    deviation = x.std(rows, keepdim=True)
    return torch.where(deviation > torch.finfo(x.dtype).tiny, deviation, 1.0)


class Layer(nn.Module, ABC):
    """An invertible map of R^D, values ``(D, B)`` with a context ``(C, B)``."""

    @abstractmethod
    def to_latent(self, x: Tensor, context: Tensor | None = None) -> Mapped:
        """f(x) and log |det df/dx|."""

    @abstractmethod
    def to_data(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """The inverse of f at z."""

    @torch.no_grad()
    def fit_to(self, x: Tensor) -> None:
        """Take scales from the data that reach this layer, ``(D, B)``; nothing by default."""

    def transform(self, context: Tensor | None = None) -> "LayerTransform":
        """This layer, from latent to data, as a ``torch.distributions`` transform."""
        return LayerTransform(self, context)


class LayerTransform(Transform):
    """A layer bound to a context, from latent rows x to data y.

    ``log_prob`` needs the log-determinant right after the inverse: it is kept for that, and for
    once, as weights may change meanwhile.
    """

    domain = constraints.real_vector
    codomain = constraints.real_vector
    bijective = True

    def __init__(self, layer: Layer, context: Tensor | None = None) -> None:
        super().__init__()
        self.layer, self.context = layer, context
        # the data's side and log |det d data / d latent|
        self._last: tuple[Tensor, Tensor] | None = None

    def _call(self, x: Tensor) -> Tensor:
        return rows(self.layer.to_data(*columns(x, self.context)), x.shape)

    def _inverse(self, y: Tensor) -> Tensor:
        z, log_det = self.layer.to_latent(*columns(y, self.context))
        self._last = (y, -log_det.expand(z.shape[1]).reshape(y.shape[:-1]))
        return rows(z, y.shape)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if self._last is None or self._last[0] is not y:
            self._inverse(y)
        assert self._last is not None
        (_, log_det), self._last = self._last, None
        return log_det

    def with_cache(self, cache_size: int = 1) -> "LayerTransform":
        return self


class Ordered(Layer):
    """A layer that takes the columns in an order of its own, which is saved; the way back follows
    from it.
    """

    order: Tensor
    back: Tensor

    def __init__(self, order: Tensor) -> None:
        super().__init__()
        self.register_buffer("order", order)
        self.register_buffer("back", order.argsort(), persistent=False)
        self.register_load_state_dict_post_hook(_find_the_way_back)


def _find_the_way_back(layer: Ordered, _: object) -> None:
    """From an order that was loaded; by what is none, columns would be taken that are not there."""
    columns, layer.back = layer.order.sort()
    if not torch.equal(columns, torch.arange(len(columns), device=columns.device)):
        raise RunError(
            f"load: the order of {len(columns)} columns must hold each of 0 to {len(columns) - 1} "
            "once; got another. "
            "Restore the file as partita wrote it."
        )


class Permutation(Ordered):
    """Columns in another, fixed order; volume stays."""

    def to_latent(self, x: Tensor, context: Tensor | None = None) -> Mapped:
        return x.index_select(0, self.order), x.new_zeros(())

    def to_data(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        return z.index_select(0, self.back)


class LinearMixing(Ordered):
    r"""A learned linear map x -> P L U x, with a fixed permutation P (Kingma and Dhariwal 2018).

    .. math:: \log|\det P L U| = \textstyle\sum_i \log |U_{ii}|          (theory/flows.md, eq. 14.6)

    It starts as the permutation alone.
    """

    def __init__(self, width: int, *, generator: Generator) -> None:
        super().__init__(rng.permutation(width, generator))
        empty = torch.zeros(width, width, device=generator.device)
        # only the parts off the diagonal count
        self.lower, self.upper = nn.Parameter(empty.clone()), nn.Parameter(empty.clone())
        self.log_diagonal = nn.Parameter(empty.new_zeros(width))

    def factors(self) -> tuple[Tensor, Tensor]:
        """L without the ones on its diagonal, and U with exponentials there."""
        upper = torch.diagonal_scatter(self.upper.triu(1), self.log_diagonal.exp())
        return self.lower.tril(-1), upper

    def to_latent(self, x: Tensor, context: Tensor | None = None) -> Mapped:
        lower, upper = self.factors()
        matrix = torch.addmm(upper, lower, upper).index_select(0, self.order)
        return matrix @ x, self.log_diagonal.sum()

    def to_data(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        lower, upper = self.factors()
        z = z.index_select(0, self.back)
        z = torch.linalg.solve_triangular(lower, z, upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(upper, z, upper=True)


class ActNorm(Layer):
    r"""A shift and a scale for each column, set so that the first data come out standardized, then
    learned.

    .. math:: z = (x - c)\, e^{-s} + m, \qquad \log|\det| = -\textstyle\sum_i s_i
              (theory/flows.md, eq. 14.7)

    The middle c of the first data stays; m is learned in units of z, so that a step of it is as
    large whatever the units of x.
    """

    c: Tensor

    def __init__(self, width: int, *, generator: Generator) -> None:
        super().__init__()
        self.register_buffer("c", torch.zeros(width, 1, device=generator.device))
        self.m = nn.Parameter(torch.zeros(width, 1, device=generator.device))
        self.s = nn.Parameter(torch.zeros(width, 1, device=generator.device))

    @torch.no_grad()
    def fit_to(self, x: Tensor) -> None:
        self.c.copy_(x.mean(1, keepdim=True))
        self.m.zero_()
        self.s.copy_(scale_of(x, 1).log())

    def to_latent(self, x: Tensor, context: Tensor | None = None) -> Mapped:
        return torch.addcdiv(self.m, x - self.c, self.s.exp()), -self.s.sum()

    def to_data(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        return torch.addcmul(self.c, z - self.m, self.s.exp())


class Logit(Layer):
    r"""From bounded to unbounded columns, the determinant counted.

    .. math:: z = \mathrm{logit}(\alpha + (1 - 2\alpha)\, x / K), \qquad
              \log|\det| = \textstyle\sum_i \log \frac{1 - 2\alpha}{K} - \log u_i - \log(1 - u_i)
              (theory/flows.md, eq. 14.9)

    Arguments:
        levels: K, the upper end; x lies between 0 and K.
        alpha: How far the ends are kept from zero and one; with 0 data on the boundary have no
            image, and are refused.

    What lies past the ends, by the little that alpha leaves there, comes back to data as the ends
    themselves.
    """

    def __init__(self, levels: float = 1.0, alpha: float = 1e-6) -> None:
        super().__init__()
        self.levels, self.alpha = levels, alpha

    def to_latent(self, x: Tensor, context: Tensor | None = None) -> Mapped:
        self.check(x)
        share = (1 - 2 * self.alpha) / self.levels
        # u and 1 - u, both precise near zero
        log_u, log_rest = ((self.alpha + share * room).log() for room in (x, self.levels - x))
        slope = torch.log(torch.as_tensor(share, dtype=x.dtype, device=x.device)) - log_u - log_rest
        return log_u - log_rest, slope.sum(0)

    def to_data(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        share = (1 - 2 * self.alpha) / self.levels
        return ((torch.sigmoid(z) - self.alpha) / share).clamp(*self.ends(z))

    def check(self, x: Tensor) -> None:
        """Refuse what has no logit."""
        low, high = self.ends(x)
        outside = ~((x >= low) & (x <= high))  # nan too
        if bool(outside.any()):
            at = outside.nonzero()[0].tolist()
            between = "lie between" if self.alpha > 0 else "lie strictly between"
            raise invalid(
                "Flow",
                "x",
                f"{between} 0 and {self.levels:g} for its logit",
                f"{x[tuple(at)].item():g} in column {at[0]}",
                "Dequantize gray levels, or give alpha above 0.",
            )

    def ends(self, like: Tensor) -> tuple[float, float]:
        """The smallest and largest values with a logit, in the precision of ``like``."""
        if self.alpha > 0:
            return 0.0, self.levels
        return torch.finfo(like.dtype).tiny, self.levels * (1 - torch.finfo(like.dtype).eps / 2)
