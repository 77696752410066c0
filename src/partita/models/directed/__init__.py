"""Directed models: drawn from the top down, many with an exact density."""

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

__all__ = [
    "GAN",
    "PPCA",
    "VAE",
    "VRNN",
    "Autoregressive",
    "DPMixture",
    "Flow",
    "MaskedAutoregressive",
    "MixedAutoregressive",
    "Mixture",
    "MixturePPCA",
    "SigmoidBelief",
]
