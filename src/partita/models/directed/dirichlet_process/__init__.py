"""Dirichlet processes and their mixtures: sticks and urns, conjugate kernels, samplers of
partitions in numba, posterior draws.
"""

from partita.models.directed.dirichlet_process.mixture import DPMixture
from partita.models.directed.dirichlet_process.process import (
    draw_concentration,
    expected_clusters,
    log_partition_prior,
    polya_urn,
    stick_breaking,
)

__all__ = [
    "DPMixture",
    "draw_concentration",
    "expected_clusters",
    "log_partition_prior",
    "polya_urn",
    "stick_breaking",
]
