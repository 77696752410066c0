r"""Distributions that torch lacks: what remains of a likelihood when its conjugate parameter is
integrated out.

.. math:: p(x) = \int p(x \mid \theta)\, p(\theta)\, d\theta          (theory/bayes.md, eq. 8.3)

The multivariate t is a Gaussian whose precision is Wishart, the Dirichlet-multinomial a multinomial
whose probabilities are Dirichlet, the Pareto-uniform a uniform whose end is Pareto.

Letters: D width, K categories.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from torch import Size, Tensor
from torch.distributions import Chi2, Dirichlet, Distribution, Multinomial, constraints
from torch.distributions import Wishart as TorchWishart
from torch.distributions.constraints import Constraint
from torch.distributions.utils import broadcast_all

from partita.errors import invalid

POSITIVE_DEFINITE = "be symmetric and positive definite"
ADD_IDENTITY = "Add a small multiple of the identity."


class Parametric(Distribution):
    """A distribution that is made of tensors by the names of ``arg_constraints``."""

    arg_constraints: ClassVar[dict[str, Constraint]]  # type: ignore[assignment]
    support: ClassVar[Constraint]  # type: ignore[assignment]
    has_rsample = True

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Self:
        expanded = {}
        for name, limit in self.arg_constraints.items():
            value = getattr(self, name)
            event = value.shape[value.dim() - limit.event_dim :]
            expanded[name] = value.expand(*batch_shape, *event)
        return type(self)(**expanded, validate_args=False)

    def _check(self, value: Tensor) -> None:
        if self._validate_args:
            self._validate_sample(value)


class MultivariateStudentT(Parametric):
    r"""The multivariate t with ``df`` degrees of freedom, location ``loc`` and scale matrix
    :math:`L L^\top`.

    .. math:: p(x) \propto \big(1 + \tfrac1\nu (x - \mu)^\top (L L^\top)^{-1} (x - \mu)\big)^{-(\nu
              + D)/2}

    Arguments:
        df: :math:`\nu`, ``(*)``.
        loc: :math:`\mu`, ``(*, D)``.
        scale_tril: The Cholesky factor L, ``(*, D, D)``; or give ``scale_matrix``.

    >>> t = MultivariateStudentT(3.0, torch.zeros(2), scale_matrix=torch.eye(2))
    >>> round(
    ...     float(t.log_prob(torch.zeros(2))), 4
    ... )  # 1 / (2 pi) at the center in two dimensions, whatever df
    -1.8379
    """

    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real_vector,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector

    def __init__(
        self,
        df: Tensor | float,
        loc: Tensor,
        scale_tril: Tensor | None = None,
        *,
        scale_matrix: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if (scale_tril is None) == (scale_matrix is None):
            choice = "one of scale_tril and scale_matrix"
            raise invalid("MultivariateStudentT", choice, "be given", "both or neither")
        tril = scale_tril
        if tril is None:
            tril = cholesky("MultivariateStudentT", "scale_matrix", scale_matrix)
        df = torch.as_tensor(df, dtype=tril.dtype, device=tril.device)
        batch = torch.broadcast_shapes(df.shape, loc.shape[:-1], tril.shape[:-2])
        self.df = df.expand(batch)
        self.loc = loc.expand(*batch, -1)
        self.scale_tril = tril.expand(*batch, -1, -1)
        super().__init__(Size(batch), loc.shape[-1:], validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        half, D = 0.5 * self.df, self.event_shape[0]
        constant = (
            torch.lgamma(half + D / 2)
            - torch.lgamma(half)
            - 0.5 * D * torch.log(self.df * math.pi)
            - half_log_det(self.scale_tril)
        )
        away = (value - self.loc)[..., None]
        scaled = torch.linalg.solve_triangular(self.scale_tril, away, upper=False)
        square = scaled[..., 0].square().sum(-1)
        return constant - (half + D / 2) * torch.log1p(square / self.df)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(Size(sample_shape))
        z = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        shrink = torch.sqrt(Chi2(self.df).rsample(Size(sample_shape)) / self.df)
        return self.loc + (self.scale_tril @ z[..., None])[..., 0] / shrink[..., None]

    @property
    def mean(self) -> Tensor:
        """The location; nan where ``df`` is at most 1, for then there is none."""
        return torch.where(self.df[..., None] > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def scale_matrix(self) -> Tensor:
        """L L'."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def covariance_matrix(self) -> Tensor:
        """df / (df - 2) times the scale matrix; infinite up to ``df`` = 2, and nan up to 1."""
        infinite = torch.where(self.df > 1, math.inf, math.nan)
        factor = torch.where(self.df > 2, self.df / (self.df - 2), infinite)
        return factor[..., None, None] * self.scale_matrix

    @property
    def variance(self) -> Tensor:
        return self.covariance_matrix.diagonal(dim1=-2, dim2=-1)


