"""Bayesian linear regression as a scikit-learn regressor."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import stats
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from partita.bayes.conjugate.base import Moments, vector_moments
from partita.bayes.regression import LinearRegression, best_ridge_of_sums
from partita.core.checks import check_level, check_real
from partita.errors import invalid
from partita.estimators._parameters import ESTIMATORS
from partita.estimators._saved_regression import SavedRegression
from partita.estimators._validation import checked, checked_weight

VAGUE = 1e-6  # shape and rate of the noise precision, for targets of deviation one


@ESTIMATORS.register
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

    def __init__(
        self,
        ridge: float | str = "auto",
        *,
        random_state: Any = None,
        max_minutes: float | None = None,
    ) -> None:
        self.ridge = ridge
        self.random_state = random_state
        self.max_minutes = max_minutes

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "BayesianLinearRegression":
        """Find the posterior; whole-number weights count rows."""
        C, weight = self._rows(X, y, sample_weight, reset=True)
        self._center, self._unit = location_and_scale(C, weight.numpy())
        Z = torch.from_numpy((C - self._center) / self._unit)
        sums, n = Z.mT @ (weight[:, None] * Z), float(weight.sum())
        self._seen_rows, self._sums = n, sums.numpy()
        return self._settle(
            self._prior(sums, n).update(Z[:, :-1], Z[:, -1], weight, centered=True), n
        )

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "BayesianLinearRegression":
        """Take in more rows: the posterior is that of all rows so far, of ``fit`` and of these
        calls, in whatever parts they came.

        Only sums of squares and products are kept, so that rounding shows where the noise is far
        below the spread of y.
        """
        first = not hasattr(self, "posterior_")
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

    def _rows(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[np.ndarray, Tensor]:
        """Columns and, as the last, the target; and the weights."""
        X, y = checked(self, X, y, dtype=np.float64, y_numeric=True, reset=reset)
        if np.asarray(y).dtype.kind not in "biuf":
            raise invalid(
                type(self).__name__, "y", "hold numbers", f"{np.asarray(y).dtype} such as {y[0]!r}"
            )
        return np.column_stack([X, y.astype(np.float64)]), torch.from_numpy(
            checked_weight(self, sample_weight, X)
        )

    def _prior(self, sums: Tensor, n: float) -> LinearRegression:
        """The prior on standardized columns, of which, with the target as the last, the squares and
        products are known.
        """
        self.ridge_ = self._ridge(sums, n)
        P = len(sums) - 1
        return LinearRegression(
            sums.new_zeros(P), self.ridge_ * torch.eye(P, dtype=sums.dtype), VAGUE, VAGUE
        )

    def _settle(self, after: LinearRegression, n: float) -> "BayesianLinearRegression":
        """What the posterior of the weights on standardized columns says in the units of X
        and y.
        """
        (*shift, self._y_shift), (*scale, self._y_scale) = (
            self._center.tolist(),
            self._unit.tolist(),
        )
        self.shift_, self.scale_ = np.array(shift), np.array(scale)
        # the intercept: known as well as n rows tell it
        K = torch.block_diag(after.K.new_full((1, 1), n), after.K)
        m = torch.cat([after.m.new_zeros(1), after.m])
        self.posterior_ = replace(after, m=m, K=K)
        self.log_evidence_ = float(after.log_evidence) - (n - 1) * math.log(self._y_scale)
        self.noise_std_ = self._y_scale * math.sqrt(float(after.b) / max(float(after.a) - 1, 0.5))
        self.coef_ = self._y_scale * after.m.numpy() / self.scale_
        self.intercept_ = float(self._y_shift - self.coef_ @ self.shift_)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of y at each row, and its standard deviation on request; infinite where there
        are too few rows to have one.
        """
        loc, scale, df = self._predictive(X)
        if not return_std:
            return loc
        return loc, scale * (math.sqrt(df / (df - 2)) if df > 2 else math.inf)

    def predict_interval(self, X: Any, level: float = 0.95) -> np.ndarray:
        """Where y lies with probability ``level``, ``(n, 2)``: noise and what is not known of the
        weights.
        """
        check_level("BayesianLinearRegression.predict_interval", level)
        loc, scale, df = self._predictive(X)
        half = scale * stats.t.ppf(0.5 + level / 2, df)
        return np.stack([loc - half, loc + half], 1)

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """log p(y | x, data) of each row, in the units of y."""
        loc, scale, df = self._predictive(X)
        return stats.t.logpdf(np.asarray(y, dtype=np.float64), df, loc, scale)

    def _predictive(self, X: Any) -> tuple[np.ndarray, np.ndarray, float]:
        """Location, scale and degrees of freedom of y at each row."""
        check_is_fitted(self)
        X = checked(self, X, dtype=np.float64, reset=False)
        t = self.posterior_.predictive(with_ones((X - self.shift_) / self.scale_))
        return (
            self._y_shift + self._y_scale * t.loc.numpy(),
            self._y_scale * t.scale.numpy(),
            float(t.df[0]),
        )

    def _ridge(self, sums: Tensor, n: float) -> float:
        if self.ridge == "auto":
            return best_ridge_of_sums(
                sums[:-1, :-1], sums[:-1, -1], float(sums[-1, -1]), n, VAGUE, VAGUE
            )
        if isinstance(self.ridge, str):
            raise invalid(
                type(self).__name__, "ridge", "be 'auto' or a number above 0", repr(self.ridge)
            )
        return check_real(type(self).__name__, "ridge", self.ridge, 0.0, open_low=True)


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
