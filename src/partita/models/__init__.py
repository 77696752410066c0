"""Probability models, by family; every registered one is an attribute of this package."""

from partita.core.protocols import Model
from partita.core.registry import MODELS
from partita.models.directed.autoregressive import (
    Autoregressive,
    MaskedAutoregressive,
    MixedAutoregressive,
)
from partita.models.directed.belief import SigmoidBelief
from partita.models.directed.dirichlet_process import DPMixture
from partita.models.directed.flow import Flow
from partita.models.directed.gan import GAN
from partita.models.directed.mixture import Mixture
from partita.models.directed.ppca import PPCA, MixturePPCA
from partita.models.directed.vae import VAE
from partita.models.directed.vrnn import VRNN
from partita.models.encoder import Encoder
from partita.models.energy.boltzmann import Boltzmann
from partita.models.energy.graphs import complete, lattice, torus
from partita.models.energy.ising import Ising
from partita.models.energy.latent_energy import LatentEnergy
from partita.models.energy.maxent import MaxEnt
from partita.models.energy.neural_energy import NeuralEnergy
from partita.models.energy.potts import Potts
from partita.models.energy.rbm import RBM

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


def __getattr__(name: str) -> type[Model]:
    if name.startswith("_") or name not in MODELS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return MODELS[name]
