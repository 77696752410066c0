"""Steepest descent in the geometry of the model's own distribution: metrics, and an optimizer that
uses them.
"""

from partita.optim.natural_gradient.closed_form import (
    bernoulli_fisher,
    categorical_fisher,
    fisher_of,
    gaussian_fisher,
)
from partita.optim.natural_gradient.kfac import KFAC, KroneckerMetric
from partita.optim.natural_gradient.metrics import (
    MatrixMetric,
    Metric,
    PredictiveMetric,
    ScoreMetric,
    SumMetric,
)
from partita.optim.natural_gradient.optimizer import NaturalGradient
from partita.optim.natural_gradient.scores import Scores, fisher_matrix, score_metric, scores_of

__all__ = [
    "KFAC",
    "KroneckerMetric",
    "MatrixMetric",
    "Metric",
    "NaturalGradient",
    "PredictiveMetric",
    "ScoreMetric",
    "Scores",
    "SumMetric",
    "bernoulli_fisher",
    "categorical_fisher",
    "fisher_matrix",
    "fisher_of",
    "gaussian_fisher",
    "score_metric",
    "scores_of",
]
