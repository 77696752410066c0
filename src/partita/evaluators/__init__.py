"""Evaluators: log Z and log-likelihoods that say what they are."""

from partita.evaluators.likelihood import FromPartition, LogProb, evaluate
from partita.evaluators.partition import AIS, Bridge, Enumeration, Quadrature, ReverseAIS, Sandwich
from partita.evaluators.posterior_average import PosteriorAverage
from partita.evaluators.two_sample import MMD, ClassifierTest, TwoSample

__all__ = [
    "AIS",
    "MMD",
    "Bridge",
    "ClassifierTest",
    "Enumeration",
    "FromPartition",
    "LogProb",
    "PosteriorAverage",
    "Quadrature",
    "ReverseAIS",
    "Sandwich",
    "TwoSample",
    "evaluate",
]
