r"""Metrics on the parameters: each can multiply a vector by the Fisher matrix, and solve for the
damped natural gradient.

.. math:: \tilde g = (F + \lambda I)^{-1} g, \qquad F = E_{p_\theta}[\nabla \log p\, \nabla \log
          p^\top]
            = \mathrm{Cov}_x\big(E[s \mid x]\big)          (theory/optimization.md, eq. 50.8, 50.9)

The last form is that of p = exp(-F) / Z with any hidden units summed out: s(x) = -grad F(x), whose
mean is subtracted.

Letters: P parameters, n draws or states, F Fisher matrix, lambda damping, g gradient, s scores (n,
P), w weights (n).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, kl_divergence
from torch.nn.utils import parameters_to_vector

from partita.errors import Diverged, invalid
from partita.optim.conjugate_gradient import solve

TOLERANCE = 1e-4  # of the inner conjugate gradients, relative: a direction needs no more
MOST_STEPS = 250


class Metric(Protocol):
    """F, as far as a step needs it."""

    def product(self, v: Tensor) -> Tensor:
        """F v, ``(P,) -> (P,)``."""
        ...

    def solve(self, g: Tensor, damping: float) -> Tensor:
        """(F + damping I)^{-1} g."""
        ...


class _ByConjugateGradients:
    """The solution for a metric that has only products."""

    def product(self, v: Tensor) -> Tensor:
        raise NotImplementedError

    def solve(self, g: Tensor, damping: float) -> Tensor:
        """As near as ``MOST_STEPS`` products bring it; a singular or indefinite system is
        refused.
        """
        found = solve(
            lambda p: self.product(p) + damping * p,
            g,
            tolerance=TOLERANCE,
            iterations=MOST_STEPS,
            check=False,
        )
        if found.reason in ("breakdown", "indefinite") and found.residual > float(g.norm()) * 0.1:
            raise Diverged(
                f"natural gradient: F + damping I must be positive definite; got {found.explain()} "
                f"at damping {damping:g}. Raise damping, for example to 1e-3."
            )
        return found.x


@dataclass(frozen=True)
class MatrixMetric:
    """F written out, (P, P); better in float64, whatever the parameters are in."""

    F: Tensor

    def product(self, v: Tensor) -> Tensor:
        return (self.F @ v.to(self.F)).to(v)

    def solve(self, g: Tensor, damping: float) -> Tensor:
        size = torch.finfo(self.F.dtype).eps * float(self.F.diagonal().abs().max())
        damped = self.F + damping * torch.eye(len(g)).to(self.F)
        factor, failed = torch.linalg.cholesky_ex(damped)
        if int(failed) or float(factor.diagonal().min()) ** 2 <= len(g) * size:
            allowed = "be large enough to make F + damping I positive definite"
            got = f"{damping:g} on a singular Fisher matrix"
            remedy = f"Use at least {max(1e-8, 10 * len(g) * size):.1g}."
            raise invalid("natural gradient", "damping", allowed, got, remedy)
        return torch.cholesky_solve(g[:, None].to(factor), factor)[:, 0].to(g)


class Scores(Protocol):
    """The matrix s (n, P), perhaps never written out."""

    def dot(self, v: Tensor) -> Tensor:
        """s v, ``(P,) -> (n,)``."""
        ...

    def weighted(self, w: Tensor) -> Tensor:
        """w' s, ``(n,) -> (P,)``."""
        ...

    def written_out(self) -> Tensor:
        """s itself, (n, P)."""
        ...


@dataclass(frozen=True)
class ScoreMetric(_ByConjugateGradients):
    """The covariance of scores under weights w that sum to one; ``centered`` subtracts their mean,
    which is zero for a normalized model.
    """

    scores: Scores
    w: Tensor
    centered: bool = True

    def product(self, v: Tensor) -> Tensor:
        along = self.scores.dot(v)
        return self.scores.weighted(self.w * (along - self.w @ along if self.centered else along))


@dataclass(frozen=True)
class PredictiveMetric(_ByConjugateGradients):
    """F of any network with a predictive distribution, by differentiating its divergence from
    itself twice (eq. 50.11).

    Arguments:
        predict: The distributions at some inputs, as functions of the parameters; their divergence
            must be known to torch.
        parameters: What F is about.
    """

    predict: Callable[[], Distribution]
    parameters: Sequence[nn.Parameter]

    def product(self, v: Tensor) -> Tensor:
        with torch.enable_grad():
            now = self.predict()
            with torch.no_grad():
                fixed = self.predict()
            divergence = kl_divergence(fixed, now)
            rows = max(1, now.batch_shape[0] if now.batch_shape else 1)
            slope = torch.autograd.grad(
                divergence.sum() / rows, self.parameters, create_graph=True, allow_unused=True
            )
            along = v.new_zeros(())
            parts = v.split([p.numel() for p in self.parameters])
            for s, part in zip(slope, parts, strict=True):
                if s is not None:
                    along = along + s.flatten() @ part
            again = torch.autograd.grad(
                along, self.parameters, allow_unused=True, materialize_grads=True
            )
        return parameters_to_vector(again)


@dataclass(frozen=True)
class SumMetric(_ByConjugateGradients):
    """The sum of metrics on the same parameters, as of a model with two distributions."""

    parts: Sequence[Metric]

    def product(self, v: Tensor) -> Tensor:
        return torch.stack([part.product(v) for part in self.parts]).sum(0)
