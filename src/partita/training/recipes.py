"""Settings that win, by model and objective: what ``fit`` uses where nothing is said."""

from dataclasses import fields
from difflib import get_close_matches
from typing import Any

import numpy as np

from partita.core.protocols import Capability, EnergyModel, Model
from partita.errors import invalid
from partita.training.settings import Settings

NAMES = tuple(field.name for field in fields(Settings))

NATURAL = {"learning_rate": 0.2, "damping": 0.03}  # of a Fisher matrix that chains estimate
# draws are fewer than the parameters of a network: most directions are damped
NATURAL_DIRECTED = {"learning_rate": 1.0, "damping": 1.0}
# Newton's step where the loss allows it
NATURAL_EXACT = {"learning_rate": 1.0, "schedule": "constant", "batch_size": 0, "average": 0.0}
EXACT = {"optimizer": "lbfgs", "batch_size": 0, "average": 0.0}
# large batches have little noise
EXACT_STREAMED = {"optimizer": "adam", "learning_rate": 0.1, "schedule": "cosine"}
GAUSSIAN = {"optimizer": "adam", "learning_rate": 2e-3}
OF_OPTIMIZERS = (
    "batch_size",
    "optimizer",
    "learning_rate",
    "momentum",
    "schedule",
    "average",
    "l1",
    "l2",
)
UPDATES = {"batch_size": 0, "average": 0.0, "epochs": 500, "tolerance": 1e-6}
DIRECTED = {"optimizer": "adam", "learning_rate": 1e-3, "schedule": "cosine"}
FLOW = {**DIRECTED, "learning_rate": 3e-3, "clip": 2.0}
SEQUENCES = {
    "optimizer": "adam",
    "learning_rate": 2e-3,
    "schedule": "cosine",
    "warm_up": 0.05,
    "clip": 0.05,
    "batch_size": 32,
}
# where every step has a term of the loss, gradients are less noisy than a filter's
AUTOREGRESSIVE_RATE = 3e-3
# of all sequences in a batch: small batches learn more from the same number of steps
STEPS_AT_ONCE = 2_048
LATENT = {"optimizer": "adam", "schedule": "cosine"}
FULL_BATCH = 1 << 27  # numbers of a table up to which every update may see all of it
CELLS_OF_BATCH = 1 << 21  # numbers of a batch, where it sees a part
MANY_ROWS = 10_000  # from which on updates are many enough for a lower rate
LATENT_ROWS = 100  # of a batch at most: its noise also keeps the encoder from fitting single rows
FEATURES = {"optimizer": "adam", "learning_rate": 0.02, "l2": 1e-4}
NETWORK = {"optimizer": "adam", "learning_rate": 2e-3, "schedule": "cosine"}
NETWORK_EXACT = {"optimizer": "adam", "learning_rate": 1e-2, "schedule": "cosine"}
# the energies of all hidden units move together
LATENT_EXACT = {**NETWORK_EXACT, "learning_rate": 3e-3}
# of losses that need no draws from the model
WITHOUT_CHAINS = {"optimizer": "adam", "learning_rate": 1e-2}
DRAWLESS = ("NCE", "ScoreMatching", "PseudoLikelihood", "RatioMatching")


def default_settings(model: Model, objective: Any, n: int) -> dict[str, Any]:
    """The defaults for this model, objective and number of rows."""
    if hasattr(objective, "update"):
        return dict(UPDATES)
    # MAP is fitted as the likelihood inside it
    objective = getattr(objective, "likelihood", objective)
    if type(objective).__name__ == "ExactLikelihood" and isinstance(model, EnergyModel):
        if Capability.NETWORK not in model.capabilities:
            few = n * model.support.width <= FULL_BATCH
            return (
                {**EXACT, "epochs": 100}
                if few
                else {**EXACT_STREAMED, **streamed_batches(n, model.support.width)}
            )
        return {
            **(LATENT_EXACT if Capability.JOINT in model.capabilities else NETWORK_EXACT),
            **large_batches(n),
        }
    if Capability.ENDS in model.capabilities:
        return sequence_settings(model, n)
    batch_size = batch_size_for(n)
    if Capability.LATENT in model.capabilities:
        rate = 3e-3 if n >= MANY_ROWS else 5e-3
        return {
            **LATENT,
            "learning_rate": rate,
            "batch_size": min(LATENT_ROWS, batch_size),
            "epochs": epochs_for(n),
        }
    chosen = by_kind(model)
    if type(objective).__name__ in DRAWLESS:
        chosen = (
            chosen if Capability.NETWORK in model.capabilities else {**chosen, **WITHOUT_CHAINS}
        )
    elif Capability.CENTERING in model.capabilities:
        chosen = (
            {"optimizer": "sgd", "learning_rate": centered_rate(batch_size)}
            if model.support.discrete
            else GAUSSIAN
        )
    return {**chosen, "batch_size": batch_size, "epochs": epochs_for(n)}


