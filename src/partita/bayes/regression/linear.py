r"""Bayesian linear regression with its conjugate prior: exact posterior, predictive and evidence.

.. math:: y = X w + \epsilon, \quad w \mid \lambda \sim \mathcal N\big(m, (\lambda K)^{-1}\big),
          \quad \lambda \sim \mathrm{Gamma}(a, b),
          \qquad K_n = K + X^\top X, \quad m_n = K_n^{-1} (K m + X^\top y), \quad a_n = a + \tfrac
          n2, \quad
          b_n = b + \tfrac12 \big( |y - X m_n|^2 + |m_n - m|_K^2 \big)
          (theory/bayes.md, eqs. 8.14 and 8.15)

Letters: n rows, P columns, w weights, lambda noise precision, m mean and K precision of the
weights, a shape and b rate of the noise.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Gamma, StudentT

from partita.bayes.conjugate.base import (
    Definite,
    Hyperparameters,
    Positive,
    RealVector,
    row_weights,
)
from partita.bayes.conjugate.gaussian import LOG_2PI, gamma_normalizer
from partita.bayes.distributions import MultivariateStudentT, half_log_det
from partita.core.arguments import check_finite, check_width
from partita.errors import invalid


@dataclass(frozen=True, eq=False)
class LinearRegression(Hyperparameters):
    """A prior of weights and noise that rows (x, y) turn into their posterior; as the conjugate
    pairs, given X.

    Arguments:
        m: Prior mean of the weights, ``(P,)``.
        K: Their prior precision in units of the noise's, ``(P, P)``.
        a: Shape of the noise precision's gamma.
        b: Its rate.
        log_evidence: log p(y | X) of what was seen so far.

    >>> line = LinearRegression(m=torch.zeros(1).double(), K=torch.eye(1).double(), a=1.0, b=1.0)
    >>> seen = line.update([[1.0], [2.0], [3.0]], [1.1, 1.9, 3.2])
    >>> round(float(seen.map), 3)
    0.967
    """

    m: RealVector
    K: Definite
    a: Positive
    b: Positive

    def check_shapes(self) -> None:
        if self.m.dim() != 1 or self.K.shape != (len(self.m), len(self.m)):
            shapes = f"{tuple(self.m.shape)} and {tuple(self.K.shape)}"
            raise invalid("LinearRegression", "m and K", "have shapes (P,) and (P, P)", shapes)

    def update(
        self, X: ArrayLike, y: ArrayLike, weight: ArrayLike | None = None, *, centered: bool = False
    ) -> "LinearRegression":
        """The regression after rows ``(n, P)`` with targets ``(n,)``, each counting ``weight``
        times.

        ``centered`` says that their means were taken out, which an intercept with a flat prior does
        and pays with one row; the evidence is then that of the differences.
        """
        X, y, w = self._checked(X, y, weight)
        n = w.sum() - 1 if centered else w.sum()
        K = self.K + X.mT @ (w[:, None] * X)
        m = self.m + torch.linalg.solve(K, X.mT @ (w * (y - X @ self.m)))
        return self._after(K, m, (w * (y - X @ m).square()).sum(), n)

    def absorb(
        self, gram: Tensor, cross: Tensor, total: Tensor, n: Tensor | float
    ) -> "LinearRegression":
        """The regression after rows of which X'X ``(P, P)``, X'y ``(P,)``, y'y and their number are
        known, as where they were streamed.

        It is that of :meth:`update` but for rounding, which is largest where the residuals are
        small against y.
        """
        K = self.K + gram
        m = self.m + torch.linalg.solve(K, cross - gram @ self.m)
        return self._after(K, m, (total - 2 * (m @ cross) + m @ gram @ m).clamp_min(0), n)

    def _after(self, K: Tensor, m: Tensor, misfit: Tensor, n: Tensor | float) -> "LinearRegression":
        """The posterior with these weights, whose squared residuals sum to ``misfit``."""
        moved = m - self.m
        b = self.b + 0.5 * (misfit + moved @ self.K @ moved)
        after = replace(self, m=m, K=0.5 * (K + K.mT), a=self.a + 0.5 * n, b=b)
        gain = after._log_normalizer() - self._log_normalizer() - 0.5 * LOG_2PI * n
        return replace(after, log_evidence=self.log_evidence + gain)

    @property
    def posterior(self) -> MultivariateStudentT:
        """p(w | data), the noise integrated out."""
        return MultivariateStudentT(
            2 * self.a, self.m, scale_matrix=torch.linalg.inv(self.K) * (self.b / self.a)
        )

    @property
    def noise(self) -> Gamma:
        """p(lambda | data)."""
        return Gamma(self.a, self.b)

    @property
    def map(self) -> Tensor:
        """The most probable weights."""
        return self.m

    def predictive(self, X: ArrayLike) -> StudentT:
        """p(y | x, data) at each row: wider than at the MAP weights by what is not known of
        them.
        """
        X = torch.as_tensor(X, dtype=self.m.dtype, device=self.m.device)
        check_width("LinearRegression.predictive", "X", X, len(self.m), "m")
        spread = 1 + (X * torch.linalg.solve(self.K, X.mT).mT).sum(-1)
        mean = X @ self.m
        for what, value in (("the mean at X", mean), ("the variance at X", spread)):
            remedy = "Rows lie too far out to be computed with."
            check_finite("LinearRegression.predictive", what, value, remedy)
        return StudentT(2 * self.a, mean, torch.sqrt(self.b / self.a * spread))

    def _log_normalizer(self) -> Tensor:
        return gamma_normalizer(self.a, self.b) - half_log_det(torch.linalg.cholesky(self.K))

    def _checked(
        self, X: ArrayLike, y: ArrayLike, weight: ArrayLike | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        X, y = (torch.as_tensor(v, dtype=self.m.dtype, device=self.m.device) for v in (X, y))
        owner = "LinearRegression.update"
        check_width(owner, "X", X, len(self.m), "m")
        if X.dim() != 2 or y.shape != X.shape[:1]:
            got = f"{tuple(X.shape)} and {tuple(y.shape)}"
            raise invalid(owner, "X and y", "have shapes (n, P) and (n,)", got)
        check_finite(owner, "X", X)
        check_finite(owner, "y", y)
        return X, y, row_weights(owner, weight, y)


def best_ridge(X: Tensor, y: Tensor, weight: Tensor, a: float, b: float) -> float:
    r"""The ridge k of largest evidence for centered rows, m = 0 and K = k I, from one
    eigendecomposition (eq. 8.16).

    .. math:: \log p(y \mid k) = \tfrac12 \sum_j \log \frac{k}{k + s_j} - a_n \log b_n +
              \text{const}, \qquad
              b_n = b + \tfrac12 \Big( y^\top y - \sum_j \frac{(u_j^\top X^\top y)^2}{k + s_j} \Big)
    """
    gram, cross = X.mT @ (weight[:, None] * X), X.mT @ (weight * y)
    total = float((weight * y.square()).sum())
    return best_ridge_of_sums(gram, cross, total, float(weight.sum()), a, b)


def best_ridge_of_sums(
    gram: Tensor, cross: Tensor, total: float, n: float, a: float, b: float
) -> float:
    """The same from X'X, X'y, y'y and the number of rows."""
    from scipy import optimize

    values, U = torch.linalg.eigh(gram)
    s, pull = values.clamp_min(0).cpu().numpy(), (U.mT @ cross).square().cpu().numpy()
    a_n = a + 0.5 * (n - 1)

    def loss(log_k: np.ndarray) -> np.ndarray:
        k = np.exp(np.asarray(log_k))[..., None]
        b_n = b + 0.5 * np.maximum(0.0, total - (pull / (k + s)).sum(-1))
        return a_n * np.log(b_n) - 0.5 * np.log(k / (k + s)).sum(-1)

    # from 1e-10 to 1e5 times the largest eigenvalue
    grid = math.log(max(float(s.max()), 1e-12)) + 0.5 * np.arange(-46, 24)
    start = grid[loss(grid).argmin()]
    found = optimize.minimize_scalar(
        loss, bounds=(start - 0.5, start + 0.5), method="bounded", options={"xatol": 1e-8}
    )
    return math.exp(found.x)
