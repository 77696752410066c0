"""Settings that win, by model and objective: what ``fit`` uses where nothing is said."""

from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from partita.core.errors import invalid
from partita.core.protocols import EnergyModel, Model
from partita.training.settings import Settings

NAMES = tuple(field.name for field in fields(Settings))

EXACT = {"optimizer": "lbfgs", "batch_size": 0, "average": 0.0}
GAUSSIAN = {"optimizer": "adam", "learning_rate": 2e-3}
UPDATES = {"batch_size": 0, "average": 0.0, "epochs": 500, "tolerance": 1e-6}
DIRECTED = {"optimizer": "adam", "learning_rate": 1e-3, "schedule": "cosine"}
FEATURES = {"optimizer": "adam", "learning_rate": 0.02, "l2": 1e-4}


def default_settings(model: Model, objective: Any, n: int) -> dict[str, Any]:
    """The defaults for this model, objective and number of rows."""
    if hasattr(objective, "update"):
        return dict(UPDATES)
    if type(objective).__name__ == "ExactLikelihood" and isinstance(model, EnergyModel):
        return {**EXACT, "epochs": 100}
    batch_size = batch_size_for(n)
    chosen = FEATURES if isinstance(model, EnergyModel) else DIRECTED
    if "centering" in model.offers:
        chosen = {"optimizer": "sgd", "learning_rate": centred_rate(batch_size)} if model.support.discrete else GAUSSIAN
    return {**chosen, "batch_size": batch_size, "epochs": epochs_for(n)}


def centred_rate(batch_size: int) -> float:
    """0.2 at 250 rows a batch, less where smaller batches are noisier."""
    return round(0.2 * (batch_size / 250) ** 0.5, 4)


def batch_size_for(n: int) -> int:
    """About a fortieth of the data, between 16 and 250."""
    return max(16, min(250, n // 40))


def epochs_for(n: int) -> int:
    """Enough passes for about 10,000 updates, at least 10, at most 200 except to reach 1,000 updates."""
    updates = max(1, n // batch_size_for(n))
    return max(10, min(200, 10_000 // updates), -(-1_000 // updates))


def resolve_settings(model: Model, objective: Any, n: int, options: dict[str, Any]) -> Settings:
    """What was said, over the defaults; of epochs, steps and minutes only what was said counts."""
    for name in options:
        if name not in NAMES:
            hint = get_close_matches(name, NAMES, 1, 0.5)
            remedy = f"Did you mean {hint[0]!r}?" if hint else ""
            raise invalid("fit", "an option", f"be one of {', '.join(NAMES)}", repr(name), remedy)
    chosen = default_settings(model, objective, n)
    said = {name: value for name, value in options.items() if value is not None}
    if said.keys() & {"epochs", "steps", "minutes"}:
        chosen.pop("epochs")
    if said.get("optimizer", chosen.get("optimizer")) != chosen.get("optimizer"):
        chosen = {"epochs": chosen.get("epochs"), "batch_size": 0 if said["optimizer"] == "lbfgs" else batch_size_for(n)}
    return Settings(**{**chosen, **said})
