"""Evaluators of log Z, each callable as ``evaluator(model, generator=g)``."""

from partita.evaluators.partition.ais import AIS
from partita.evaluators.partition.bridge import Bridge
from partita.evaluators.partition.enumeration import Enumeration
from partita.evaluators.partition.importance.sampling import ImportanceSampling
from partita.evaluators.partition.nested.sampling import NestedSampling
from partita.evaluators.partition.portfolio import Portfolio
from partita.evaluators.partition.quadrature import Quadrature
from partita.evaluators.partition.reverse_ais import ReverseAIS
from partita.evaluators.partition.sandwich import Sandwich
from partita.evaluators.partition.smc import SMC

__all__ = [
    "AIS",
    "SMC",
    "Bridge",
    "Enumeration",
    "ImportanceSampling",
    "NestedSampling",
    "Portfolio",
    "Quadrature",
    "ReverseAIS",
    "Sandwich",
]
