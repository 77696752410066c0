"""Scores along the way: exact where the states are few, else a short annealing whose draws leave the fit's own untouched."""

from typing import Any

import torch
from torch import Tensor

from partita.core import rng
from partita.core.capability import CHEAP_BITS, smallest_bits
from partita.core.protocols import EnergyModel, Model
from partita.core.quantity import Quantity
from partita.evaluators import AIS, Enumeration, evaluate
from partita.training.session import VALIDATION

QUICK = AIS(temperatures=400, chains=64)


def quick_score(model: Model, x: Tensor, key: int, step: int) -> Quantity:
    """Mean log-likelihood of held-out rows, cheap enough to repeat; its randomness depends on (key, step) alone."""
    generator = rng.keyed(key, VALIDATION, step)
    if model.device_like.device.type != "cpu":
        generator = torch.Generator(model.device_like.device).manual_seed(generator.initial_seed())
    return evaluate(model, x.to(model.device_like.device), evaluator=_quick(model), generator=generator)


def _quick(model: Model) -> Any:
    """The cheap evaluator for this model; None leaves the choice to the capability table."""
    if not isinstance(model, EnergyModel):
        return None
    return Enumeration() if smallest_bits(model) <= CHEAP_BITS else QUICK