def by_kind(model: Model) -> dict[str, Any]:
    """The optimizer for gradients of this kind of model, whatever the objective."""
    if isinstance(model, EnergyModel):
        return NETWORK if Capability.NETWORK in model.capabilities else FEATURES
    return FLOW if Capability.INVERTIBLE in model.capabilities else DIRECTED


def natural_settings(model: Model, objective: Any) -> dict[str, Any]:
    """Step and damping of the natural gradient."""
    if not isinstance(model, EnergyModel):
        return NATURAL_DIRECTED
    return (
        NATURAL_EXACT if getattr(objective, "deterministic_on", lambda _: False)(model) else NATURAL
    )


def centered_rate(batch_size: int) -> float:
    """0.2 at 250 rows a batch, less where smaller batches are noisier."""
    return round(0.2 * (batch_size / 250) ** 0.5, 4)


def batch_size_for(n: int) -> int:
    """About a fortieth of the data, between 16 and 250."""
    return max(16, min(250, n // 40))


def large_batches(n: int) -> dict[str, int]:
    """Where the normalizer costs more than the rows: up to 1,000 rows a batch, and passes enough
    for about 1,500 updates.
    """
    batch_size = max(16, min(1000, n))
    return {"batch_size": batch_size, "epochs": -(-1_500 // max(1, n // batch_size))}


def streamed_batches(n: int, width: int) -> dict[str, int]:
    """For a table that no batch should hold: batches as large as make about 1,500 updates of a
    pass, and memory allows.
    """
    batch_size = max(1000, min(n // 1_500, CELLS_OF_BATCH // width))
    return {"batch_size": batch_size, "epochs": -(-1_500 // max(1, n // batch_size))}


def sequence_settings(model: Model, n: int) -> dict[str, Any]:
    """Batches by the length of a row, from 8 to 32 rows, and passes enough for about 2,000 updates,
    each of which sees many steps.
    """
    chosen: dict[str, Any] = dict(SEQUENCES)
    if Capability.LOG_PROB in model.capabilities:
        length: int = model.support.L  # type: ignore[attr-defined]
        chosen |= {
            "learning_rate": AUTOREGRESSIVE_RATE,
            "batch_size": max(8, min(32, STEPS_AT_ONCE // length)),
        }
    return {**chosen, "epochs": -(-2_000 // max(1, n // chosen["batch_size"]))}


def epochs_for(n: int) -> int:
    """Enough passes for about 10,000 updates, at least 10, at most 200 except to reach 1,000
    updates.
    """
    updates = max(1, n // batch_size_for(n))
    return max(10, min(200, 10_000 // updates), -(-1_000 // updates))


def _refuse_gradient_options(objective: Any, chosen: dict[str, Any], said: dict[str, Any]) -> None:
    """Closed-form updates have no optimizer; what only an optimizer would read is not passed over
    in silence.
    """
    usual = Settings(**chosen)
    for name in OF_OPTIMIZERS:
        if name in said and not np.array_equal(said[name], getattr(usual, name)):
            raise invalid(
                "fit",
                name,
                f"be left out with {type(objective).__name__}, whose updates are closed-form",
                said[name],
            )


def resolve_settings(model: Model, objective: Any, n: int, options: dict[str, Any]) -> Settings:
    """What was said, over the defaults; of epochs, steps and minutes only what was said counts."""
    for name in options:
        if name not in NAMES:
            hint = get_close_matches(name, NAMES, 1, 0.5)
            remedy = f"Did you mean {hint[0]!r}?" if hint else ""
            raise invalid("fit", "an option", f"be one of {', '.join(NAMES)}", repr(name), remedy)
    chosen = default_settings(model, objective, n)
    said = {name: value for name, value in options.items() if value is not None}
    if hasattr(objective, "update"):
        _refuse_gradient_options(objective, chosen, said)
    if said.keys() & {"epochs", "steps", "minutes"}:
        chosen.pop("epochs")
    if said.get("optimizer", chosen.get("optimizer")) != chosen.get("optimizer"):
        chosen = {
            "epochs": chosen.get("epochs"),
            "batch_size": 0 if said["optimizer"] == "lbfgs" else batch_size_for(n),
        }
        if said["optimizer"] == "natural":
            chosen |= natural_settings(model, objective)
    return Settings(**{**chosen, **said})