class DirichletMultinomial(Parametric):
    r"""Counts of ``total_count`` draws whose probabilities are Dirichlet: the multivariate Polya
    distribution.

    .. math:: p(x) = \frac{n!\; \Gamma(A)}{\Gamma(n + A)} \prod_k \frac{\Gamma(x_k +
              \alpha_k)}{x_k!\; \Gamma(\alpha_k)},
              \qquad A = \sum_k \alpha_k

    Two categories give the beta-binomial.

    Arguments:
        total_count: n, the same for all of the batch. As in torch's ``Multinomial``, ``log_prob``
            reads n off each value, so that rows of other totals can be scored with
            ``validate_args=False``.
        concentration: :math:`\alpha`, ``(*, K)``.

    >>> DirichletMultinomial(1, torch.tensor([1.0, 3.0])).log_prob(torch.tensor([0.0, 1.0])).exp()
    tensor(0.7500)
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    has_rsample = False

    def __init__(
        self, total_count: int, concentration: Tensor, *, validate_args: bool | None = None
    ) -> None:
        self.total_count, self.concentration = total_count, concentration
        super().__init__(
            concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args
        )

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:  # type: ignore[override]
        return constraints.multinomial(self.total_count)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        n, A = value.sum(-1), self.concentration.sum(-1)
        cells = (
            torch.lgamma(value + self.concentration)
            - torch.lgamma(self.concentration)
            - torch.lgamma(value + 1)
        )
        return torch.lgamma(n + 1) + torch.lgamma(A) - torch.lgamma(n + A) + cells.sum(-1)

    @torch.no_grad()
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        probs = Dirichlet(self.concentration).sample(Size(sample_shape))
        return Multinomial(self.total_count, probs).sample()

    def expand(
        self, batch_shape: Sequence[int], _instance: object = None
    ) -> "DirichletMultinomial":
        expanded = self.concentration.expand(*batch_shape, *self.event_shape)
        return DirichletMultinomial(self.total_count, expanded, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def variance(self) -> Tensor:
        A = self.concentration.sum(-1, keepdim=True)
        p = self.concentration / A
        return self.total_count * p * (1 - p) * (self.total_count + A) / (1 + A)


class ParetoUniform(Parametric):
    r"""A uniform on [0, theta] whose end theta is Pareto: flat up to ``scale``, a Pareto tail
    beyond it.

    .. math:: p(x) = \frac{k}{(k + 1)\, m} \, \big(\max(1, x / m)\big)^{-(k + 1)}, \qquad x \ge 0

    Arguments:
        scale: m, the smallest end possible.
        alpha: k, the tail's index.
    """

    arg_constraints = {"scale": constraints.positive, "alpha": constraints.positive}
    support = constraints.nonnegative

    def __init__(
        self, scale: Tensor | float, alpha: Tensor | float, *, validate_args: bool | None = None
    ) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        super().__init__(self.scale.shape, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        k, m = self.alpha, self.scale
        flat = torch.log(k) - torch.log1p(k) - torch.log(m)
        return flat - (k + 1) * torch.log((value / m).clamp_min(1))

    def cdf(self, value: Tensor) -> Tensor:
        k, ratio = self.alpha, value / self.scale
        tail = k + 1 - ratio.clamp_min(1) ** -k
        return torch.where(ratio < 1, k * ratio.clamp_min(0), tail) / (k + 1)

    def icdf(self, value: Tensor) -> Tensor:
        k, left = self.alpha, value * (self.alpha + 1)
        return self.scale * torch.where(left < k, left / k, (k + 1 - left.maximum(k)) ** (-1 / k))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape, like = self._extended_shape(Size(sample_shape)), self.scale
        return self.icdf(torch.rand(shape, dtype=like.dtype, device=like.device))

    @property
    def mean(self) -> Tensor:
        """Half the mean end; infinite up to ``alpha`` = 1."""
        return torch.where(
            self.alpha > 1, 0.5 * self.alpha * self.scale / (self.alpha - 1), math.inf
        )


class Wishart(TorchWishart):
    """torch's Wishart, drawn by Bartlett's decomposition as it stands: torch takes every proper
    draw for a singular one and warns.
    """

    def rsample(
        self, sample_shape: Sequence[int] = (), max_try_correction: int | None = None
    ) -> Tensor:
        return self._bartlett_sampling(Size(sample_shape))


def cholesky(owner: str, parameter: str, matrix: Tensor | None) -> Tensor:
    """The Cholesky factor of a symmetric positive-definite matrix, ``(*, D, D)``; anything else is
    refused by name.
    """
    if matrix is None or matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
        shape = None if matrix is None else tuple(matrix.shape)
        raise invalid(owner, parameter, "be a square matrix", f"shape {shape}")
    tril, info = torch.linalg.cholesky_ex(matrix)
    entries = matrix.detach()
    rounding = 1e-5 * entries.abs().amax((-2, -1), keepdim=True)
    symmetric = ((entries - entries.mT).abs() <= rounding).all()
    if not symmetric or info.any() or not torch.isfinite(tril).all():
        got = "a matrix that is not symmetric" if not symmetric else "a singular or indefinite one"
        raise invalid(owner, parameter, POSITIVE_DEFINITE, got, ADD_IDENTITY)
    return tril


def half_log_det(tril: Tensor) -> Tensor:
    """Half the log determinant of L L'."""
    return tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
