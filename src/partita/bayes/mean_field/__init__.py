"""Mean field: coordinate ascent over factors with the true ELBO."""

from partita.bayes.mean_field.engine import (
    MeanField,
    check_conjugacy,
    coordinate_ascent,
    elbo,
    natural_parameters,
    update,
)
from partita.bayes.mean_field.factors import (
    CategoricalFactor,
    DirichletFactor,
    Factor,
    GammaFactor,
    GaussianFactor,
    NormalWishartFactor,
)
from partita.bayes.mean_field.gaussian import gaussian
from partita.bayes.mean_field.mixture import GaussianMixture, gaussian_mixture
from partita.bayes.mean_field.regression import linear_regression

__all__ = [
    "CategoricalFactor",
    "DirichletFactor",
    "Factor",
    "GammaFactor",
    "GaussianFactor",
    "GaussianMixture",
    "MeanField",
    "NormalWishartFactor",
    "check_conjugacy",
    "coordinate_ascent",
    "elbo",
    "gaussian",
    "gaussian_mixture",
    "linear_regression",
    "natural_parameters",
    "update",
]
