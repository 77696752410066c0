"""Energy models: p(x) = exp(-F(x)) / Z with Z unknown."""

from partita.models.energy.boltzmann import Boltzmann
from partita.models.energy.features import Independent, KPairwise, Pairwise
from partita.models.energy.graphs import complete, lattice, torus
from partita.models.energy.ising import Ising
from partita.models.energy.latent_energy import LatentEnergy
from partita.models.energy.maxent import MaxEnt
from partita.models.energy.neural_energy import NeuralEnergy
from partita.models.energy.potts import Potts
from partita.models.energy.rbm import RBM

__all__ = [
    "RBM",
    "Boltzmann",
    "Independent",
    "Ising",
    "KPairwise",
    "LatentEnergy",
    "MaxEnt",
    "NeuralEnergy",
    "Pairwise",
    "Potts",
    "complete",
    "lattice",
    "torus",
]
