"""Scores along the way: exact where the states are few, else a short annealing whose draws leave the fit's own untouched."""

import torch
from torch import Tensor

from partita.core import rng
from partita.core.capability import CHEAP_BITS, smallest_bits
from partita.core.protocols import EnergyModel
from partita.core.quantity import Quantity
from partita.evaluators import AIS, Enumeration, evaluate
from partita.training.session import VALIDATION

QUICK = AIS(temperatures=400, chains=64)


def quick_score(model: EnergyModel, x: Tensor, key: int, step: int) -> Quantity:
    """Mean log-likelihood of held-out rows, cheap enough to repeat; its randomness depends on (key, step) alone."""
    evaluator = Enumeration() if smallest_bits(model) <= CHEAP_BITS else QUICK
    generator = rng.keyed(key, VALIDATION, step)
    if model.device_like.device.type != "cpu":
        generator = torch.Generator(model.device_like.device).manual_seed(generator.initial_seed())
    return evaluate(model, x.to(model.device_like.device), evaluator=evaluator, generator=generator)
