"""Watches a fit: numbers that are not finite, losses that run away, chains that do not move, hidden units that died."""

import math
from typing import Any

import torch
from torch import Tensor

from partita.core.errors import Diverged
from partita.training.settings import Settings

COLUMNS = "Look for huge or constant columns."
RUNAWAY_NATS_PER_COLUMN = 20.0  # a loss this far from zero, per coordinate, is no longer a learning signal


def check_losses(losses: dict[str, Tensor], step: int, width: float, settings: Settings) -> dict[str, float]:
    """The losses as numbers; raises :class:`Diverged` naming the term that is not finite or ran away."""
    values = {name: float(loss.detach()) for name, loss in losses.items()}
    for name, value in values.items():
        if not math.isfinite(value) or abs(value) > RUNAWAY_NATS_PER_COLUMN * width:
            raise Diverged(f"fit: the loss of {name!r} must stay finite and small; got {value:.4g} at step {step}. {remedy(settings)}")
    return values


def check_finite(record: dict[str, float], step: int) -> None:
    """Raise :class:`Diverged` naming the number of a closed-form update that is not finite."""
    for name, value in record.items():
        if not math.isfinite(value):
            raise Diverged(f"fit: {name!r} must stay finite; got {value:.4g} at update {step}. {COLUMNS}")


def remedy(settings: Settings) -> str:
    """What to change when a fit diverges."""
    if settings.optimizer == "lbfgs":
        return "Standardise real columns, give a penalty such as l2=1e-3, or learn by PCD()."
    return f"Lower learning_rate (now {settings.learning_rate:g}), for example to {settings.learning_rate / 10:g}."


@torch.no_grad()
def ailments(model: Any, before: Tensor | None, after: Tensor | None) -> list[str]:
    """What looks wrong but need not stop a fit, each in one sentence with its remedy."""
    found = []
    if before is not None and after is not None and before.shape == after.shape and bool((before == after).all()):
        found.append("no chain has moved since the last look; lower learning_rate, or temper: PCD(Tempering(Gibbs())).")
    if after is not None and hasattr(model, "hidden_given_visible"):
        p = model.hidden_given_visible(after.to(model.device_like)).probs.mean(0)
        if bool(((p < 1e-3) | (p > 1 - 1e-3)).double().mean() > 0.5):
            found.append("more than half of the hidden units are always on or always off; lower learning_rate or use fewer of them.")
    return found
