"""What a gradient learner minimises, and the two phases that make the likelihood gradient."""

from partita.objectives.cd import CD
from partita.objectives.exact import ExactLikelihood
from partita.objectives.pcd import PCD
from partita.objectives.phases import negative_phase, positive_phase

__all__ = ["CD", "PCD", "ExactLikelihood", "negative_phase", "positive_phase"]
