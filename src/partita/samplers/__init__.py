"""Markov kernels: ``init`` and ``step`` on an explicit state, and ``run`` to collect draws with their diagnostics."""

from partita.samplers.gibbs import Gibbs
from partita.samplers.run import Draws, run, sample
from partita.samplers.tempering import Tempering

__all__ = ["Draws", "Gibbs", "Tempering", "run", "sample"]
