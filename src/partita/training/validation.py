r"""Scores during a fit, and when they come.

A score is exact where the states are few, else a short annealing whose draws leave the fit's own
untouched. Scores come closely at first, where a small set may soon be learned by heart, then less
often:

.. math:: t_i = \lfloor T \, (i / V)^2 \rfloor, \qquad i = 1, \dots, V

Letters: T steps in all, V validations, t the steps after which they come. The health of the fit is
checked as often, evenly spread: a good state to go back to must not be the one just before a
divergence.
"""

import math
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from partita.core import rng
from partita.core.capability import CHEAP_BITS, NEEDS, smallest_bits
from partita.core.protocols import (
    Capability,
    EnergyModel,
    LikelihoodEvaluator,
    Model,
    PartitionEvaluator,
)
from partita.core.quantity import Quantity
from partita.evaluators import (
    AIS,
    IWAE,
    MMD,
    Enumeration,
    Quadrature,
    Sandwich,
    TwoSample,
    evaluate,
)
from partita.training.session import VALIDATION, Session

LEAST_ESS = 1.5  # chains that carry the weight; with fewer an annealing has found nothing
QUICK = AIS(temperatures=400, chains=64, witnesses=False)
# training rows show the modes that annealing misses
QUICK_FROM_BOTH_SIDES = Sandwich(temperatures=300, chains=64, start="data")
QUICK_DISTANCE = TwoSample(MMD(permutations=0, rows=1000))
# its pilot for step sizes costs as much
QUICK_BY_GRADIENT = AIS(temperatures=150, chains=64, adaptive=False, witnesses=False)
QUICK_BOUND = IWAE(k=16, simulated=0)  # of which the low end is read, and no verdict
QUICK_INTEGRAL = Quadrature(tolerance=1e-3)

Evaluator: TypeAlias = LikelihoodEvaluator | PartitionEvaluator


def quick_score(model: Model, x: Tensor, key: int, step: int) -> Quantity:
    """Mean log-likelihood of validation rows, cheap enough to repeat; its randomness depends on
    (key, step) alone.
    """
    device = model.like.device
    generator = rng.keyed(key, VALIDATION, step)
    if device.type != "cpu":
        generator = torch.Generator(device).manual_seed(generator.initial_seed())
    q = evaluate(model, x.to(device), evaluator=quick_evaluator(model), generator=generator)
    return -q if q.kind == "none" else q  # a distance, of which less is better


def pessimistic(q: Quantity) -> float:
    """The low end of the interval, by which weights are compared: a short annealing that fails
    flatters the model.

    A score that gives the validation rows more than all the mass there is, or that hangs on one
    chain, is no score.
    """
    failed = "mass_of_rows" in q.details or q.details.get("ess", LEAST_ESS) < LEAST_ESS
    return -math.inf if failed else q.low


def quick_evaluator(model: Model) -> Evaluator | None:
    """The cheap evaluator for this model; None leaves the choice to the capability table."""
    if Capability.LATENT in model.capabilities:
        return QUICK_BOUND
    if not isinstance(model, EnergyModel):
        return QUICK_DISTANCE if Capability.GENERATES in model.capabilities else None
    if smallest_bits(model) <= CHEAP_BITS:
        return Enumeration()
    if NEEDS["cheap_exact"].holds(model):
        return QUICK_INTEGRAL
    if not NEEDS["gibbs"].holds(model):
        return QUICK_BY_GRADIENT
    return QUICK if model.anchor_rows(1) is None else QUICK_FROM_BOTH_SIDES


class ValidationSchedule(NamedTuple):
    """The steps of all validations, the number of steps, and the mean distance between two
    validations, by which patience is counted.
    """

    steps: frozenset[int]
    total: int
    gap: int

    def scores(self, step: int) -> bool:
        """Whether validation rows are scored after a step."""
        return step in self.steps

    def checks_health(self, step: int) -> bool:
        """Whether the guard checks the fit after a step."""
        return step % self.gap == 0 or step == self.total

    def missed(self, step: int, best: int) -> int:
        """How many validations, had they been spread evenly, would have followed the best one."""
        return (step - best) // self.gap


def schedule_of(session: Session) -> ValidationSchedule:
    """As many validations as the settings say, the last at the last step; or one every so many
    epochs.

    A fit of 400 steps with four validations has them after 25, 100, 225 and 400.
    """
    total, count = session.total, session.settings.validations
    if session.settings.validate_every is not None:
        gap = session.settings.validate_every * session.steps_per_epoch
        return ValidationSchedule(frozenset([*range(gap, total, gap), total]), total, gap)
    steps = frozenset(max(1, total * i * i // count**2) for i in range(1, count + 1))
    return ValidationSchedule(steps, total, max(1, total // count))
