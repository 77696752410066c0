"""Diagnostics: have the chains mixed, can the weights be trusted."""

from partita.diagnostics.chains import ChainReport, summarise_chains
from partita.diagnostics.partitions import (
    CredibleBall,
    PartitionPosterior,
    cluster_count_probs,
    coclustering,
    credible_ball,
    enumerate_posterior,
    point_estimate,
    summarise_partitions,
)
from partita.diagnostics.weights import WeightReport, pareto_khat, summarise_weights

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
    "summarise_chains",
    "summarise_partitions",
    "summarise_weights",
]
