r"""Visible units as exponential families: what an RBM needs to know about the kind of its visible
side, and the reference distribution of such units, with known log Z and exact draws, where
annealing starts.

.. math:: p(x \mid \eta) = \exp\big(\eta \cdot t(x) - A(\eta)\big)
          (theory/energy.md, eq. 2.1)

The hidden units add W h to the first natural parameter, and annealing interpolates all of them
linearly from the reference, so the same lines serve every kind. Categories enter as one-hot rows,
one after the other.

Letters: D visible, R rows of natural parameters (2 for Gaussian, else 1), K states of a category.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import torch
from torch import Generator, Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Normal
from torch.nn import functional

from partita.core import rng, support
from partita.core.arguments import one_of
from partita.core.protocols import Data
from partita.core.support import Binary, Real, Support
from partita.errors import invalid

Natural = Sequence[Tensor]

# of a fitted normal distribution
Covariance: TypeAlias = Annotated[str, one_of("full", "diagonal")]
MOMENT_ROWS = 10_000  # rows drawn to estimate base rates


def weighted_sum(x: Tensor, weights: Tensor) -> Tensor:
    """x . w, ``(*, D), (D,) -> (*)``; weights ``(C, D)`` are those of each chain."""
    return x @ weights if weights.dim() == 1 else torch.linalg.vecdot(x, weights)


class Units(ABC):
    """One kind of visible unit; natural parameters are R tensors that broadcast to ``(*, P)`` with
    P = D, or D K for categories.
    """

    name: str
    states: int = 1  # K of a category

    @abstractmethod
    def support(self, width: int) -> Support:
        """Where D units live."""

    def statistic(self, x: Tensor) -> Tensor:
        """What W multiplies, ``(*, D) -> (*, P)``."""
        return x

    def natural(self, b: Tensor, log_sigma: Tensor | None) -> Natural:
        """Natural parameters from those of the model."""
        return (b,)

    @abstractmethod
    def from_moments(self, mean: Tensor, variance: Tensor) -> Natural:
        """Natural parameters from base rates."""

    @abstractmethod
    def from_product(self, table: Tensor) -> Natural:
        """Natural parameters from log-probabilities of the values, or means and variances, ``(*, D,
        2 or K)``.
        """

    def pairing(self, x: Tensor, eta: Natural) -> Tensor:
        """eta . t(x), ``(*, D) -> (*)``."""
        return weighted_sum(self.statistic(x), eta[0])

    @abstractmethod
    def log_normalizer(self, eta: Natural) -> Tensor:
        """A(eta), ``(*)``."""

    @abstractmethod
    def distribution(self, eta: Natural) -> Distribution:
        """p(x | eta)."""

    @abstractmethod
    def mode(self, eta: Natural) -> Tensor:
        """The likeliest x, ``(*, D)``."""


class BernoulliUnits(Units):
    """x in {0, 1}: t(x) = x, A = sum softplus(eta)."""

    name = "bernoulli"

    def support(self, width: int) -> Support:
        return Binary(width)

    def from_moments(self, mean: Tensor, variance: Tensor) -> Natural:
        return (torch.logit(mean),)

    def from_product(self, table: Tensor) -> Natural:
        return (table[..., 1] - table[..., 0],)

    def log_normalizer(self, eta: Natural) -> Tensor:
        return functional.softplus(eta[0]).sum(-1)

    def distribution(self, eta: Natural) -> Distribution:
        return Bernoulli(probs=torch.sigmoid(eta[0]), validate_args=False)

    def mode(self, eta: Natural) -> Tensor:
        return (eta[0] > 0).to(eta[0])


class GaussianUnits(Units):
    r"""x real: t(x) = (x, x^2), eta = (b, -1/2) / sigma^2, so that x given h has mean b + sigma^2 W
    h and deviation sigma.
    """

    name = "gaussian"

    def support(self, width: int) -> Support:
        return Real(width)

    def natural(self, b: Tensor, log_sigma: Tensor | None) -> Natural:
        assert log_sigma is not None
        precision = torch.exp(-2 * log_sigma)
        return b * precision, -0.5 * precision

    def from_moments(self, mean: Tensor, variance: Tensor) -> Natural:
        return mean / variance, -0.5 / variance

    def from_product(self, table: Tensor) -> Natural:
        return self.from_moments(table[..., 0], table[..., 1])

    def pairing(self, x: Tensor, eta: Natural) -> Tensor:
        return weighted_sum(x, eta[0]) + weighted_sum(x.square(), eta[1])

    def log_normalizer(self, eta: Natural) -> Tensor:
        return (
            0.5 * math.log(2 * math.pi)
            - 0.5 * torch.log(-2 * eta[1])
            - eta[0].square() / (4 * eta[1])
        ).sum(-1)

    def distribution(self, eta: Natural) -> Distribution:
        variance = -0.5 / eta[1]
        return Normal(eta[0] * variance, variance.sqrt(), validate_args=False)

    def mode(self, eta: Natural) -> Tensor:
        return -0.5 * eta[0] / eta[1]


class CategoricalUnits(Units):
    """x in {0, ..., K-1}: t(x) is its one-hot row, A = sum over sites of logsumexp(eta)."""

    name = "categorical"

    def __init__(self, states: int) -> None:
        self.states = states

    def statistic(self, x: Tensor) -> Tensor:
        return (x[..., None] == torch.arange(self.states, device=x.device)).to(x.dtype).flatten(-2)

    def support(self, width: int) -> Support:
        return support.Categorical(width, self.states)

    def from_moments(self, mean: Tensor, variance: Tensor) -> Natural:
        return (torch.log(mean),)

    def from_product(self, table: Tensor) -> Natural:
        return (table.flatten(-2),)

    def log_normalizer(self, eta: Natural) -> Tensor:
        return self._by_site(eta).logsumexp(-1).sum(-1)

    def distribution(self, eta: Natural) -> Distribution:
        return Categorical(logits=self._by_site(eta), validate_args=False)

    def mode(self, eta: Natural) -> Tensor:
        return self._by_site(eta).argmax(-1).to(eta[0])

    def _by_site(self, eta: Natural) -> Tensor:
        return eta[0].unflatten(-1, (-1, self.states))


UNITS = ("bernoulli", "gaussian", "categorical")


def units_named(name: str, states: int | None) -> Units:
    """Visible units by name; only categories have a number of states."""
    if (states is not None) != (name == "categorical"):
        raise invalid(
            "RBM",
            "states",
            "be given for categorical visible units, and only for them",
            f"{states} for {name} ones",
        )
    if states is not None:
        return CategoricalUnits(states)
    return BernoulliUnits() if name == "bernoulli" else GaussianUnits()


@dataclass(frozen=True)
class UnitsReference:
    """Independent visible units, with ``offset`` nats of hidden states that see no input (log 2 for
    each).
    """

    units: Units
    eta: Natural  # R times (D,)
    offset: float

    @property
    def log_z(self) -> Tensor:
        return self.units.log_normalizer(self.eta) + self.offset

    def free_energy(self, x: Tensor) -> Tensor:
        return -self.units.pairing(x, self.eta) - self.offset

    def draw(self, n: int, *, generator: Generator) -> Tensor:
        return rng.draw(self.units.distribution(self.eta), generator, (n,))


@dataclass(frozen=True)
class FactorizedReference:
    """Independent coordinates over a finite list of values, with ``offset`` nats of hidden states
    that see no input.
    """

    values: Tensor  # (K,)
    logits: Tensor  # (D, K), or (C, D, K) where each chain has its own
    offset: float = 0.0

    @property
    def log_z(self) -> Tensor:
        return torch.logsumexp(self.logits, -1).sum(-1) + self.offset

    def free_energy(self, x: Tensor) -> Tensor:
        if len(self.values) == 2:  # linear in x, so that it has a slope
            low, high = self.values
            first, second = self.logits.unbind(-1)
            return (
                -weighted_sum(x - low, (second - first) / (high - low))
                - first.sum(-1)
                - self.offset
            )
        return -(self._one_hot(x) * self.logits).sum((-2, -1)) - self.offset

    def draw(self, n: int, *, generator: Generator) -> Tensor:
        edges = torch.softmax(self.logits, -1).cumsum(-1)[:, :-1]
        u = rng.uniform((n, len(self.logits), 1), self.logits, generator)
        return self.values[(u > edges).sum(-1)]

    def _one_hot(self, x: Tensor) -> Tensor:
        return (x[..., None] == self.values).to(self.logits.dtype)


@dataclass(frozen=True)
class GaussianReference:
    r"""A normal distribution, with ``offset`` nats of hidden states that see no input
    (theory/latent.md, eq. 30.6).

    .. math:: F_0(x) = \tfrac12 \| R (x - m) \|^2 - o, \qquad \log Z_0 = \tfrac D2 \log 2\pi - \log
              |\det R| + o
    """

    mean: Tensor  # m, (D,)
    whitening: Tensor  # R, (D, D), lower triangular
    offset: float = 0.0

    @property
    def log_z(self) -> Tensor:
        return (
            0.5 * len(self.mean) * math.log(2 * math.pi)
            - self.whitening.diagonal().log().sum()
            + self.offset
        )

    def free_energy(self, x: Tensor) -> Tensor:
        u = self.whiten(x)
        # few operations, for gradient samplers come here at every step
        energy = 0.5 * torch.linalg.vecdot(u, u)
        return energy - self.offset if self.offset else energy

    def slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """F_0 and its gradient R'R (x - m)."""
        u = self.whiten(x)
        return 0.5 * torch.linalg.vecdot(u, u) - self.offset, u @ self.whitening

    def draw(self, n: int, *, generator: Generator) -> Tensor:
        return self.color(rng.normal((n, len(self.mean)), self.mean, generator))

    def whiten(self, x: Tensor) -> Tensor:
        """R (x - m), a standard normal vector, ``(*, D) -> (*, D)``."""
        return functional.linear(x - self.mean, self.whitening)

    def color(self, u: Tensor) -> Tensor:
        """The x that whitens to ``u``."""
        return self.mean + torch.linalg.solve_triangular(self.whitening, u.mT, upper=False).mT


