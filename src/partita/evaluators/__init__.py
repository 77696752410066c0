"""Evaluators: log Z and log-likelihoods that say what they are."""

from partita.evaluators.importance import IWAE, simulated_bounds
from partita.evaluators.latent_ais import LatentAIS
from partita.evaluators.likelihood import FromPartition, LogProb, evaluate
from partita.evaluators.particle_filter import ParticleFilter
from partita.evaluators.partition import (
    AIS,
    SMC,
    Bridge,
    Enumeration,
    ImportanceSampling,
    NestedSampling,
    Portfolio,
    Quadrature,
    ReverseAIS,
    Sandwich,
)
from partita.evaluators.posterior_average import PosteriorAverage
from partita.evaluators.two_sample import MMD, ClassifierTest, TwoSample

__all__ = [
    "AIS",
    "IWAE",
    "MMD",
    "SMC",
    "Bridge",
    "ClassifierTest",
    "Enumeration",
    "FromPartition",
    "ImportanceSampling",
    "LatentAIS",
    "LogProb",
    "NestedSampling",
    "ParticleFilter",
    "Portfolio",
    "PosteriorAverage",
    "Quadrature",
    "ReverseAIS",
    "Sandwich",
    "TwoSample",
    "evaluate",
    "simulated_bounds",
]
