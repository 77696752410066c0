r"""Bayesian logistic regression: MAP, Laplace's approximation, and the average over the true
posterior.

.. math:: p(y = c \mid x, w) \propto \exp\Big( \sum_j q_{cj}\, x^\top w_j \Big), \quad w_j \sim
          \mathcal N(0, A^{-1}), \qquad
          p(y \mid x, \mathcal D) = \int p(y \mid x, w)\, p(w \mid \mathcal D)\, dw
          (theory/bayes.md, eqs. 8.17 to 8.19)

Classes differ by K - 1 contrasts q_j, orthogonal to one another and to a constant, which no
class is alone in: the log odds of any two classes have weights of prior N(0, A^-1), whichever the
two. With two classes w is the one vector of the log odds.

The average is the posterior's and not Laplace's. Draws from a multivariate t about the mode,
weighed by the true posterior, carry it in few columns, and k-hat says whether they do; where they
do not, Hamiltonian chains take over, and R-hat says whether they agree.

Letters: n rows, P columns, K classes, J = K - 1 contrasts, w weights (J P,), A prior precision, H
Hessian at the mode, R draws.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import MultivariateNormal

from partita.bayes.conjugate.base import row_weights
from partita.bayes.distributions import MultivariateStudentT, cholesky, half_log_det
from partita.bayes.regression.chains import CHAINS, hamiltonian
from partita.core import rng
from partita.core.arguments import at_least, check_finite, check_rows, check_width, validated
from partita.core.quantity import Verdict, worst
from partita.diagnostics.means import judge
from partita.diagnostics.weights import tail_indices, verdict_on_ess
from partita.errors import Diverged, invalid

NEWTON = 100  # most steps
PROPOSAL_DF = 7.0
NUMBERS = 1 << 23  # draws x rows x classes at once


@dataclass(frozen=True, eq=False)
class PosteriorDraws:
    """Weighted draws of the posterior, and how far to trust averages over them.

    Arguments:
        w: ``(R, J P)``.
        probability: Their weights, summing to one, ``(R,)``.
        method: ``"importance sampling"`` or ``"Hamiltonian Monte Carlo"``.
        ess: Effective number of draws.
        verdict: From k-hat or R-hat, and the effective number.
        details: ``khat``, or ``rhat``, ``mixing`` (what the verdict rests on) and ``accepted``.
    """

    w: Tensor
    probability: Tensor
    method: str
    ess: float
    verdict: Verdict
    details: dict[str, float]

    def average(self, X: Tensor) -> Tensor:
        """p(y = c | x, data) at each row, ``(n, P) -> (n, K)`` (eq. 8.19)."""
        parts = self._probabilities(X)
        return torch.cat([torch.einsum("rkn,r->nk", p, self.probability) for p in parts])

    def quantiles(self, X: Tensor, levels: Tensor) -> Tensor:
        """Quantiles of the posterior of p(y = c | x, w), ``(n, P), (L,) -> (n, K, L)``."""
        parts = []
        for probabilities in self._probabilities(X):
            p, order = torch.sort(probabilities.movedim(0, -1), -1)  # (K, rows, R)
            mass = self.probability[order].cumsum(-1)
            sought = levels.to(mass).expand(*mass.shape[:-1], -1).contiguous()
            place = torch.searchsorted(mass, sought).clamp_max(p.shape[-1] - 1)
            parts.append(p.gather(-1, place).movedim(0, 1))
        return torch.cat(parts)

    def _probabilities(self, X: Tensor) -> Iterator[Tensor]:
        """Of every draw, some rows at a time, ``(R, K, rows)``."""
        classes = self.w.shape[-1] // X.shape[1] + 1
        for rows in X.split(max(1, NUMBERS // (len(self.w) * classes))):
            yield torch.softmax(class_logits(self.w, rows), -2)


@dataclass(frozen=True, eq=False)
class LogisticPosterior:
    """The posterior of logistic regression about its mode.

    Arguments:
        X, y, weight: The data, y in {0, ..., K - 1}.
        A: Prior precision ``(P, P)``.
        map: The mode, ``(J P,)``.
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
        half_det = half_log_det(torch.linalg.cholesky(self.hessian))
        return self._height(self.map) + 0.5 * len(self.map) * math.log(2 * math.pi) - half_det

    @property
    def class_weights(self) -> Tensor:
        """The mode as one row of weights for each class, summing to zero over classes, ``(K,
        P)``.
        """
        w = self.map.unflatten(-1, (-1, self.X.shape[1]))
        return contrasts(len(w) + 1, w) @ w

    @validated
    def draw(
        self, draws: Annotated[int, at_least(4 * CHAINS)], *, generator: torch.Generator
    ) -> PosteriorDraws:
        """At least ``draws`` draws of the true posterior: by importance sampling where its weights
        are tight, else by chains.
        """
        weighed = self.importance(draws, generator=generator)
        if weighed.verdict == "tight":
            return weighed
        return self.hamiltonian(draws, generator=generator)

    def importance(self, draws: int, *, generator: torch.Generator) -> PosteriorDraws:
        """Independent draws from a multivariate t with Laplace's scale, weighed by the
        posterior.
        """
        q = MultivariateStudentT(PROPOSAL_DF, self.map, scale_matrix=torch.linalg.inv(self.hessian))
        w = rng.draw(q, generator, (draws,))
        parts = w.split(max(1, NUMBERS // (len(self.X) * self.classes)))
        height = torch.cat([self._height(part) for part in parts])
        probability = torch.softmax(height - q.log_prob(w), 0)
        ess, khat = float(1 / probability.square().sum()), tail_indices(probability)[1]
        verdict = worst(judge(probability.cpu().numpy(), 0.95).verdict, verdict_on_ess(ess, draws))
        return PosteriorDraws(w, probability, "importance sampling", ess, verdict, {"khat": khat})

    def hamiltonian(self, draws: int, *, generator: torch.Generator) -> PosteriorDraws:
        """The states of Hamiltonian chains after they warmed up."""
        covariance = torch.linalg.inv(self.hessian)
        target = partial(height_and_slope, X=self.X, y=self.y, weight=self.weight, A=self.A)
        found = hamiltonian(target, self.map, covariance, draws, generator=generator)
        report = found.report
        alike = found.w.new_full((len(found.w),), 1 / len(found.w))
        details = {"rhat": report.rhat, "mixing": report.finding, "accepted": found.accepted}
        method = "Hamiltonian Monte Carlo"
        return PosteriorDraws(found.w, alike, method, report.ess, report.verdict, details)

    @property
    def classes(self) -> int:
        """K."""
        return len(self.map) // self.X.shape[1] + 1

    def at_mode(self, X: Tensor) -> Tensor:
        """p(y = c | x, w_MAP), ``(n, P) -> (n, K)``: surer than the average wherever the weights
        are not known.
        """
        return torch.softmax(class_logits(self.map, X), -2).mT

    def _height(self, w: Tensor) -> Tensor:
        return log_joint(w, self.X, self.y, self.weight, self.A)


@lru_cache(maxsize=16)
def _contrasts(classes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # training must be able to use it later
        Q = torch.zeros(classes, classes - 1, dtype=dtype, device=device)
        for j in range(1, classes):  # Helmert's: class j against those before it
            Q[:j, j - 1], Q[j, j - 1] = -1.0, float(j)
            Q[:, j - 1] /= math.sqrt(2 * j * (j + 1))
    return Q


def contrasts(classes: int, like: Tensor) -> Tensor:
    """Columns q_j orthogonal to a constant, whose rows are all one apart, ``(K, J)``: (-1/2, 1/2)
    for two classes (eq. 8.22).

    >>> torch.pdist(contrasts(4, torch.zeros(1).double())).allclose(torch.ones(6).double())
    True
    """
    return _contrasts(classes, like.dtype, like.device)


def class_logits(w: Tensor, X: Tensor) -> Tensor:
    """Unnormalized log probabilities of all classes, ``(*, J P), (n, P) -> (*, K, n)``."""
    scores = w.unflatten(-1, (-1, X.shape[1])) @ X.mT  # (*, J, n)
    return contrasts(scores.shape[-2] + 1, scores) @ scores


def log_joint(w: Tensor, X: Tensor, y: Tensor, weight: Tensor, A: Tensor) -> Tensor:
    """log p(y, w | X) with all constants, ``(*, J P) -> (*)``."""
    constant = half_log_det(torch.linalg.cholesky(A)) - 0.5 * len(A) * math.log(2 * math.pi)
    return height_and_slope(w, X, y, weight, A)[0] + (w.shape[-1] // len(A)) * constant


def height_and_slope(
    w: Tensor, X: Tensor, y: Tensor, weight: Tensor, A: Tensor
) -> tuple[Tensor, Tensor]:
    """log p(y, w | X) without the prior's constant, and its gradient in w, from one product, ``(*,
    J P) -> (*), (*, J P)``.
    """
    log_p = torch.log_softmax(class_logits(w, X), -2)  # (*, K, n)
    seen = y.expand(*log_p.shape[:-2], 1, -1)
    v = w.unflatten(-1, (-1, len(A)))
    pull = v @ A
    height = (log_p.gather(-2, seen)[..., 0, :] * weight).sum(-1) - 0.5 * (pull * v).sum((-2, -1))
    # p, less one where observed
    surprise = log_p.exp().scatter_add(-2, seen, -torch.ones_like(log_p[..., :1, :])) * weight
    return height, -(contrasts(log_p.shape[-2], log_p).mT @ surprise @ X + pull).flatten(-2)


def logistic_regression(
    X: ArrayLike,
    y: ArrayLike,
    A: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    start: Tensor | None = None,
) -> LogisticPosterior:
    """The mode by Newton's method with halved steps; the log posterior is concave, so there is one
    (eq. 8.17).

    Arguments:
        X: Rows ``(n, P)``; a column of ones is the intercept.
        y: Classes 0, 1, ..., K - 1 ``(n,)``.
        A: Prior precision of the weights: ``(P, P)``, or ``(P,)`` for a diagonal one.
        weight: How often each row counts.
        start: Where Newton's method begins; zero if not given.

    >>> posterior = logistic_regression(
    ...     [[1.0, -1.0], [1.0, 0.0], [1.0, 1.0]], [0, 1, 2], [0.01, 0.01]
    ... )
    >>> posterior.at_mode(posterior.X).argmax(1).tolist()
    [0, 1, 2]
    """
    owner = "logistic_regression"
    X = torch.as_tensor(X, dtype=torch.float64)
    y = torch.as_tensor(y, dtype=torch.float64)
    check_rows(owner, "X", X)
    check_finite(owner, "X", X)
    if y.shape != X.shape[:1] or ((y < 0) | (y != y.round())).any():
        allowed = f"hold {len(X)} classes as whole numbers from 0"
        raise invalid(owner, "y", allowed, f"shape {tuple(y.shape)} or other values")
    A = torch.as_tensor(A, dtype=X.dtype)
    A = torch.diag(A) if A.dim() == 1 else A
    check_width(owner, "A", A, X.shape[1], "X")
    cholesky(owner, "A", A)
    weight, y = row_weights(owner, weight, y), y.long()
    J = max(1, int(y.max()))
    w = _newton(X.new_zeros(J * X.shape[1]) if start is None else start, X, y, weight, A)
    return LogisticPosterior(X, y, weight, A, w, _hessian(w, X, weight, A))


def _newton(w: Tensor, X: Tensor, y: Tensor, weight: Tensor, A: Tensor) -> Tensor:
    for _ in range(NEWTON):
        value, slope = height_and_slope(w, X, y, weight, A)
        factor = torch.linalg.cholesky(_hessian(w, X, weight, A))
        step = torch.cholesky_solve(slope[:, None], factor)[:, 0]
        gain, size = float(slope @ step), 1.0  # twice what the step can still gain
        if gain < 1e-18:
            return w + step
        # nearer, rounding decides
        while (
            gain > 1e-6
            and size > 1e-10
            and height_and_slope(w + size * step, X, y, weight, A)[0] < value
        ):
            size /= 2
        w = w + size * step
    raise Diverged(
        "logistic_regression: Newton's method must reach the mode; got none in 100 steps. "
        "Standardize the columns."
    )


def _hessian(w: Tensor, X: Tensor, weight: Tensor, A: Tensor) -> Tensor:
    """Of minus the log posterior: blocks X' diag(weight q_i'(diag p - p p') q_j) X, and A on the
    diagonal, ``(J P, J P)``.
    """
    p = torch.softmax(class_logits(w, X), 0)
    Q = contrasts(len(p), p)
    mean = Q.mT @ p  # (J, n)
    spread = torch.einsum("ki,kn,kj->ijn", Q, p, Q) - mean[:, None] * mean[None]
    blocks = (X.mT * (spread * weight)[..., None, :]) @ X  # (J, J, P, P)
    return blocks.permute(0, 2, 1, 3).reshape(len(w), len(w)) + torch.block_diag(*[A] * len(mean))
