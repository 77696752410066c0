"""Priors and likelihoods of the conjugate pairs written a second time with scipy, and grids to
integrate them on.

A grid is Gauss-Legendre: analytic integrands converge on it to rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats
from scipy.special import logsumexp, roots_legendre

from partita.bayes.conjugate import (
    BernoulliBeta,
    Conjugate,
    GaussianMean,
    GaussianMeanPrecision,
    GaussianPrecision,
    GaussianWishart,
    MultinomialDirichlet,
    PoissonGamma,
    UniformPareto,
)

Grid = tuple[np.ndarray, np.ndarray]  # points (Q, *event) and log weights (Q,)


@dataclass
class Case:
    """A pair, data and new data, and the same model in scipy's words."""

    pair: Conjugate
    data: np.ndarray
    new: np.ndarray
    log_prior: Callable[[np.ndarray], np.ndarray]  # (Q, *event) -> (Q,)
    log_likelihood: Callable[[np.ndarray, Any], np.ndarray]  # (Q, *event), one datum -> (Q,)
    grid: Callable[[np.ndarray], Grid]

    @property
    def name(self) -> str:
        return type(self.pair).__name__

    def log_joint(self, data: np.ndarray, theta: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return self.log_prior(theta) + sum(self.log_likelihood(theta, x) for x in data)

    def log_evidence(self, data: np.ndarray) -> float:
        theta, log_weight = self.grid(data)
        return float(logsumexp(self.log_joint(data, theta) + log_weight))


def line(low: float, high: float, n: int = 400) -> Grid:
    x, w = roots_legendre(n)
    return low + (high - low) * (x + 1) / 2, np.log(w * (high - low) / 2)


def product(*grids: Grid) -> Grid:
    points = np.stack([g.ravel() for g in np.meshgrid(*(p for p, _ in grids), indexing="ij")], -1)
    weights = sum(g.ravel() for g in np.meshgrid(*(w for _, w in grids), indexing="ij"))
    return points, weights  # type: ignore[return-value]


def simplex() -> Grid:
    """(u, (1-u) v, (1-u)(1-v)) with its Jacobian 1 - u."""
    points, weights = product(line(0, 1, 120), line(0, 1, 120))
    u, v = points.T
    return np.stack([u, (1 - u) * v, (1 - u) * (1 - v)], -1), weights + np.log1p(-u)


def squares(high: float, n: int = 400) -> Grid:
    """r^2 for r in (0, high): half-integer powers become whole ones."""
    r, weights = line(0, high, n)
    return r**2, weights + np.log(2 * r)


def mean_and_precision(center: float) -> Grid:
    """Mean and precision; the mean is measured in its own deviations, so that the grid widens where
    the precision is small.
    """
    (precision, w), (z, v) = squares(6.5, 160), line(-20, 20, 400)
    lam, z = (g.ravel() for g in np.meshgrid(precision, z, indexing="ij"))
    weights = (w[:, None] + v).ravel() - 0.5 * np.log(lam)
    return np.stack([center + z / np.sqrt(lam), lam], -1), weights


def matrices() -> Grid:
    """2 x 2 positive-definite matrices L L' with the Jacobian 4 l11^2 l22."""
    points, weights = product(line(0, 6, 60), line(-5, 5, 60), line(0, 6, 60))
    l11, l21, l22 = points.T
    lower = np.stack([np.stack([l11, np.zeros_like(l11)], -1), np.stack([l21, l22], -1)], -2)
    return lower @ lower.swapaxes(-1, -2), weights + np.log(4 * l11**2 * l22)


def beyond(low: float) -> Grid:
    """low / u on (0, 1]."""
    u, weights = line(0, 1, 200)
    return low / u, weights + np.log(low) - 2 * np.log(u)


M0, K0, S0, NU0 = np.array([0.3, -0.2]), 0.7, np.array([[1.5, 0.4], [0.4, 1.1]]), 4.0
VECTORS = np.array([[0.5, 1.2], [-0.3, 0.4], [1.1, -0.6], [0.2, 0.1]])


def log_normal_given_precision(
    lam: np.ndarray, x: np.ndarray, center: np.ndarray, factor: float = 1.0
) -> np.ndarray:
    """log N(x | center, 1 / (factor lam)) for matrices lam, written out."""
    away = x - center
    square = factor * np.einsum("i,qij,j->q", away, lam, away)
    return 0.5 * (np.linalg.slogdet(lam)[1] + 2 * np.log(factor / (2 * np.pi)) - square)


def wishart_log_prior(lam: np.ndarray) -> np.ndarray:
    """scipy's density at one matrix, and from there to the others by hand: scipy goes through them
    one by one.
    """
    kernel = 0.5 * (NU0 - 3) * np.linalg.slogdet(lam)[1] - 0.5 * np.einsum("ij,qji->q", S0, lam)
    return kernel - kernel[0] + stats.wishart(NU0, np.linalg.inv(S0)).logpdf(lam[0])


CASES = [
    Case(
        GaussianMean(m=0.5, t=0.8, s=1.7),
        np.array([1.2, -0.4, 2.2]),
        np.array([0.3, 4.0]),
        lambda mu: stats.norm(0.5, 0.8**-0.5).logpdf(mu),
        lambda mu, x: stats.norm(mu, 1.7**-0.5).logpdf(x),
        lambda data: line(-12, 13),
    ),
    Case(
        GaussianPrecision(a=3.0, b=1.3, m=0.4),
        np.array([1.2, -0.4, 2.2]),
        np.array([0.3, 4.0]),
        lambda lam: stats.gamma(3.0, scale=1 / 1.3).logpdf(lam),
        lambda lam, x: 0.5 * np.log(lam / (2 * np.pi)) - lam * (x - 0.4) ** 2 / 2,
        lambda data: squares(6.5),
    ),
    Case(
        GaussianMeanPrecision(m=0.2, k=0.6, a=3.0, b=1.3),
        np.array([1.2, -0.4, 2.2]),
        np.array([0.3, 3.0]),
        lambda t: (
            stats.gamma(3.0, scale=1 / 1.3).logpdf(t[:, 1])
            + stats.norm(0.2, (0.6 * t[:, 1]) ** -0.5).logpdf(t[:, 0])
        ),
        lambda t, x: stats.norm(t[:, 0], t[:, 1] ** -0.5).logpdf(x),
        lambda data: mean_and_precision(0.2),
    ),
    Case(
        GaussianWishart(m=M0, S=S0, nu=NU0),
        VECTORS,
        np.array([[0.0, 0.0], [2.0, -1.0]]),
        wishart_log_prior,
        lambda lam, x: log_normal_given_precision(lam, x, M0),
        lambda data: matrices(),
    ),
    Case(
        BernoulliBeta(2.0, 3.0),
        np.array([1.0, 1, 0, 1, 1]),
        np.array([0.0, 1.0]),
        lambda p: stats.beta(2, 3).logpdf(p),
        lambda p, x: stats.bernoulli.logpmf(x, p),
        lambda data: line(0, 1),
    ),
    Case(
        MultinomialDirichlet(torch.tensor([2.0, 1.0, 3.0]).double(), trials=3),
        np.array([[1.0, 0, 2], [0, 3, 0], [0, 0, 4]]),
        np.array([[0.0, 1, 2], [3, 0, 0]]),
        lambda p: stats.dirichlet([2.0, 1.0, 3.0]).logpdf(p.T / p.sum(-1)),
        lambda p, x: stats.multinomial(int(x.sum()), p).logpmf(x),
        lambda data: simplex(),
    ),
    Case(
        PoissonGamma(2.0, 0.8),
        np.array([3.0, 0, 5, 2]),
        np.array([0.0, 4.0]),
        lambda r: stats.gamma(2.0, scale=1 / 0.8).logpdf(r),
        lambda r, x: stats.poisson(r).logpmf(x),
        lambda data: line(0, 60),
    ),
    Case(
        UniformPareto(1.5, 2.0),
        np.array([0.2, 2.7, 1.1]),
        np.array([1.0, 4.0]),
        lambda t: stats.pareto(2.0, scale=1.5).logpdf(t),
        lambda t, x: stats.uniform(0, t).logpdf(x),
        lambda data: beyond(max(1.5, *data)),
    ),
]
