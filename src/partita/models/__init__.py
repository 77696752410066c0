"""Probability models, by family."""

from partita.models.energy import RBM, MaxEnt

__all__ = ["RBM", "MaxEnt"]
