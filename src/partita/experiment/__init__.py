"""What people do with models and data: fit, compare, score, impute, find anomalies."""

from partita.experiment.compare import Candidate, Comparison, Result
from partita.experiment.experiment import Experiment

__all__ = ["Candidate", "Comparison", "Experiment", "Result"]
