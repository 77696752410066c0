"""How families of energy models name the objectives they are fitted by."""

from typing import Any

from partita.core.protocols import Objective
from partita.objectives import CD, PCD, ExactLikelihood
from partita.samplers import Gibbs, Tempering
from partita.training.families.base import Setting

OBJECTIVES = ("pcd", "cd", "exact", "tempered")

CHAINS = {
    "chains": Setting(256, "Markov chains of the negative phase (pcd, tempered)"),
    "k": Setting(1, "sampler steps between two updates, as in CD-k and PCD-k"),
}


def named_objective(settings: dict[str, Any]) -> Objective:
    """The objective that a family's settings ask for."""
    name, k, centered = settings["objective"], settings["k"], settings.get("centered")
    if name == "exact":
        return ExactLikelihood()
    if name == "cd":
        return CD(steps=k, centered=centered)
    sampler = Tempering(Gibbs()) if name == "tempered" else None
    return PCD(sampler, chains=settings["chains"], steps=k, centered=centered)
