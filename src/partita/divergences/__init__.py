"""How far apart two distributions are: Kullback-Leibler, f-divergences, kernels on samples, optimal
transport.
"""

from partita.divergences.f_divergence import (
    FDivergence,
    alpha_divergence,
    f_named,
    variational_bound,
    variational_objective,
)
from partita.divergences.kl import bernoulli_kl, estimate_kl, gaussian_kl, kl, normal_kl
from partita.divergences.numeric import estimate_f_divergence, f_divergence
from partita.divergences.samples import coverage, median_bandwidth, mmd2

__all__ = [
    "FDivergence",
    "alpha_divergence",
    "bernoulli_kl",
    "coverage",
    "estimate_f_divergence",
    "estimate_kl",
    "f_divergence",
    "f_named",
    "gaussian_kl",
    "kl",
    "median_bandwidth",
    "mmd2",
    "normal_kl",
    "variational_bound",
    "variational_objective",
]
