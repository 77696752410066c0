"""Probability models, by family."""

from partita.models.directed import GAN, PPCA, Autoregressive, DPMixture, Flow, MaskedAutoregressive, Mixture, MixturePPCA
from partita.models.energy import RBM, Boltzmann, Ising, LatentEnergy, MaxEnt, NeuralEnergy, Potts, complete, lattice, torus

__all__ = [
    "GAN",
    "PPCA",
    "RBM",
    "Autoregressive",
    "Boltzmann",
    "DPMixture",
    "Flow",
    "Ising",
    "LatentEnergy",
    "MaskedAutoregressive",
    "MaxEnt",
    "Mixture",
    "MixturePPCA",
    "NeuralEnergy",
    "Potts",
    "complete",
    "lattice",
    "torus",
]