def fitted_normal(
    owner: str, data: Data, covariance: str, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Mean ``(D,)`` and whitening matrix ``(D, D)`` of the normal distribution nearest to the data,
    float64.
    """
    mean, variance = data.mean().double(), data.variance().double()
    constant = (variance <= 1e-20 * mean.square()).nonzero().flatten().tolist()
    if constant:
        raise invalid(
            owner,
            "x",
            "vary in every column",
            f"the same value throughout column {constant[0]}",
            "Remove constant columns.",
        )
    if covariance == "diagonal":
        return mean, torch.diag(variance.rsqrt())
    return mean, whitening_of(_covariance(data, mean, variance, generator))


def whitening_of(covariance: Tensor) -> Tensor:
    """The lower triangular R with R covariance R' = I."""
    lower = torch.linalg.cholesky(covariance)
    return torch.linalg.solve_triangular(
        lower, torch.eye(len(lower), dtype=lower.dtype, device=lower.device), upper=False
    )


def _covariance(data: Data, mean: Tensor, variance: Tensor, generator: Generator) -> Tensor:
    """Of at most 10,000 random rows, drawn toward its diagonal where rows are few, so that it can
    be inverted.
    """
    batch = data.batch(
        rng.permutation(len(data), generator)[:MOMENT_ROWS].cpu(), generator=generator
    )
    x, n = batch.x.double() - mean, len(batch.x)
    w = torch.ones(n, dtype=x.dtype) if batch.weight is None else batch.weight.double()
    share = len(mean) / (n + len(mean))
    return torch.lerp((x * (w / w.sum())[:, None]).mT @ x, torch.diag(variance), share)


def smoothed_logits(frequencies: Tensor, n: float) -> Tensor:
    """Log of frequencies ``(*, K)`` with half a count added to each value, so that none is
    impossible.
    """
    k = frequencies.shape[-1]
    return torch.log((frequencies * n + 0.5) / (n + 0.5 * k))


def frequencies(data: Data, values: Tensor, generator: Generator) -> Tensor:
    """How often each coordinate takes each value, ``(D, K)``, over at most 10,000 random rows."""
    index = rng.permutation(len(data), generator)[:MOMENT_ROWS].cpu()
    batch = data.batch(index, generator=generator)
    hits = (batch.x[..., None] == values.to(batch.x)).double()
    w = torch.ones(len(hits), dtype=hits.dtype) if batch.weight is None else batch.weight.double()
    return torch.einsum("n,ndk->dk", w / w.sum(), hits)
