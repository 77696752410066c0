"""What the families of pairwise models share: the objective that is chosen where none is named, and
the settings.
"""

from typing import Any

from partita.core import capability
from partita.core.checks import check_choice
from partita.core.protocols import Model, Objective
from partita.families.base import Setting
from partita.families.by_gradient import CHAINS, OBJECTIVES, named_objective

AUTO_EXACT_BITS = 16  # a support of at most 2^16 states is summed at every step of a fit by default

OBJECTIVE = Setting(
    "auto",
    "exact, pcd, cd, tempered, pseudo-likelihood, ratio-matching, nce, or auto: exact up to 2^16 "
    "states, else pcd",
)
EDGES = Setting(
    None, "pairs of columns that are coupled, as [[0, 1], [1, 2]]; none couples all pairs"
)
SETTINGS = {"edges": EDGES, "objective": OBJECTIVE, **CHAINS}


def pair_objective(owner: str, model: Model, settings: dict[str, Any]) -> Objective:
    """The objective named, or the likelihood itself where its states are few."""
    check_choice(owner, "objective", settings["objective"], ("auto", *OBJECTIVES))
    if settings["objective"] != "auto":
        return named_objective(settings, model)
    few = capability.smallest_bits(model) <= AUTO_EXACT_BITS
    return named_objective({**settings, "objective": "exact" if few else "pcd"}, model)
