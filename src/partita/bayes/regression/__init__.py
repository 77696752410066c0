"""Discriminative models: p(y | x, w) with a prior on w, and the average over what the data leave
open.
"""

from partita.bayes.regression.linear import LinearRegression, best_ridge, best_ridge_of_sums
from partita.bayes.regression.logistic import LogisticPosterior, PosteriorDraws, logistic_regression

__all__ = [
    "LinearRegression",
    "LogisticPosterior",
    "PosteriorDraws",
    "best_ridge",
    "best_ridge_of_sums",
    "logistic_regression",
]
