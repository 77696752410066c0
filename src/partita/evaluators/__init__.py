"""Evaluators: log Z and log-likelihoods that say what they are."""

from partita.evaluators.likelihood import FromPartition, LogProb, evaluate
from partita.evaluators.partition import AIS, Bridge, Enumeration, ReverseAIS, Sandwich

__all__ = ["AIS", "Bridge", "Enumeration", "FromPartition", "LogProb", "ReverseAIS", "Sandwich", "evaluate"]
