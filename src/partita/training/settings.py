"""The options of a fit, checked once, saved with the run; and their defaults by model, objective
and number of rows: those that won in ``benchmarks/``.
"""

from dataclasses import asdict, dataclass, fields
from typing import Literal, TypeAlias

import numpy as np

from partita.core.arguments import (
    Flag,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
    checks_of,
)
from partita.core.protocols import Capability, EnergyModel, Model, Objective, Update
from partita.core.support import Sequence
from partita.errors import Parameter, did_you_mean, invalid
from partita.runtime.files import JsonObject

OptimizerName: TypeAlias = Literal["sgd", "adam", "lbfgs", "natural"]
ScheduleName: TypeAlias = Literal["linear", "constant", "cosine"]
GuardName: TypeAlias = Literal["stop", "rollback"]
LENGTHS = ("epochs", "steps", "minutes")  # of which one is given

Learner: TypeAlias = Objective | Update

NATURAL = {"learning_rate": 0.2, "damping": 0.03}  # of a Fisher matrix that chains estimate
# draws are fewer than the parameters of a network: most directions are damped
NATURAL_DIRECTED = {"learning_rate": 1.0, "damping": 1.0}
# Newton's step where the loss allows it
NATURAL_EXACT = {"learning_rate": 1.0, "schedule": "constant", "batch_size": 0, "average": 0.0}
EXACT = {"optimizer": "lbfgs", "batch_size": 0, "average": 0.0, "epochs": 100}
# large batches have little noise
EXACT_STREAMED = {"optimizer": "adam", "learning_rate": 0.1, "schedule": "cosine"}
GAUSSIAN = {"optimizer": "adam", "learning_rate": 2e-3}
# settings that closed-form updates do not have
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
COSINE = {"optimizer": "adam", "schedule": "cosine"}
DIRECTED = {**COSINE, "learning_rate": 1e-3}
FLOW = {**COSINE, "learning_rate": 3e-3, "clip": 2.0}
SEQUENCES = {**COSINE, "learning_rate": 2e-3, "warm_up": 0.05, "clip": 0.05, "batch_size": 32}
# where every step has a term of the loss, gradients are less noisy than a filter's
AUTOREGRESSIVE_RATE = 3e-3
# of all sequences in a batch: small batches learn more from the same number of steps
STEPS_AT_ONCE = 2_048
FULL_BATCH = 1 << 27  # numbers of a table up to which every update may see all of it
CELLS_OF_BATCH = 1 << 21  # numbers of a batch, where it sees a part
MANY_ROWS = 10_000  # from which on updates are many enough for a lower rate
LATENT_ROWS = 100  # of a batch at most: its noise also keeps the encoder from fitting single rows
FEATURES = {"optimizer": "adam", "learning_rate": 0.02, "l2": 1e-4}
NETWORK = {**COSINE, "learning_rate": 2e-3}
NETWORK_EXACT = {**COSINE, "learning_rate": 1e-2}
# the energies of all hidden units move together
LATENT_EXACT = {**COSINE, "learning_rate": 3e-3}
# of losses that need no draws from the model
WITHOUT_CHAINS = {"optimizer": "adam", "learning_rate": 1e-2}
DRAWLESS = ("NCE", "ScoreMatching", "PseudoLikelihood", "RatioMatching")


