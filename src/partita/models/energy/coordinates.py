r"""Coordinates without bounds for targets that have some, and the quantiles of a prior.

.. math:: \log f_u(u) = \log f\big(T(u)\big) + \log \left| \det \frac{\partial T}{\partial u}
          \right|, \qquad T_i(u) = Q_i\big(\Phi(u_i)\big)
          (theory/evidence.md, eq. 60.1)

Chains move in u, which is any real vector. A coordinate between two ends is a logistic function of
its u, one above an end an exponential. Under a prior with quantile functions Q_i every coordinate
of u is a standard normal number, and the density of u is the likelihood alone times that.

Letters: n rows, D coordinates.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from scipy import stats
from torch import Tensor, distributions
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from partita.core.support import Interval, Product, Real, Support
from partita.errors import invalid

FARTHEST = 37.0  # deviations of a normal, beyond which float64 has no tail probability


class Coordinates(ABC):
    """A smooth, increasing map T of each real coordinate u to x."""

    width: int

    @abstractmethod
    def outer(self, u: Tensor) -> Tensor:
        """x = T(u), ``(*, D) -> (*, D)``."""

    @abstractmethod
    def inner(self, x: Tensor) -> Tensor:
        """The u of x, ``(*, D) -> (*, D)``."""

    def log_jacobian(self, u: Tensor) -> Tensor:
        """log |dT/du|, ``(*, D) -> (*)``; of a prior, whose normal density takes its place, 0."""
        return torch.zeros(u.shape[:-1], dtype=u.dtype, device=u.device)

    def inside(self, x: Tensor) -> Tensor:
        """Whether rows are finite, and were not rounded onto an end, ``(*, D) -> (*)``."""
        return x.isfinite().all(-1)


class Unbounded(Coordinates):
    """x is u."""

    def __init__(self, width: int) -> None:
        self.width = width

    def outer(self, u: Tensor) -> Tensor:
        return u

    def inner(self, x: Tensor) -> Tensor:
        return x


class Bounded(Coordinates):
    """Coordinates between ends, ``(D,)`` each, any of which may be infinite."""

    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high, self.width = low, high, len(low)
        below, above = low.isfinite(), high.isfinite()
        self.both, self.from_low, self.from_high = below & above, below & ~above, ~below & above

    def outer(self, u: Tensor) -> Tensor:
        x = torch.where(self.both, self._between(u), u)
        x = torch.where(self.from_low, self._finite(self.low) + u.exp(), x)
        return torch.where(self.from_high, self._finite(self.high) - (-u).exp(), x)

    def inner(self, x: Tensor) -> Tensor:
        low, high = self._finite(self.low), self._finite(self.high)
        share = torch.where(self.both, (x - low) / (high - low), 0.5)
        u = torch.where(self.both, torch.logit(share), x)
        u = torch.where(self.from_low, torch.where(self.from_low, x - low, 1.0).log(), u)
        return torch.where(self.from_high, -torch.where(self.from_high, high - x, 1.0).log(), u)

    def log_jacobian(self, u: Tensor) -> Tensor:
        length = torch.where(self.both, self.high - self.low, 1.0).log()
        each = torch.where(
            self.both, length + functional.logsigmoid(u) + functional.logsigmoid(-u), 0.0
        )
        each = torch.where(self.from_low, u, each)
        return torch.where(self.from_high, -u, each).sum(-1)

    def inside(self, x: Tensor) -> Tensor:
        return (x.isfinite() & (x > self.low) & (x < self.high)).all(-1)

    def _between(self, u: Tensor) -> Tensor:
        low, high = self._finite(self.low), self._finite(self.high)
        return torch.where(
            u < 0, low + (high - low) * torch.sigmoid(u), high - (high - low) * torch.sigmoid(-u)
        )

    @staticmethod
    def _finite(end: Tensor) -> Tensor:
        return torch.where(end.isfinite(), end, 0.0)


def coordinates_of(support: Support) -> Coordinates:
    """Coordinates without bounds for a support whose parts are all real or intervals."""
    parts = support.parts if isinstance(support, Product) else (support,)
    if all(isinstance(part, Real) for part in parts):
        return Unbounded(support.width)
    ends = [
        (part.low, part.high) if isinstance(part, Interval) else (-math.inf, math.inf)
        for part in parts
        for _ in range(part.width)
    ]
    low, high = torch.tensor(ends, dtype=torch.float64).unbind(-1)
    return Bounded(low, high)


@runtime_checkable
class Marginal(Protocol):
    """What is used of a frozen distribution of SciPy."""

    def ppf(self, q: np.ndarray) -> np.ndarray: ...
    def isf(self, q: np.ndarray) -> np.ndarray: ...
    def cdf(self, x: np.ndarray) -> np.ndarray: ...
    def sf(self, x: np.ndarray) -> np.ndarray: ...
    def logpdf(self, x: np.ndarray) -> np.ndarray: ...


class Quantiles(torch.autograd.Function):
    """Q(Phi(u)) of one marginal, and its slope phi(u) / p(x), in NumPy."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, marginal: Marginal) -> Tensor:  # type: ignore[override]
        numbers = u.detach().double().cpu().numpy().clip(-FARTHEST, FARTHEST)
        upper = numbers > 0  # from the nearer end, where probabilities keep their digits
        tail = stats.norm.cdf(-np.abs(numbers))
        with np.errstate(all="ignore"):  # far out there may be no density left
            x = np.where(upper, marginal.isf(tail), marginal.ppf(tail))
            slope = np.exp(stats.norm.logpdf(numbers) - marginal.logpdf(x))
        ctx.save_for_backward(torch.as_tensor(slope).to(u))
        return torch.as_tensor(x).to(u)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (slope,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return grad * torch.nan_to_num(slope), None


class Prior(Coordinates):
    """Independent marginals, one a coordinate: frozen continuous distributions of SciPy, or
    univariate ones of torch.
    """

    def __init__(self, owner: str, marginals: Sequence[object]) -> None:
        if not isinstance(marginals, Sequence) or isinstance(marginals, str) or not marginals:
            allowed = "be a list of distributions of torch.distributions or scipy.stats"
            raise invalid(owner, "prior", allowed, repr(marginals))
        self.marginals = [m for i, one in enumerate(marginals) for m in _univariate(owner, i, one)]
        self.width = len(self.marginals)

    def outer(self, u: Tensor) -> Tensor:
        return torch.stack([_mapped(u[..., i], m) for i, m in enumerate(self.marginals)], -1)

    def inner(self, x: Tensor) -> Tensor:
        columns = []
        for i, marginal in enumerate(self.marginals):
            at = x[..., i].detach().double().cpu().numpy()
            below, above = marginal.cdf(at), marginal.sf(at)
            u = np.where(below < above, stats.norm.ppf(below), stats.norm.isf(above))
            columns.append(torch.as_tensor(u).to(x))
        return torch.stack(columns, -1).clamp(-FARTHEST, FARTHEST)


def _mapped(u: Tensor, marginal: Marginal) -> Tensor:
    """One coordinate; normal and uniform marginals without a detour through NumPy."""
    kind = getattr(getattr(marginal, "dist", None), "name", "")
    if kind in ("norm", "uniform"):
        loc, scale = (float(number) for number in _location(marginal))
        unit = u if kind == "norm" else torch.special.ndtr(u)
        return loc + scale * unit
    return Quantiles.apply(u, marginal)  # type: ignore[return-value]


def _location(marginal: Any) -> tuple[float, float]:
    _, loc, scale = marginal.dist._parse_args(*marginal.args, **marginal.kwds)
    return loc, scale


# what a univariate distribution of torch is in SciPy
IN_SCIPY: dict[str, Callable[[SimpleNamespace], Any]] = {
    "Normal": lambda d: stats.norm(d.loc, d.scale),
    "Uniform": lambda d: stats.uniform(d.low, d.high - d.low),
    "HalfNormal": lambda d: stats.halfnorm(0, d.scale),
    "HalfCauchy": lambda d: stats.halfcauchy(0, d.scale),
    "Cauchy": lambda d: stats.cauchy(d.loc, d.scale),
    "StudentT": lambda d: stats.t(d.df, d.loc, d.scale),
    "Laplace": lambda d: stats.laplace(d.loc, d.scale),
    "LogNormal": lambda d: stats.lognorm(d.scale, scale=math.exp(d.loc)),
    "Exponential": lambda d: stats.expon(0, 1 / d.rate),
    "Gamma": lambda d: stats.gamma(d.concentration, scale=1 / d.rate),
    "Chi2": lambda d: stats.chi2(d.df),
    "InverseGamma": lambda d: stats.invgamma(d.concentration, scale=d.rate),
    "Beta": lambda d: stats.beta(d.concentration1, d.concentration0),
    "Gumbel": lambda d: stats.gumbel_r(d.loc, d.scale),
    "Weibull": lambda d: stats.weibull_min(d.concentration, scale=d.scale),
    "Pareto": lambda d: stats.pareto(d.alpha, scale=d.scale),
}


def _univariate(owner: str, index: int, one: object) -> list[Marginal]:
    """The marginals that one entry of a prior stands for: a batch of torch's is several."""
    if isinstance(one, distributions.Independent):
        one = one.base_dist
    if isinstance(one, distributions.Distribution):
        build = IN_SCIPY.get(type(one).__name__)
        if build is None or one.event_shape:
            got = f"{type(one).__name__} in place {index}"
            remedy = "Give one distribution for each coordinate, or one of scipy.stats."
            raise invalid(owner, "prior", f"be made of {', '.join(IN_SCIPY)}", got, remedy)
        return [build(_at(one, i)) for i in range(one.batch_shape.numel())]
    if isinstance(one, Marginal):
        return [one]
    got = f"{type(one).__name__} in place {index}"
    allowed = "be a list of continuous distributions of torch.distributions or scipy.stats"
    raise invalid(owner, "prior", allowed, got)


def _at(batch: distributions.Distribution, i: int) -> SimpleNamespace:
    """The parameters of one of a batch, as numbers."""
    values = {
        name: getattr(batch, name).detach().double().reshape(-1) for name in batch.arg_constraints
    }
    return SimpleNamespace(**{name: float(value[i % len(value)]) for name, value in values.items()})
