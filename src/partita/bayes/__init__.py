"""Bayes: conjugate pairs, regression, mean field, Monte Carlo, and the distributions they need that
torch lacks.

>>> from partita.bayes import PoissonGamma
>>> PoissonGamma(a=2.0, b=1.0).update([3, 5, 1]).posterior
Gamma(concentration: 11.0, rate: 4.0)
"""

from partita.bayes import mean_field
from partita.bayes.conjugate import (
    BernoulliBeta,
    GaussianMean,
    GaussianMeanPrecision,
    GaussianMeanWishart,
    GaussianPrecision,
    GaussianWishart,
    MultinomialDirichlet,
    PoissonGamma,
    UniformPareto,
    empirical_bayes,
)
from partita.bayes.distributions import DirichletMultinomial, MultivariateStudentT, ParetoUniform
from partita.bayes.joint import NormalGamma, NormalWishart
from partita.bayes.montecarlo import (
    control_variates,
    draws_needed,
    expectation,
    from_draws,
    importance,
    integral,
)
from partita.bayes.regression import LinearRegression, logistic_regression

__all__ = [
    "BernoulliBeta",
    "DirichletMultinomial",
    "GaussianMean",
    "GaussianMeanPrecision",
    "GaussianMeanWishart",
    "GaussianPrecision",
    "GaussianWishart",
    "LinearRegression",
    "MultinomialDirichlet",
    "MultivariateStudentT",
    "NormalGamma",
    "NormalWishart",
    "ParetoUniform",
    "PoissonGamma",
    "UniformPareto",
    "control_variates",
    "draws_needed",
    "empirical_bayes",
    "expectation",
    "from_draws",
    "importance",
    "integral",
    "logistic_regression",
    "mean_field",
]
