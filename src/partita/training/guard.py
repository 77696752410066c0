"""Watches a fit: numbers that are not finite, losses that run away, chains that do not move, hidden units that died."""

import copy
import math
from typing import Any

import torch
from torch import Tensor

from partita.core.errors import Diverged
from partita.training.settings import Settings

COLUMNS = "Look for huge or constant columns."
LEAST_MOVES = 20  # updates after which chains that stand still are stuck; after fewer they may be unlucky
MOST_RETURNS = 8  # from divergences, each with half the learning rate
EARLY = 0.25  # share of a fit before which a model need not look well
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


class Watch:
    """The looks at a fit along the way: what was found goes into its records, and a fit that diverges may go back to the last good one."""

    def __init__(self, session: Any) -> None:
        self.returns_left = MOST_RETURNS if session.settings.guard == "rollback" else 0
        self.chains, self.looked = _chains(session), session.step
        self.told: set[str] = set()
        self.good = self._state(session)

    def look(self, session: Any, history: Any) -> None:
        """Record new ailments; those of chains and hidden units stay as cautions, a model's own only if they last to the end."""
        moved = session.step - self.looked >= LEAST_MOVES
        found = ailments(session.bare, self.chains if moved else None, _chains(session))
        session.cautions += [caution for caution in found if caution not in session.cautions]
        found += session.bare.ailments() if session.step >= EARLY * session.total else []
        for event in dict.fromkeys(found):
            if event not in self.told:
                history.add({"step": session.step, "event": event})
                self.told.add(event)
        self.chains, self.looked, self.good = _chains(session), session.step, self._state(session)

    def go_back(self, session: Any, history: Any, error: Diverged) -> None:
        """To the last good look, with half the learning rate; raises the error itself where that is not asked for or no longer helps."""
        if not self.returns_left:
            raise error
        diverged_at, scale, cautions = session.step, session.rate_scale / 2, session.cautions
        session.restore(copy.deepcopy(self.good))
        session.rate_scale, self.returns_left = scale, self.returns_left - 1
        history.rewind(session.step)
        why = str(error).removeprefix("fit: ").split(". ")[0]
        event = f"went back from step {diverged_at} to {session.step}, to go on with {scale:g} of the learning rate: {why}."
        history.add({"step": session.step, "event": event})
        session.cautions = [*cautions, event]

    def _state(self, session: Any) -> Any:
        return copy.deepcopy(session.tree()) if self.returns_left else None


def _chains(session: Any) -> Tensor | None:
    chains = getattr(session.state, "chains", None)
    return None if chains is None else chains.x
