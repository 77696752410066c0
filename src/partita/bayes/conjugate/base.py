r"""One interface for every conjugate pair: a prior that becomes its posterior as data come in.

.. math:: p(\theta \mid X, x) = \frac{p(x \mid \theta)\, p(\theta \mid X)}{p(x \mid X)}, \qquad
          \log p(X) = A(\eta_n) - A(\eta_0) + \sum_i \log h(x_i)
          (theory/bayes.md, eqs. 8.1 and 8.2)

A pair holds its hyper-parameters eta as tensors. ``update`` returns a new pair, with the evidence
of everything seen so far, so that a stream in pieces gives what the whole gives at once. Everything
is differentiable in the hyper-parameters.

Letters: n data, * batch of priors (as in torch.distributions, data are ``(n, *batch, *event)``), A
log-normalizer, h base measure.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    runtime_checkable,
)

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.constraints import Constraint

from partita.bayes.distributions import ADD_IDENTITY, POSITIVE_DEFINITE
from partita.core.arguments import check_finite
from partita.errors import invalid

Hyper: TypeAlias = Any  # a number or a tensor when given, a tensor from then on
Real: TypeAlias = Annotated[Hyper, constraints.real]
RealVector: TypeAlias = Annotated[Hyper, constraints.real_vector]
Positive: TypeAlias = Annotated[Hyper, constraints.positive]
PositiveVector: TypeAlias = Annotated[Hyper, constraints.independent(constraints.positive, 1)]
Definite: TypeAlias = Annotated[Hyper, constraints.positive_definite]

IN_WORDS: dict[Constraint, str] = {  # what data must be
    constraints.real: "finite numbers",
    constraints.boolean: "zeros and ones",
    constraints.nonnegative: "at least 0",
    constraints.nonnegative_integer: "counts 0, 1, 2, ...",
}
ONE_MODE = "belong to a posterior with one mode"
USE_MEAN = "Use posterior.mean, or a prior with one."


@runtime_checkable
class Streamed(Protocol):
    """Rows that are read once, in chunks, such as :class:`partita.tables.Rows`."""

    @property
    def width(self) -> int: ...
    @property
    def weight(self) -> np.ndarray | None: ...
    def parts(self) -> Iterable[np.ndarray]: ...


class Moments(NamedTuple):
    """Number of rows, their mean and their scatter about it, all weighted."""

    n: Tensor  # (*)
    mean: Tensor  # (*, *event)
    scatter: Tensor  # (*) or (*, D, D)

    def joined(self, other: "Moments") -> "Moments":
        """Those of vectors of both (Chan, Golub and LeVeque 1983)."""
        n, apart = self.n + other.n, other.mean - self.mean
        share = other.n / torch.where(n > 0, n, 1)
        between = (self.n * share)[..., None, None] * apart[..., :, None] * apart[..., None, :]
        mean = self.mean + share[..., None] * apart
        return Moments(n, mean, self.scatter + other.scatter + between)


@dataclass(frozen=True, eq=False, kw_only=True)
class Hyperparameters:
    """A prior and what data have made of it; subclasses are frozen dataclasses whose fields are
    hyper-parameters, with their constraints in their types.
    """

    log_evidence: Hyper = 0.0  # log p of the data seen so far, (*)

    def __post_init__(self) -> None:
        """Hyper-parameters become tensors of one device and dtype (float64 where only numbers are
        given) and are checked.
        """
        given = {name: getattr(self, name) for name in (*_limits(type(self)), "log_evidence")}
        like = next(
            (v for v in given.values() if isinstance(v, Tensor) and v.is_floating_point()),
            torch.zeros((), dtype=torch.float64),
        )
        for name, value in given.items():
            object.__setattr__(self, name, as_numbers(self.owner, name, value, like))
        self.check_shapes()
        for name, limit in self.constraints.items():
            check_hyper(self.owner, name, getattr(self, name).detach(), limit)

    @property
    def constraints(self) -> dict[str, Constraint]:
        """What every hyper-parameter must satisfy, by field."""
        return _limits(type(self))

    @property
    def owner(self) -> str:
        """For messages."""
        return type(self).__name__

    def check_shapes(self) -> None:
        """Refuse hyper-parameters whose shapes do not go together."""


@cache
def _limits(owner: type[Hyperparameters]) -> dict[str, Constraint]:
    metadata = {field.name: getattr(field.type, "__metadata__", ()) for field in fields(owner)}
    return {name: limits[0] for name, limits in metadata.items() if limits}


@dataclass(frozen=True, eq=False, kw_only=True)
class Conjugate(Hyperparameters, ABC):
    """A conjugate pair: a prior whose posterior is of the same family."""

    event_dim: ClassVar[int] = 0  # of one datum
    data: ClassVar[Constraint] = constraints.real  # what the numbers of a datum must satisfy

    def update(self, data: ArrayLike | Streamed, weight: ArrayLike | None = None) -> Self:
        """The pair after ``data``, ``(n, *batch, *event)`` or ``(n, *event)`` for the whole batch.

        Arguments:
            data: Observations x; :class:`partita.tables.Rows`, which may lie on disk, are read in
                chunks.
            weight: How often each datum counts, ``(n, *batch)``, not negative; ones if not given.
        """
        if isinstance(data, Streamed):
            return self._streamed(data, weight)
        x = self._checked(data)
        w = row_weights(f"{self.owner}.update", weight, x[(..., *[0] * self.event_dim)])
        w = w.reshape(len(w), *[1] * self.like.dim()) if w.dim() == 1 else w
        after = self.absorb(x, w)
        gain = after.log_normalizer() - self.log_normalizer() + self.log_base(x, w)
        return replace(after, log_evidence=self.log_evidence + gain)

    @property
    @abstractmethod
    def posterior(self) -> Distribution:
        """p(theta | data so far); the prior before any."""

    @property
    @abstractmethod
    def predictive(self) -> Distribution:
        """p(x | data so far) of the next datum, theta integrated out."""

    @property
    def map(self) -> Tensor:
        """The most probable theta, in the coordinates of ``posterior``."""
        mode = self.posterior.mode
        if not torch.isfinite(mode).all():
            raise invalid(self.owner, "map", ONE_MODE, "a density that has none", USE_MEAN)
        return mode

    @property
    def like(self) -> Tensor:
        """A tensor whose shape is that of the batch and whose device and dtype data take."""
        parts = [
            getattr(self, name)[(..., *[0] * limit.event_dim)]
            for name, limit in self.constraints.items()
        ]
        return torch.stack(torch.broadcast_tensors(*parts)).sum(0)

    @abstractmethod
    def absorb(self, x: Tensor, w: Tensor) -> Self:
        """The hyper-parameters after checked data ``(n, *batch, *event)`` with weights ``(n,
        *batch)``.
        """

    @abstractmethod
    def log_normalizer(self) -> Tensor:
        """A(eta), up to what prior and posterior share."""

    def log_base(self, x: Tensor, w: Tensor) -> Tensor:
        """What the evidence has besides the normalizers: the sum of log h(x)."""
        return torch.zeros_like(self.like)

    def check_columns(self, x: Tensor) -> None:
        """Refuse vectors of another width than the prior's."""

    def _streamed(self, rows: Streamed, weight: ArrayLike | None) -> Self:
        """The pair after rows that are read once, in chunks."""
        after, start = self, 0
        weight = rows.weight if weight is None else weight
        w = None if weight is None else np.asarray(weight)
        alone = self.event_dim + self.like.dim() == 0 and rows.width == 1  # one column of numbers
        for part in rows.parts():
            stop = start + len(part)
            x = part[:, 0] if alone else part
            after = after.update(x, None if w is None else w[start:stop])
            start = stop
        return after

    def _checked(self, data: ArrayLike) -> Tensor:
        x = as_numbers(f"{self.owner}.update", "data", data, self.like)
        check_finite(f"{self.owner}.update", "data", x)
        if x.dim() < 1 + self.event_dim:
            allowed = f"have shape (n, {'D' if self.event_dim else '*batch'})"
            raise invalid(f"{self.owner}.update", "data", allowed, tuple(x.shape))
        if x.dim() == 1 + self.event_dim:
            # the same data for every member of the batch
            x = x.reshape(len(x), *[1] * self.like.dim(), *x.shape[1:])
        try:
            torch.broadcast_shapes(x.shape[1 : x.dim() - self.event_dim], self.like.shape)
        except RuntimeError:
            sizes = ", ".join(["n", *map(str, self.like.shape), *["D"] * self.event_dim])
            allowed = f"have shape ({sizes}) to match the priors"
            raise invalid(f"{self.owner}.update", "data", allowed, tuple(x.shape)) from None
        self.check_columns(x)
        wrong = x[~self.data.check(x)]
        if len(wrong):
            got = f"{wrong[0].item():g}"
            raise invalid(f"{self.owner}.update", "data", f"be {IN_WORDS[self.data]}", got)
        return x


