"""Diagnostics: have the chains mixed, can the weights be trusted."""

from partita.diagnostics.chains import ChainReport, summarize_chains
from partita.diagnostics.partitions import (
    CredibleBall,
    PartitionPosterior,
    cluster_count_probs,
    coclustering,
    credible_ball,
    enumerate_posterior,
    point_estimate,
    summarize_partitions,
)
from partita.diagnostics.weights import WeightReport, pareto_khat, summarize_weights

__all__ = [
    "ChainReport",
    "CredibleBall",
    "PartitionPosterior",
    "WeightReport",
    "cluster_count_probs",
    "coclustering",
    "credible_ball",
    "enumerate_posterior",
    "pareto_khat",
    "point_estimate",
    "summarize_chains",
    "summarize_partitions",
    "summarize_weights",
]
