"""Directed models: drawn from the top down, many with an exact density."""

from partita.models.directed.autoregressive import Autoregressive, MaskedAutoregressive
from partita.models.directed.dirichlet_process import DPMixture
from partita.models.directed.flow import Flow
from partita.models.directed.gan import GAN
from partita.models.directed.mixture import Mixture
from partita.models.directed.ppca import PPCA, MixturePPCA

__all__ = ["GAN", "PPCA", "Autoregressive", "DPMixture", "Flow", "MaskedAutoregressive", "Mixture", "MixturePPCA"]