def row_weights(owner: str, weight: ArrayLike | None, like: Tensor) -> Tensor:
    """How often each row of ``like`` counts, finite and not negative; ones if not given."""
    if weight is None:
        return torch.ones_like(like)
    w = as_numbers(owner, "weight", weight, like)
    check_finite(owner, "weight", w)
    if w.dim() > like.dim() or w.shape[:1] != like.shape[:1]:
        raise invalid(owner, "weight", f"have one value per row, {len(like)}", tuple(w.shape))
    if (w < 0).any():
        raise invalid(owner, "weight", "not be negative", f"{w.min().item():g}")
    return w


def scalar_moments(x: Tensor, w: Tensor) -> Moments:
    """Weighted count, mean and sum of squares about the mean, over the first dimension; the mean of
    nothing is 0.
    """
    n = w.sum(0)
    mean = (w * x).sum(0) / torch.where(n > 0, n, 1)
    return Moments(n.expand(mean.shape), mean, (w * (x - mean).square()).sum(0))


def vector_moments(x: Tensor, w: Tensor) -> Moments:
    """The same of vectors ``(n, *, D)``, with the scatter matrix ``(*, D, D)``."""
    n = w.sum(0)
    mean = torch.einsum("n...,n...d->...d", w, x) / torch.where(n > 0, n, 1)[..., None]
    return Moments(n.expand(mean.shape[:-1]), mean, scatter_matrix(x - mean, w))


