"""Probability models, by family."""

from partita.models.directed import (
    GAN,
    PPCA,
    VAE,
    VRNN,
    Autoregressive,
    DPMixture,
    Flow,
    MaskedAutoregressive,
    MixedAutoregressive,
    Mixture,
    MixturePPCA,
    SigmoidBelief,
)
from partita.models.encoder import Encoder
from partita.models.energy import RBM, Boltzmann, Ising, LatentEnergy, MaxEnt, NeuralEnergy, Potts, complete, lattice, torus

__all__ = [
    "GAN",
    "PPCA",
    "RBM",
    "VAE",
    "VRNN",
    "Autoregressive",
    "Boltzmann",
    "DPMixture",
    "Encoder",
    "Flow",
    "Ising",
    "LatentEnergy",
    "MaskedAutoregressive",
    "MaxEnt",
    "MixedAutoregressive",
    "Mixture",
    "MixturePPCA",
    "NeuralEnergy",
    "Potts",
    "SigmoidBelief",
    "complete",
    "lattice",
    "torus",
]
