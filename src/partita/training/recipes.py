"""Settings that win, by model and objective: what ``fit`` uses where nothing is said."""

from typing import Any

from partita.core.protocols import EnergyModel
from partita.training.settings import Settings

EXACT = {"optimizer": "lbfgs", "batch_size": 0, "average": 0.0}
CENTRED_SGD = {"optimizer": "sgd", "learning_rate": 0.1}
GAUSSIAN_SGD = {"optimizer": "adam", "learning_rate": 2e-3}
ADAM = {"optimizer": "adam", "learning_rate": 0.01}


def default_settings(model: EnergyModel, objective: Any, n: int) -> dict[str, Any]:
    """The defaults for this model, objective and number of rows."""
    name = type(objective).__name__
    if name == "ExactLikelihood":
        return {**EXACT, "epochs": 100}
    chosen = ADAM
    if "centering" in model.offers:
        chosen = CENTRED_SGD if model.support.discrete else GAUSSIAN_SGD
    return {**chosen, "batch_size": batch_size_for(n), "epochs": epochs_for(n)}


def batch_size_for(n: int) -> int:
    """About a fortieth of the data, between 16 and 250."""
    return max(16, min(250, n // 40))


def epochs_for(n: int) -> int:
    """Enough passes for about 10,000 updates, between 10 and 200."""
    updates = max(1, n // batch_size_for(n))
    return max(10, min(200, 10_000 // updates))


def resolve_settings(model: EnergyModel, objective: Any, n: int, options: dict[str, Any]) -> Settings:
    """What was said, over the defaults; of epochs, steps and minutes only what was said counts."""
    chosen = default_settings(model, objective, n)
    said = {name: value for name, value in options.items() if value is not None}
    if said.keys() & {"epochs", "steps", "minutes"}:
        chosen.pop("epochs")
    if said.get("optimizer", chosen["optimizer"]) != chosen["optimizer"]:
        chosen = {"epochs": chosen.get("epochs"), "batch_size": 0 if said["optimizer"] == "lbfgs" else batch_size_for(n)}
    return Settings(**{**chosen, **said})