def scatter_matrix(x: Tensor, w: Tensor) -> Tensor:
    """Sum of w x x', ``(n, *, D), (n, *) -> (*, D, D)``."""
    # (*, n, D)
    x = x.expand(*torch.broadcast_shapes(x.shape[:-1], w.shape), x.shape[-1]).movedim(0, -2)
    return (w.movedim(0, -1)[..., None] * x).mT @ x


def as_numbers(owner: str, parameter: str, value: ArrayLike, like: Tensor) -> Tensor:
    """A tensor with the device and dtype of ``like``; what holds no numbers is named."""
    try:
        return torch.as_tensor(value, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise invalid(owner, parameter, "be numbers", repr(value)[:60]) from None


def check_hyper(owner: str, name: str, value: Tensor, limit: Constraint) -> None:
    """A hyper-parameter is finite and satisfies its constraint."""
    check_finite(owner, name, value, remedy="")
    fine = limit.check(value)
    if not fine.all():
        if limit.event_dim == 2:
            raise invalid(owner, name, POSITIVE_DEFINITE, "another matrix", ADD_IDENTITY)
        got = value[tuple((~fine).nonzero()[0].tolist())].tolist()
        raise invalid(owner, name, f"be above {getattr(limit, 'lower_bound', 0.0):g}", got)
