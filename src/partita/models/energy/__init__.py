"""Energy models: p(x) = exp(-F(x)) / Z with Z unknown; and the features and graphs they are made
of.
"""

from partita.models.energy.features import Independent, KPairwise, Pairwise
from partita.models.energy.graphs import complete, lattice, torus

__all__ = ["Independent", "KPairwise", "Pairwise", "complete", "lattice", "torus"]
