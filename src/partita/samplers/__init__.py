"""Markov kernels: ``init`` and ``step`` on an explicit state, and ``run`` to collect draws with
their diagnostics.
"""

from partita.samplers.alternating import Alternating
from partita.samplers.ensemble import Ensemble
from partita.samplers.gibbs import Gibbs
from partita.samplers.hmc import HMC
from partita.samplers.informed import Informed
from partita.samplers.langevin import MALA, Langevin
from partita.samplers.nuts import NUTS
from partita.samplers.random_walk import RandomWalk
from partita.samplers.run import Draws, run, sample
from partita.samplers.tempering import Tempering

__all__ = [
    "HMC",
    "MALA",
    "NUTS",
    "Alternating",
    "Draws",
    "Ensemble",
    "Gibbs",
    "Informed",
    "Langevin",
    "RandomWalk",
    "Tempering",
    "run",
    "sample",
]
