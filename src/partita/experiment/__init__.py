"""What people do with models and data: fit, compare, score, impute, find anomalies."""

from partita.experiment.compare import Comparison
from partita.experiment.experiment import Experiment
from partita.experiment.results import Candidate, Result

__all__ = ["Candidate", "Comparison", "Experiment", "Result"]
