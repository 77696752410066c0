"""Bayesian logistic regression as a scikit-learn classifier."""

import math
import warnings
from dataclasses import KW_ONLY
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from partita.bayes.regression import LogisticPosterior, logistic_regression
from partita.core.arguments import check_level
from partita.errors import invalid
from partita.estimators._density import as_generator
from partita.estimators._parameters import AutoOrPositive, RandomState, check_types, parameters
from partita.estimators._saved import start_over
from partita.estimators._saved_regression import SavedRegression
from partita.estimators._validation import by_scikit_learn, checked, checked_sample_weight
from partita.estimators.bayesian_linear import location_and_scale, with_ones

INTERCEPT = 0.01  # prior precision of the intercept: a deviation of 10
LOG_RANGE = (-6.0, 9.0)  # of the prior precisions that "auto" looks at


@parameters
class BayesianLogisticRegression(ClassifierMixin, SavedRegression):
    """Logistic regression of two or more classes, averaged over its posterior.

    Arguments:
        prior_precision: Of the weights of the log odds of any two classes, on standardized columns;
            ``"auto"`` maximizes Laplace's evidence.
        prediction: ``"average"`` integrates the weights out; ``"map"`` takes the most probable
            ones, which is surer than the data allow.
        n_draws: Posterior draws that averages are made of, at least 128.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        max_minutes: As of every estimator; Newton's method needs seconds.

    Attributes:
        classes_: The labels.
        coef_, intercept_: The most probable weights, in the units of X: of the log odds of the
            second of two classes, ``(1, P)``, or one row for each of several, ``(K, P)``, summing
            to zero.
        posterior_: The :class:`partita.bayes.regression.LogisticPosterior` on standardized columns.
        draws_: Draws of it; ``draws_.verdict`` says whether averages over them can be trusted.
        prior_precision_: The one that was used.
        log_evidence_: log p(y | X) by Laplace's approximation.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"]
    >>> model = BayesianLogisticRegression(prior_precision=1.0, random_state=0).fit(X, y)
    >>> model.predict([[2.5]]).tolist(), model.predict_interval([[2.5]]).shape
    (['yes'], (1, 2))
    """

    prior_precision: AutoOrPositive = "auto"
    _: KW_ONLY
    prediction: Literal["average", "map"] = "average"
    n_draws: int = 4000
    random_state: RandomState = None
    max_minutes: float | None = None

    def fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Find the posterior and draw from it; whole-number weights count rows."""
        start_over(self)
        check_types(self)
        table, target = checked(self, X, y, dtype=np.float64)
        weight = checked_sample_weight(self, sample_weight, table)
        self.classes_, labels = classes_of(type(self).__name__, target, weight)
        self.shift_, self.scale_ = location_and_scale(table, weight)
        Z = with_ones((table - self.shift_) / self.scale_)
        t, w = torch.from_numpy(labels), torch.from_numpy(weight)
        given = self.prior_precision
        self.prior_precision_ = best_precision(Z, t, w) if given == "auto" else float(given)
        self.posterior_ = posterior_at(self.prior_precision_, Z, t, w)
        self.draws_ = self.posterior_.draw(self.n_draws, generator=as_generator(self.random_state))
        if self.draws_.verdict == "do not publish":
            text = (
                f"{type(self).__name__}: the chains are {self.draws_.details['mixing']}. "
                "Raise n_draws or prior_precision."
            )
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        self.log_evidence_ = float(self.posterior_.log_evidence)
        posterior, two = self.posterior_, len(self.classes_) == 2
        mode = (posterior.map[None] if two else posterior.class_weights).numpy()
        self.coef_ = mode[:, 1:] / self.scale_
        self.intercept_ = mode[:, 0] - self.coef_ @ self.shift_
        return self

    def predict_proba(self, X: object) -> np.ndarray:
        """p(y | x, data) of every class at each row, ``(n, K)``."""
        Z, average = self._standardized(X), self.prediction == "average"
        return (self.draws_.average(Z) if average else self.posterior_.at_mode(Z)).numpy()

    def decision_function(self, X: object) -> np.ndarray:
        """Log odds of the second of two classes, ``(n,)``, or the log probability of each of
        several, ``(n, K)``.
        """
        log_p = np.log(np.maximum(self.predict_proba(X), 1e-300))
        return log_p[:, 1] - log_p[:, 0] if len(self.classes_) == 2 else log_p

    def predict(self, X: object) -> np.ndarray:
        """The most probable class."""
        found = self.decision_function(X)
        return self.classes_[(found > 0).astype(int) if found.ndim == 1 else found.argmax(1)]

    def predict_interval(self, X: object, level: float = 0.95) -> np.ndarray:
        """Where a class's probability lies with probability ``level``: of the second of two, ``(n,
        2)``, or of each, ``(n, K, 2)``.
        """
        check_level("BayesianLogisticRegression.predict_interval", level)
        ends = torch.tensor([0.5 - level / 2, 0.5 + level / 2], dtype=torch.float64)
        found = self.draws_.quantiles(self._standardized(X), ends).numpy()
        return found[:, 1] if len(self.classes_) == 2 else found

    def _standardized(self, X: object) -> Tensor:
        check_is_fitted(self)
        table = checked(self, X, dtype=np.float64, reset=False)
        return with_ones((table - self.shift_) / self.scale_)


def posterior_at(
    precision: float, Z: Tensor, t: Tensor, w: Tensor, start: Tensor | None = None
) -> LogisticPosterior:
    """The posterior whose first column is an intercept with a wide prior of its own."""
    A = torch.full((Z.shape[1],), precision, dtype=Z.dtype)
    A[0] = INTERCEPT
    return logistic_regression(Z, t, A, w, start=start)


def best_precision(Z: Tensor, t: Tensor, w: Tensor) -> float:
    """The prior precision of largest Laplace evidence, its logarithm to three decimals, which
    rounding of the rows does not move.
    """
    from scipy import optimize

    mode: Tensor | None = None

    def loss(log_precision: float) -> float:
        nonlocal mode  # where the search for the next begins
        found = posterior_at(math.exp(log_precision), Z, t, w, mode)
        mode = found.map
        return -float(found.log_evidence)

    found: Any = optimize.minimize_scalar(
        loss, bounds=LOG_RANGE, method="bounded", options={"xatol": 1e-4}
    )
    return math.exp(round(float(found.x), 3))


def classes_of(owner: str, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The labels, and y as their numbers; each must be among the rows that count."""
    with by_scikit_learn(owner):
        check_classification_targets(y)
    classes, labels = np.unique(y, return_inverse=True)
    if len(np.unique(labels[weight > 0])) < 2:
        raise invalid(owner, "y", "hold two classes", "one class")
    return classes, labels