@dataclass(frozen=True)
class Settings:
    """How a model is fitted.

    Arguments:
        epochs: Passes over the data.
        steps: Updates, in place of epochs.
        minutes: Time to spend, in place of epochs: a short warm-up is timed and fixes the number of
            steps, which is recorded.
        batch_size: Rows of one update; 0 takes all rows at once.
        optimizer: ``"sgd"``, ``"adam"``, ``"lbfgs"`` (for exact objectives) or ``"natural"`` (the
            damped natural gradient).
        learning_rate: At the start.
        momentum: Of ``"sgd"``.
        damping: Of ``"natural"``: added to the diagonal of the Fisher matrix.
        schedule: ``"linear"`` or ``"cosine"`` (falls to zero) or ``"constant"``.
        warm_up: Share of the steps over which the learning rate rises from zero first.
        clip: Largest 2-norm of the gradient, per column of the data; longer ones are shortened. 0
            leaves them.
        average: Window of the weight average as a share of all steps; 0 keeps the last weights.
        l1, l2: Penalties l1 |W| + l2 W^2 / 2 on the parameters that the model names as penalized.
        patience: Validations without a better score, counted as if they were evenly spread, before
            an early stop; 0 never stops early.
        validations: How many there are, closer together at the beginning. Where none are given,
            and with ``minutes``, fewer are made if they would take more than a fifth of the time;
            their number is fixed before the first step and recorded.
        validate_every: Epochs between validations, in place of a number of them.
        tolerance: For ``"lbfgs"``: stop where no gradient is larger, or where rounding leaves
            nothing to gain. For closed-form updates that converge, as EM: stop where the mean loss
            per row moves by no more.
        trajectory: How many of the weights on the way are kept, more of the early ones: log Z of an
            energy model can be sought along them
            (:class:`partita.models.energy.trajectory.Trajectory`).
        track: Chains, beside those of the objective, that carry log Z along and have it recorded:
            an estimate that errs low, as :class:`partita.evaluators.AIS` does. 0 carries none.
        guard: What to do where a fit diverges: ``"stop"``, or ``"rollback"`` to its last good
            state, to go on with half the learning rate.
        initialize: Set the reference and the biases from the data's base rates.
    """

    epochs: PositiveInt | None = None
    steps: PositiveInt | None = None
    minutes: PositiveFloat | None = None
    batch_size: NonNegativeInt = 128
    optimizer: OptimizerName = "sgd"
    learning_rate: PositiveFloat = 0.05
    momentum: Share = 0.0
    damping: NonNegativeFloat = 1e-3
    schedule: ScheduleName = "linear"
    warm_up: Share = 0.0
    clip: NonNegativeFloat = 0.0
    average: Share = 0.05
    l1: NonNegativeFloat = 0.0
    l2: NonNegativeFloat = 0.0
    patience: NonNegativeInt = 0
    validations: PositiveInt = 20
    validate_every: PositiveInt | None = None
    tolerance: NonNegativeFloat = 1e-8
    trajectory: NonNegativeInt = 0
    track: NonNegativeInt = 0
    guard: GuardName = "stop"
    initialize: Flag = True

    def __post_init__(self) -> None:
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            named = tuple(Parameter(name) for name in LENGTHS)
            one = ("one of ", named[0], ", ", named[1], " and ", named[2])
            raise invalid("fit", one, "be given", got)
        for item in fields(self):
            for check in checks_of(item.type):
                check("fit", item.name, getattr(self, item.name))

    def exactly_minimizes(self, objective: Learner, model: Model) -> bool:
        """Whether the loss is a function of the parameters alone: no batches, no draws."""
        return not self.batch_size and is_deterministic(objective, model)

    def as_json(self) -> JsonObject:
        """All settings by name."""
        return asdict(self)


SETTING_NAMES = tuple(field.name for field in fields(Settings))


def is_deterministic(objective: Learner, model: Model) -> bool:
    """Whether the loss of a model is a function of the batch alone."""
    return isinstance(objective, Objective) and objective.deterministic_on(model)


def default_settings(model: Model, objective: Learner, n: int) -> JsonObject:
    """The defaults for this model, objective and number of rows."""
    if isinstance(objective, Update):
        return dict(UPDATES)
    # MAP is fitted as the likelihood inside it
    name = type(getattr(objective, "likelihood", objective)).__name__
    if name == "ExactLikelihood" and isinstance(model, EnergyModel):
        return _exact_settings(model, n)
    if Capability.ENDS in model.capabilities:
        return _sequence_settings(model, n)
    batch_size = batch_size_for(n)
    if Capability.LATENT in model.capabilities:
        rate = 3e-3 if n >= MANY_ROWS else 5e-3
        chosen = {**COSINE, "learning_rate": rate}
        batch_size = min(LATENT_ROWS, batch_size)
    elif name not in DRAWLESS and Capability.CENTERING in model.capabilities:
        chosen = GAUSSIAN
        if model.support.discrete:
            chosen = {"optimizer": "sgd", "learning_rate": centered_rate(batch_size)}
    else:
        chosen = _by_kind(model)
        if name in DRAWLESS and Capability.NETWORK not in model.capabilities:
            chosen = {**chosen, **WITHOUT_CHAINS}
    return {**chosen, "batch_size": batch_size, "epochs": epochs_for(n)}


