"""Gradients of expectations: every estimator behind one interface, and the laboratory that measures
them against the truth.
"""

from partita.core.arguments import check_choice
from partita.gradients.base import Estimate, Estimator, State
from partita.gradients.control_variates import NVIL, MuProp
from partita.gradients.latents import Bits, Chain, Continuous, LatentLayer, OneHot
from partita.gradients.multisample import VIMCO, DisARM, LeaveOneOut
from partita.gradients.rebar import Rebar, Relax
from partita.gradients.relaxation import GumbelSoftmax, StraightThrough
from partita.gradients.reparameterization import Reparameterization
from partita.gradients.score_function import MovingAverage, OptimalConstant, Reinforce

__all__ = [
    "ESTIMATORS",
    "NVIL",
    "VIMCO",
    "Bits",
    "Chain",
    "Continuous",
    "DisARM",
    "Estimate",
    "Estimator",
    "GumbelSoftmax",
    "LatentLayer",
    "LeaveOneOut",
    "MovingAverage",
    "MuProp",
    "OneHot",
    "OptimalConstant",
    "Rebar",
    "Reinforce",
    "Relax",
    "Reparameterization",
    "State",
    "StraightThrough",
    "estimator_named",
]

ESTIMATORS: dict[str, type[Estimator]] = {  # of discrete latents
    "reinforce": Reinforce,
    "optimal-constant": OptimalConstant,
    "moving-average": MovingAverage,
    "leave-one-out": LeaveOneOut,
    "nvil": NVIL,
    "muprop": MuProp,
    "gumbel-softmax": GumbelSoftmax,
    "straight-through": StraightThrough,
    "rebar": Rebar,
    "relax": Relax,
    "disarm": DisARM,
    "vimco": VIMCO,
}


def estimator_named(name: str, **settings: float) -> Estimator:
    """An estimator by name.

    >>> estimator_named("leave-one-out", samples=8)
    LeaveOneOut(samples=8)
    """
    check_choice("estimator", "estimator", name, tuple(ESTIMATORS))
    return ESTIMATORS[name](**settings)
