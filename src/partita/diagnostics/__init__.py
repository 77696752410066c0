"""Diagnostics: have the chains mixed, can the weights be trusted."""

from partita.diagnostics.chains import ChainReport, summarise_chains
from partita.diagnostics.weights import WeightReport, pareto_khat, summarise_weights

__all__ = ["ChainReport", "WeightReport", "pareto_khat", "summarise_chains", "summarise_weights"]
