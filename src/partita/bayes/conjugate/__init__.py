"""Conjugate pairs: priors that data turn into posteriors of the same family, with exact predictives
and evidence.

>>> from partita.bayes.conjugate import BernoulliBeta, empirical_bayes
>>> coins = BernoulliBeta(a=2.0, b=2.0)
>>> seen = coins.update([1, 1, 0]).update([1])  # a stream
>>> bool(seen.log_evidence == coins.update([1, 1, 0, 1]).log_evidence)
True
"""

from partita.bayes.conjugate.base import Conjugate
from partita.bayes.conjugate.counts import BernoulliBeta, MultinomialDirichlet, PoissonGamma
from partita.bayes.conjugate.empirical import empirical_bayes
from partita.bayes.conjugate.gaussian import GaussianMean, GaussianMeanPrecision, GaussianPrecision
from partita.bayes.conjugate.uniform import UniformPareto
from partita.bayes.conjugate.wishart import GaussianMeanWishart, GaussianWishart

__all__ = [
    "BernoulliBeta",
    "Conjugate",
    "GaussianMean",
    "GaussianMeanPrecision",
    "GaussianMeanWishart",
    "GaussianPrecision",
    "GaussianWishart",
    "MultinomialDirichlet",
    "PoissonGamma",
    "UniformPareto",
    "empirical_bayes",
]
