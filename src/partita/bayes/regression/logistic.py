r"""Bayesian logistic regression: MAP, Laplace's approximation, and the average over the true posterior.

.. math:: p(y = 1 \mid x, w) = \sigma(x^\top w), \quad w \sim \mathcal N(0, A^{-1}), \qquad
          p(y \mid x, \mathcal D) = \int p(y \mid x, w)\, p(w \mid \mathcal D)\, dw          (theory/bayes.md, eqs. 8.17 to 8.19)

The average is the posterior's and not Laplace's. Draws from a multivariate t about the mode, weighed by the true posterior, carry it in
few columns, and k-hat says whether they do; where they do not, Hamiltonian chains take over, in a metric that follows their own covariance
while they warm up, and R-hat says whether they agree.

Letters: n rows, P columns, w weights, A prior precision, H Hessian at the mode, M = B'B metric, C chains, R draws.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.nn import functional

from partita.bayes.distributions import MultivariateStudentT, cholesky, half_log_det
from partita.bayes.regression.linear import checked_weight
from partita.core import rng
from partita.core.checks import check_count, check_finite, check_rows, check_width
from partita.core.errors import Diverged, invalid
from partita.core.quantity import Verdict, worst
from partita.diagnostics.chains import RHAT_FINE, summarise_chains
from partita.diagnostics.weights import tail_indices, verdict_on_ess, verdict_on_mean

NEWTON = 100  # most steps
CHAINS, ROUNDS, WARM_UP, LEAPFROGS = 32, 5, 100, 12  # the metric follows the chains for five rounds of a hundred steps
TARGET, RATE = 0.8, 0.3  # acceptance aimed at, and how fast the step follows
PROPOSAL_DF = 7.0
LONGEST = 16  # times the draws asked for
ENOUGH = 400.0  # effective draws of a tight average


@dataclass(frozen=True, eq=False)
class Draws:
    """Weighted draws of the posterior, and how far to trust averages over them.

    Arguments:
        w: ``(R, P)``.
        probability: Their weights, summing to one, ``(R,)``.
        method: ``"importance sampling"`` or ``"Hamiltonian Monte Carlo"``.
        ess: Effective number of draws.
        verdict: From k-hat or R-hat, and the effective number.
        details: ``khat``, or ``rhat`` and ``accepted``.
    """

    w: Tensor
    probability: Tensor
    method: str
    ess: float
    verdict: Verdict
    details: dict[str, float]

    def average(self, X: Tensor) -> Tensor:
        """p(y = 1 | x, data) at each row (eq. 8.19)."""
        return torch.sigmoid(X @ self.w.mT) @ self.probability

    def quantiles(self, X: Tensor, levels: Tensor) -> Tensor:
        """Quantiles of the posterior of p(y = 1 | x, w), ``(n, P), (L,) -> (n, L)``."""
        p, order = torch.sort(torch.sigmoid(X @ self.w.mT), -1)
        mass = self.probability[order].cumsum(-1)
        place = torch.searchsorted(mass, levels.to(mass).expand(len(X), -1).contiguous()).clamp_max(p.shape[-1] - 1)
        return p.gather(-1, place)


@dataclass(frozen=True, eq=False)
class LogisticPosterior:
    """The posterior of logistic regression about its mode.

    Arguments:
        X, y, weight: The data, y in {0, 1}.
        A: Prior precision ``(P, P)``.
        map: The mode.
        hessian: Of minus the log posterior there.
    """

    X: Tensor
    y: Tensor
    weight: Tensor
    A: Tensor
    map: Tensor
    hessian: Tensor

    @property
    def laplace(self) -> MultivariateNormal:
        """Laplace's approximation: a Gaussian with the mode's curvature (eq. 8.18)."""
        return MultivariateNormal(self.map, precision_matrix=self.hessian)

    @property
    def log_evidence(self) -> Tensor:
        """Laplace's approximation of log p(y | X)."""
        P = len(self.map)
        half_det = half_log_det(torch.linalg.cholesky(self.hessian))
        return log_joint(self.map, self.X, self.y, self.weight, self.A) + 0.5 * P * math.log(2 * math.pi) - half_det

    def draw(self, draws: int, *, generator: torch.Generator) -> Draws:
        """At least ``draws`` draws of the true posterior: by importance sampling where its weights are tight, else by chains."""
        check_count("LogisticPosterior.draw", "draws", draws, 4 * CHAINS)
        weighed = self.importance(draws, generator=generator)
        return weighed if weighed.verdict == "tight" else self.hamiltonian(draws, generator=generator)

    def importance(self, draws: int, *, generator: torch.Generator) -> Draws:
        """Independent draws from a multivariate t with Laplace's scale, weighed by the posterior."""
        q = MultivariateStudentT(PROPOSAL_DF, self.map, scale_matrix=torch.linalg.inv(self.hessian))
        w = rng.draw(q, generator, (draws,))
        probability = torch.softmax(self._height(w) - q.log_prob(w), 0)
        ess, khat = float(1 / probability.square().sum()), tail_indices(probability)[1]
        verdict = worst(verdict_on_mean(khat, draws), verdict_on_ess(ess, draws))
        return Draws(w, probability, "importance sampling", ess, verdict, {"khat": khat})

    def hamiltonian(self, draws: int, *, generator: torch.Generator) -> Draws:
        """The states of 32 chains after they warmed up."""
        steps, B, size = -(-draws // CHAINS), _root(torch.linalg.inv(self.hessian)), len(self.map) ** -0.25
        w = self.map + rng.normal((CHAINS, len(self.map)), self.map, generator) @ B
        for _ in range(ROUNDS):
            trace, size, _ = self._chains(w, B, size, WARM_UP, True, generator)
            w, B = trace[-1], _root(torch.cov(trace[WARM_UP // 2 :].flatten(0, 1).mT).reshape(B.shape))
        trace, size, _ = self._chains(w, B, size, WARM_UP, True, generator)
        kept, report, accepted = trace[:0], None, 0.0
        while report is None or (not report.mixed and len(kept) < LONGEST * steps):  # go on, twice as long each time, until they agree
            more, _, accepted = self._chains(trace[-1] if report is None else kept[-1], B, size, max(steps, len(kept)), False, generator)
            kept = torch.cat([kept, more])
            report = summarise_chains(torch.cat([kept, self._height(kept)[..., None]], -1).movedim(0, 1))
        fine = report.rhat < RHAT_FINE and report.ess_bulk >= ENOUGH
        verdict: Verdict = "tight" if fine else "loose" if report.mixed else "do not publish"
        w = kept.flatten(0, 1)
        details = {"rhat": report.rhat, "accepted": accepted}
        return Draws(w, w.new_full((len(w),), 1 / len(w)), "Hamiltonian Monte Carlo", report.ess_bulk, verdict, details)

    def _chains(
        self, w: Tensor, B: Tensor, size: float, steps: int, adapt: bool, generator: torch.Generator
    ) -> tuple[Tensor, float, float]:
        """``steps`` of all chains ``(steps, C, P)``, the last step size, and the share accepted."""
        trace, accepted = [], 0.0
        for _ in range(steps):
            w, moved = self._hamiltonian_step(w, B, size, generator)
            trace.append(w)
            accepted += moved / steps
            size *= math.exp(RATE * (moved - TARGET)) if adapt else 1.0
        return torch.stack(trace), size, accepted

    def _hamiltonian_step(self, w: Tensor, B: Tensor, size: float, generator: torch.Generator) -> tuple[Tensor, float]:
        """One proposal for every chain by leapfrog steps in the metric B'B; returns the share that moved."""
        e = 2 * size * rng.uniform((len(w), 1), w, generator)  # small ones too: the curvature is not the same everywhere
        momentum = rng.normal(w.shape, w, generator)
        before = self._height(w) - 0.5 * momentum.square().sum(-1)
        v, p = w, momentum + 0.5 * e * self._slope(w) @ B.mT
        for leap in range(LEAPFROGS):
            v = v + e * p @ B
            p = p + (e if leap < LEAPFROGS - 1 else 0.5 * e) * self._slope(v) @ B.mT
        gain = self._height(v) - 0.5 * p.square().sum(-1) - before
        moved = torch.log(rng.uniform(gain.shape, gain, generator)) < gain
        return torch.where(moved[:, None], v, w), float(moved.double().mean())

    def _height(self, w: Tensor) -> Tensor:
        return log_joint(w, self.X, self.y, self.weight, self.A)

    def _slope(self, w: Tensor) -> Tensor:
        """Gradient of the log posterior."""
        return (self.weight * (self.y - torch.sigmoid(w @ self.X.mT))) @ self.X - w @ self.A

    def at_mode(self, X: Tensor) -> Tensor:
        """p(y = 1 | x, w_MAP): surer than the average wherever the weights are not known."""
        return torch.sigmoid(X @ self.map)


def log_joint(w: Tensor, X: Tensor, y: Tensor, weight: Tensor, A: Tensor) -> Tensor:
    """log p(y, w | X) with all constants, ``(*, P) -> (*)``."""
    logits = w @ X.mT
    likelihood = -(weight * functional.softplus(torch.where(y > 0, -logits, logits))).sum(-1)
    prior = -0.5 * ((w @ A) * w).sum(-1) + half_log_det(torch.linalg.cholesky(A)) - 0.5 * len(A) * math.log(2 * math.pi)
    return likelihood + prior


def logistic_regression(X: Any, y: Any, A: Any, weight: Any = None) -> LogisticPosterior:
    """The mode by Newton's method with halved steps; the log posterior is concave, so there is one (eq. 8.17).

    Arguments:
        X: Rows ``(n, P)``; a column of ones is the intercept.
        y: Zeros and ones ``(n,)``.
        A: Prior precision of the weights: ``(P, P)``, or ``(P,)`` for a diagonal one.
        weight: How often each row counts.
    """
    owner, X, y = "logistic_regression", torch.as_tensor(X, dtype=torch.float64), torch.as_tensor(y, dtype=torch.float64)
    check_rows(owner, "X", X)
    check_finite(owner, "X", X)
    if y.shape != X.shape[:1] or bool(((y != 0) & (y != 1)).any()):
        raise invalid(owner, "y", f"hold {len(X)} zeros and ones", f"shape {tuple(y.shape)} or other values")
    A = torch.as_tensor(A, dtype=X.dtype)
    A = torch.diag(A) if A.dim() == 1 else A
    check_width(owner, "A", A, X.shape[1], "X")
    cholesky(owner, "A", A)
    weight = checked_weight(owner, weight, y)
    w = _newton(X, y, weight, A)
    return LogisticPosterior(X, y, weight, A, w, _hessian(w, X, weight, A))


def _newton(X: Tensor, y: Tensor, weight: Tensor, A: Tensor) -> Tensor:
    w, value = X.new_zeros(X.shape[1]), log_joint(X.new_zeros(X.shape[1]), X, y, weight, A)
    for _ in range(NEWTON):
        slope = X.mT @ (weight * (y - torch.sigmoid(X @ w))) - A @ w
        step = torch.linalg.solve(_hessian(w, X, weight, A), slope)
        gain, size = float(slope @ step), 1.0  # twice what the step can still gain
        if gain < 1e-18:
            return w + step
        while gain > 1e-6 and size > 1e-10 and log_joint(w + size * step, X, y, weight, A) < value:  # nearer, rounding decides
            size /= 2
        w = w + size * step
        value = log_joint(w, X, y, weight, A)
    raise Diverged("logistic_regression: Newton's method must reach the mode; got none in 100 steps. Standardise the columns.")


def _hessian(w: Tensor, X: Tensor, weight: Tensor, A: Tensor) -> Tensor:
    p = torch.sigmoid(X @ w)
    return X.mT @ ((weight * p * (1 - p))[:, None] * X) + A


def _root(covariance: Tensor) -> Tensor:
    """B with B'B = covariance, so that rows of standard normals times B have it."""
    return torch.linalg.cholesky(covariance).mT
