r"""Visible units as exponential families: what an RBM needs to know about the kind of its visible
side.

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

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Normal
from torch.nn import functional

from partita.core import support
from partita.core.support import Binary, Real, Support
from partita.errors import invalid

Natural = Sequence[Tensor]


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
