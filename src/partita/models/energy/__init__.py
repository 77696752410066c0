"""Energy models: p(x) = exp(-F(x)) / Z with Z unknown."""

from partita.models.energy.features import Independent, KPairwise, Pairwise
from partita.models.energy.maxent import MaxEnt
from partita.models.energy.rbm import RBM

__all__ = ["RBM", "Independent", "KPairwise", "MaxEnt", "Pairwise"]
