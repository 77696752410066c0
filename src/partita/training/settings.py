"""The options of a fit, checked once, saved with the run."""

from dataclasses import asdict, dataclass, fields
from typing import Literal, TypeAlias

from partita.core.arguments import (
    Flag,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
    checks_of,
)
from partita.core.protocols import Model, Objective, Update
from partita.errors import invalid
from partita.runtime.untrusted import JsonObject

OptimizerName: TypeAlias = Literal["sgd", "adam", "lbfgs", "natural"]
ScheduleName: TypeAlias = Literal["linear", "constant", "cosine"]
GuardName: TypeAlias = Literal["stop", "rollback"]
LENGTHS = ("epochs", "steps", "minutes")  # of which one is given

Learner: TypeAlias = Objective | Update


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
    guard: GuardName = "stop"
    initialize: Flag = True

    def __post_init__(self) -> None:
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise invalid("fit", "one of epochs, steps and minutes", "be given", got)
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
