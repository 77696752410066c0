"""Bayesian linear regression as a scikit-learn regressor."""

import math
from dataclasses import KW_ONLY, replace
from typing import Any, Self

import numpy as np
import torch
from scipy import stats
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from partita.bayes.conjugate.base import Moments, vector_moments
from partita.bayes.regression import LinearRegression, best_ridge_of_sums
from partita.core.arguments import check_level
from partita.errors import invalid
from partita.estimators._parameters import AutoOrPositive, RandomState, check_types, parameters
from partita.estimators._saved import start_over
from partita.estimators._saved_regression import SavedRegression
from partita.estimators._validation import checked, checked_sample_weight

VAGUE = 1e-6  # shape and rate of the noise precision, for targets of deviation one


@parameters
class BayesianLinearRegression(RegressorMixin, SavedRegression):
    """Linear regression averaged over its posterior: exact Student-t predictions, and the evidence.

    Columns and target are standardized; the intercept has a flat prior, the weights N(0, noise
    variance / ridge).

    Arguments:
        ridge: Prior precision of the weights in units of the noise's, on standardized columns;
            ``"auto"`` maximizes the evidence. It is a prior, not a penalty: a tiny one claims that
            the weights dwarf the noise, and where they do not, intervals come out too narrow.
        random_state, max_minutes: As of every estimator; a closed form needs neither.

    Attributes:
        coef_, intercept_: Posterior means, in the units of X and y.
        posterior_: The :class:`partita.bayes.regression.LinearRegression` of intercept and weights
            on standardized columns.
        ridge_: The one that was used.
        noise_std_: Square root of the posterior mean noise variance, in the units of y.
        log_evidence_: log density of the differences of y given X (the flat intercept takes one
            row), in the units of y.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> X = np.arange(12.0)[:, None]
    >>> y = 3 + 2 * X[:, 0] + np.tile([0.1, -0.1], 6)
    >>> model = BayesianLinearRegression().fit(X, y)
    >>> model.predict([[20.0]]).round(1), model.predict_interval([[20.0]]).round(1)
    (array([42.9]), array([[42.6, 43.3]]))
    """

    ridge: AutoOrPositive = "auto"
    _: KW_ONLY
    random_state: RandomState = None
    max_minutes: float | None = None

    def fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Find the posterior; whole-number weights count rows."""
        start_over(self)
        C, weight = self._rows(X, y, sample_weight, reset=True)
        self._center, self._unit = location_and_scale(C, weight.numpy())
        Z = torch.from_numpy((C - self._center) / self._unit)
        sums, n = Z.mT @ (weight[:, None] * Z), float(weight.sum())
        self._seen_rows, self._sums = n, sums.numpy()
        return self._settle(
            self._prior(sums, n).update(Z[:, :-1], Z[:, -1], weight, centered=True), n
        )

    def partial_fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Take in more rows: the posterior is that of all rows so far, of ``fit`` and of these
        calls, in whatever parts they came.

        Only sums of squares and products are kept, so that rounding shows where the noise is far
        below the spread of y.
        """
        first = "posterior_" not in vars(self)
        C, weight = self._rows(X, y, sample_weight, reset=first)
        unit = location_and_scale(C, weight.numpy())[1] if first else self._unit
        seen = vector_moments(torch.from_numpy(C / unit), weight)
        if not first:
            before = Moments(
                torch.tensor(self._seen_rows),
                torch.from_numpy(self._center / unit),
                torch.from_numpy(self._sums),
            )
            seen = before.joined(seen)
        n, mean = float(seen.n), seen.mean.numpy()
        deviation = np.sqrt(seen.scatter.diagonal().numpy() / n)
        rescale = np.where(deviation > 1e-12 * np.abs(mean), deviation, 1.0)
        self._seen_rows, self._center, self._unit = n, mean * unit, rescale * unit
        self._sums = seen.scatter.numpy() / np.outer(rescale, rescale)
        sums = torch.from_numpy(self._sums)
        return self._settle(
            self._prior(sums, n).absorb(sums[:-1, :-1], sums[:-1, -1], sums[-1, -1], n - 1), n
        )

    def _rows(
        self, X: object, y: object, sample_weight: object, reset: bool
    ) -> tuple[np.ndarray, Tensor]:
        """Columns and, as the last, the target; and the weights."""
        check_types(self)
        table, target = checked(self, X, y, dtype=np.float64, y_numeric=True, reset=reset)
        if target.dtype.kind not in "biuf":
            got = f"{target.dtype} such as {target[0]!r}"
            raise invalid(type(self).__name__, "y", "hold numbers", got)
        weight = torch.from_numpy(checked_sample_weight(self, sample_weight, table))
        return np.column_stack([table, target.astype(np.float64)]), weight

    def _prior(self, sums: Tensor, n: float) -> LinearRegression:
        """The prior on standardized columns, of which, with the target as the last, the squares and
        products are known.
        """
        P = len(sums) - 1
        squares, products = sums[:-1, :-1], sums[:-1, -1]
        self.ridge_ = (
            best_ridge_of_sums(squares, products, float(sums[-1, -1]), n, VAGUE, VAGUE)
            if self.ridge == "auto"
            else float(self.ridge)
        )
        return LinearRegression(
            sums.new_zeros(P), self.ridge_ * torch.eye(P, dtype=sums.dtype), VAGUE, VAGUE
        )

    def _settle(self, after: LinearRegression, n: float) -> Self:
        """What the posterior of the weights on standardized columns says in the units of X
        and y.
        """
        self.shift_, self._y_shift = self._center[:-1], float(self._center[-1])
        self.scale_, self._y_scale = self._unit[:-1], float(self._unit[-1])
        # the intercept: known as well as n rows tell it
        K = torch.block_diag(after.K.new_full((1, 1), n), after.K)
        m = torch.cat([after.m.new_zeros(1), after.m])
        self.posterior_ = replace(after, m=m, K=K)
        self.log_evidence_ = float(after.log_evidence) - (n - 1) * math.log(self._y_scale)
        self.noise_std_ = self._y_scale * math.sqrt(float(after.b) / max(float(after.a) - 1, 0.5))
        self.coef_ = self._y_scale * after.m.numpy() / self.scale_
        self.intercept_ = float(self._y_shift - self.coef_ @ self.shift_)
        return self

    def predict(self, X: object, return_std: bool = False) -> Any:
        """The mean of y at each row, and its standard deviation on request; infinite where there
        are too few rows to have one.
        """
        loc, scale, df = self._predictive(X)
        if not return_std:
            return loc
        return loc, scale * (math.sqrt(df / (df - 2)) if df > 2 else math.inf)

    def predict_interval(self, X: object, level: float = 0.95) -> np.ndarray:
        """Where y lies with probability ``level``, ``(n, 2)``: noise and what is not known of the
        weights.
        """
        check_level("BayesianLinearRegression.predict_interval", level)
        loc, scale, df = self._predictive(X)
        half = scale * stats.t.ppf(0.5 + level / 2, df)
        return np.stack([loc - half, loc + half], 1)

    def log_density(self, X: object, y: object) -> np.ndarray:
        """log p(y | x, data) of each row, in the units of y."""
        loc, scale, df = self._predictive(X)
        return stats.t.logpdf(np.asarray(y, dtype=np.float64), df, loc, scale)

    def _predictive(self, X: object) -> tuple[np.ndarray, np.ndarray, float]:
        """Location, scale and degrees of freedom of y at each row."""
        check_is_fitted(self)
        table = checked(self, X, dtype=np.float64, reset=False)
        t = self.posterior_.predictive(with_ones((table - self.shift_) / self.scale_))
        return (
            self._y_shift + self._y_scale * t.loc.numpy(),
            self._y_scale * t.scale.numpy(),
            float(t.df[0]),
        )


def location_and_scale(X: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and deviation of each column; a constant column keeps its unit."""
    unit = np.abs(X).max(0)
    unit[unit == 0] = 1.0  # squares in units of the largest value neither overflow nor vanish
    mean = np.average(X / unit, axis=0, weights=weight)
    scale = np.sqrt(np.average((X / unit - mean) ** 2, axis=0, weights=weight))
    return mean * unit, np.where(scale > 1e-12 * np.abs(mean), scale * unit, 1.0)


def with_ones(X: np.ndarray) -> Tensor:
    """A column of ones before the others, for the intercept."""
    return torch.from_numpy(np.column_stack([np.ones(len(X)), X]))