def _exact_settings(model: EnergyModel, n: int) -> JsonObject:
    """Of the exact likelihood of an energy model."""
    if Capability.NETWORK in model.capabilities:
        chosen = LATENT_EXACT if Capability.JOINT in model.capabilities else NETWORK_EXACT
        # the normalizer costs more than the rows
        return {**chosen, **_many_updates(n, max(16, min(1000, n)), 1_500)}
    width = model.support.width
    if n * width <= FULL_BATCH:
        return dict(EXACT)
    # no batch should hold the table: as large as about 1,500 updates of a pass and memory allow
    batch_size = max(1000, min(n // 1_500, CELLS_OF_BATCH // width))
    return {**EXACT_STREAMED, **_many_updates(n, batch_size, 1_500)}


def _by_kind(model: Model) -> JsonObject:
    """The optimizer for gradients of this kind of model, whatever the objective."""
    if isinstance(model, EnergyModel):
        return NETWORK if Capability.NETWORK in model.capabilities else FEATURES
    return FLOW if Capability.INVERTIBLE in model.capabilities else DIRECTED


def _natural_settings(model: Model, objective: Learner) -> JsonObject:
    """Step and damping of the natural gradient."""
    if not isinstance(model, EnergyModel):
        return NATURAL_DIRECTED
    return NATURAL_EXACT if is_deterministic(objective, model) else NATURAL


def _sequence_settings(model: Model, n: int) -> JsonObject:
    """Batches by the length of a row, from 8 to 32 rows, and about 2,000 updates, each of which
    sees many steps.
    """
    chosen: JsonObject = dict(SEQUENCES)
    if Capability.LOG_PROB in model.capabilities and isinstance(model.support, Sequence):
        chosen["learning_rate"] = AUTOREGRESSIVE_RATE
        chosen["batch_size"] = max(8, min(32, STEPS_AT_ONCE // model.support.L))
    return {**chosen, **_many_updates(n, chosen["batch_size"], 2_000)}


def centered_rate(batch_size: int) -> float:
    """0.2 at 250 rows a batch, less where smaller batches are noisier."""
    return round(0.2 * (batch_size / 250) ** 0.5, 4)


def batch_size_for(n: int) -> int:
    """About a fortieth of the data, between 16 and 250."""
    return max(16, min(250, n // 40))


def epochs_for(n: int) -> int:
    """Enough passes for about 10,000 updates, at least 10, at most 200 except to reach 1,000
    updates.
    """
    updates = max(1, n // batch_size_for(n))
    return max(10, min(200, 10_000 // updates), -(-1_000 // updates))


def _many_updates(n: int, batch_size: int, updates: int) -> dict[str, int]:
    """Batches of this size, and passes enough for about so many updates."""
    return {"batch_size": batch_size, "epochs": -(-updates // max(1, n // batch_size))}


def resolve_settings(model: Model, objective: Learner, n: int, options: JsonObject) -> Settings:
    """The given options over the defaults; one of epochs, steps and minutes replaces the default
    length.
    """
    for name in options:
        if name not in SETTING_NAMES:
            remedy = did_you_mean(name, SETTING_NAMES)
            allowed = f"be one of {', '.join(SETTING_NAMES)}"
            raise invalid("fit", "an option", allowed, repr(name), remedy)
    chosen = default_settings(model, objective, n)
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(objective, Update):
        _refuse_gradient_options(objective, chosen, given)
    if given.keys() & set(LENGTHS):
        chosen.pop("epochs")
    optimizer = given.get("optimizer")
    if optimizer is not None and optimizer != chosen.get("optimizer"):
        batch_size = 0 if optimizer == "lbfgs" else batch_size_for(n)
        chosen = {"epochs": chosen.get("epochs"), "batch_size": batch_size}
        if optimizer == "natural":
            chosen |= _natural_settings(model, objective)
    return Settings(**{**chosen, **given})


def _refuse_gradient_options(objective: Learner, chosen: JsonObject, given: JsonObject) -> None:
    """Refuse what only an optimizer reads where closed-form updates have none."""
    usual = Settings(**chosen).as_json()
    for name in OF_OPTIMIZERS:
        if name in given and not np.array_equal(given[name], usual[name]):
            allowed = f"be left out with {type(objective).__name__}, whose updates are closed-form"
            raise invalid("fit", name, allowed, given[name])


def check_lbfgs(settings: Settings, objective: Learner, model: Model) -> None:
    """Refuse L-BFGS for a loss that is not a function of the parameters alone."""
    if settings.optimizer != "lbfgs" or settings.exactly_minimizes(objective, model):
        return
    got = type(objective).__name__
    if not settings.batch_size and isinstance(objective, Objective):
        got += f", random on {model.title()}," if objective.deterministic else ""
    raise invalid(
        "fit",
        "optimizer='lbfgs'",
        "go with ExactLikelihood and batch_size=0, or another objective that is not random",
        f"{got} and batch_size={settings.batch_size}",
        "Use 'sgd' or 'adam'.",
    )
