"""What a gradient learner minimizes, and the two phases that make the likelihood gradient."""

from partita.objectives.adversarial import Adversarial
from partita.objectives.bounds import ELBO, FIVO, IWAEBound
from partita.objectives.cd import CD, PCD
from partita.objectives.collapsed_gibbs import CollapsedGibbs
from partita.objectives.contrastive import PCL
from partita.objectives.discrete_elbo import DiscreteELBO
from partita.objectives.em import EM, ClosedForm, OnlineEM
from partita.objectives.exact import ExactLikelihood
from partita.objectives.instantiated_gibbs import InstantiatedGibbs
from partita.objectives.map import MAP
from partita.objectives.nce import NCE
from partita.objectives.phases import negative_phase, positive_phase
from partita.objectives.score_matching import ScoreMatching
from partita.objectives.sites import PseudoLikelihood, RatioMatching

__all__ = [
    "CD",
    "ELBO",
    "EM",
    "FIVO",
    "MAP",
    "NCE",
    "PCD",
    "PCL",
    "Adversarial",
    "ClosedForm",
    "CollapsedGibbs",
    "DiscreteELBO",
    "ExactLikelihood",
    "IWAEBound",
    "InstantiatedGibbs",
    "OnlineEM",
    "PseudoLikelihood",
    "RatioMatching",
    "ScoreMatching",
    "negative_phase",
    "positive_phase",
]
