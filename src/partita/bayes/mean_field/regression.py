r"""Bayesian linear regression with unknown noise and unknown prior precision: q(w) q(lambda)
q(alpha).

.. math:: y_i = x_i^\top w + \epsilon_i, \quad \epsilon_i \sim \mathcal N(0, 1/\lambda), \quad w
          \sim \mathcal N(0, I/\alpha), \quad
          \lambda \sim \mathrm{Gamma}(a, b), \quad \alpha \sim \mathrm{Gamma}(c, d)
          (theory/bayes.md, eq. 9.5)

Where both precisions are known the family is exact, and the ELBO is the log evidence.

Letters: n rows, P columns, lambda noise precision, alpha prior precision.
"""

import math

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from partita.bayes.mean_field.engine import Factors, LogJoint, MeanField, coordinate_ascent
from partita.bayes.mean_field.factors import GammaFactor, GaussianFactor, Statistics
from partita.bayes.mean_field.gaussian import LOG_2PI, gamma_log_prior
from partita.core.arguments import check_finite, check_real, check_rows
from partita.errors import invalid

Precision = float | tuple[float, float]  # known, or the shape and rate of its gamma prior


def regression_log_joint(X: Tensor, y: Tensor, noise: Precision, prior: Precision) -> LogJoint:
    """log p(y, w, lambda, alpha | X) in the statistics of ``w`` and of the precisions that are not
    known.
    """
    n, P = X.shape
    XX, Xy, yy = X.mT @ X, X.mT @ y, y @ y

    def log_joint(s: dict[str, Statistics]) -> Tensor:
        lam, alpha = _precision(s, "lam", noise, y), _precision(s, "alpha", prior, y)
        w, outer = s["w"]["value"], s["w"]["outer"]
        residual = yy - 2 * (Xy @ w) + (XX * outer).sum()
        likelihood = 0.5 * n * (lam["log"] - LOG_2PI) - 0.5 * lam["value"] * residual
        value = likelihood + 0.5 * P * (alpha["log"] - LOG_2PI)
        value = value - 0.5 * alpha["value"] * outer.diagonal().sum()
        for name, hyper in (("lam", noise), ("alpha", prior)):
            if isinstance(hyper, tuple):
                value = value + gamma_log_prior(s[name], *hyper)
        return value

    return log_joint


def linear_regression(
    X: ArrayLike,
    y: ArrayLike,
    *,
    noise: Precision = (1e-3, 1e-3),
    prior: Precision = (1e-3, 1e-3),
    tolerance: float = 1e-12,
    sweeps: int = 2000,
) -> MeanField:
    """Mean field of the weights ``w`` and of the precisions ``lam`` (noise) and ``alpha`` (prior).

    Arguments:
        X: Rows ``(n, P)``.
        y: Targets ``(n,)``.
        noise: Precision of the noise if known, else the shape and rate (a, b) of its gamma prior.
        prior: The same for the weights' prior precision, (c, d).
        tolerance: Relative gain of a sweep at which it ends.
        sweeps: Most sweeps.

    >>> result = linear_regression([[1.0], [2.0], [3.0]], [1.1, 1.9, 3.2], noise=4.0, prior=1.0)
    >>> round(float(result.factors["w"].m), 3)
    1.018
    """
    X, y = torch.as_tensor(X, dtype=torch.float64), torch.as_tensor(y, dtype=torch.float64)
    check_rows("linear_regression", "X", X)
    if y.shape != X.shape[:1]:
        allowed = f"have shape ({len(X)},) to match X"
        raise invalid("linear_regression", "y", allowed, tuple(y.shape))
    check_finite("linear_regression", "X", X)
    check_finite("linear_regression", "y", y)
    P = X.shape[1]
    q: Factors = {"w": GaussianFactor(X.new_zeros(P), torch.eye(P).to(X))}
    for name, parameter, hyper in (("lam", "noise", noise), ("alpha", "prior", prior)):
        if isinstance(hyper, tuple) and len(hyper) != 2:
            allowed = "be a precision, or the shape and rate of its gamma prior"
            raise invalid("linear_regression", parameter, allowed, hyper)
        for number in hyper if isinstance(hyper, tuple) else (hyper,):
            check_real("linear_regression", parameter, number, 0.0, open_low=True)
        if isinstance(hyper, tuple):
            q[name] = GammaFactor(X.new_tensor(1.0), X.new_tensor(1.0))
    return coordinate_ascent(
        regression_log_joint(X, y, noise, prior), q, tolerance=tolerance, sweeps=sweeps
    )


def _precision(s: dict[str, Statistics], name: str, hyper: Precision, like: Tensor) -> Statistics:
    """A precision's statistics; those of a known one are its logarithm and itself."""
    if isinstance(hyper, tuple):
        return s[name]
    return {"log": like.new_tensor(math.log(hyper)), "value": like.new_tensor(hyper)}
