"""Constructor parameters that estimators share, as dataclasses: scikit-learn reads them off the
signature of ``__init__``; and all parameters of an estimator as JSON and back.
"""

from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar, dataclass_transform

import numpy as np
import torch

from partita.core import registry
from partita.core.arguments import (
    Check,
    Flag,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    check_count,
    checks_of,
    within,
)
from partita.core.capability import PARTS
from partita.core.protocols import PartitionEvaluator
from partita.errors import invalid
from partita.runtime.files import Json, JsonObject

Estimator = TypeVar("Estimator", bound=type)
ESTIMATORS: registry.Registry[type] = registry.Registry("partita.estimators")
RandomState = int | np.integer | np.random.RandomState | torch.Generator | None


def or_auto(check: Check, allowed: str = "") -> Check:
    """``"auto"``, or what a check allows; ``allowed`` names both to a caller with another word."""

    def checked(owner: str, parameter: str, value: object) -> None:
        if isinstance(value, str) and value == "auto":
            return
        if allowed and isinstance(value, str):
            raise invalid(owner, parameter, allowed, repr(value))
        check(owner, parameter, value)

    return checked


AutoOrCount = Annotated[int | str, or_auto(check_count)]
AutoOrPositive = Annotated[
    float | str,
    or_auto(within(0.0, open_low=True), "be 'auto' or a number above 0"),
]
HeldOut = Annotated[float, within(0.0, 0.9)]  # a share of the rows


def check_types(estimator: Any) -> None:
    """Refuse parameters that are not what their types say."""
    for item in fields(estimator):
        for check in checks_of(item.type):
            check(type(estimator).__name__, item.name, getattr(estimator, item.name))


@dataclass_transform(eq_default=False)
def parameters(cls: Estimator) -> Estimator:
    """An estimator as a dataclass that keeps scikit-learn's own ``__repr__`` and comparison by
    identity; it is registered, so that ``load`` knows its name.
    """
    return ESTIMATORS.register(dataclass(eq=False, repr=False)(cls))


@dataclass(eq=False, repr=False, kw_only=True)
class FitParameters:
    """Of every fit."""

    max_minutes: float | None = None
    random_state: RandomState = None
    verbose: Flag = False


@dataclass(eq=False, repr=False, kw_only=True)
class EMParameters(FitParameters):
    """Of fits by closed-form updates."""

    max_iter: PositiveInt = 500
    tol: NonNegativeFloat = 1e-6
    reg_covar: PositiveFloat = 1e-6
    validation_fraction: HeldOut = 0.0


@dataclass(eq=False, repr=False, kw_only=True)
class GradientParameters(FitParameters):
    """Of fits by gradients."""

    validation_fraction: HeldOut = 0.1
    support: str = "auto"
    optimizer: str | None = None
    learning_rate: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    l1: float = 0.0
    l2: float = 0.0


@dataclass(eq=False, repr=False, kw_only=True)
class ChainParameters(GradientParameters):
    """Of energy models, whose gradients need chains and whose scores log Z."""

    n_chains: int = 256
    n_steps: int = 1
    noise_ratio: int = 10
    sigma: float = 0.1
    evaluator: str | PartitionEvaluator = "auto"


def to_json(parameters: dict[str, object]) -> JsonObject:
    """Parameters that are numbers, words, None, evaluators and other parts of the capability table,
    or tuples, lists or dicts of such; others, such as a generator, are left out, and so fall back
    to their default.

    >>> to_json(
    ...     {"shape": (28, 28), "l2": np.float64(0.5), "random_state": np.random.default_rng(0)}
    ... )
    {'shape': {'tuple': [28, 28]}, 'l2': 0.5}
    """
    return {name: _tree(value) for name, value in parameters.items() if _is_kept(value)}


def from_json(value: Json) -> Json:
    """Parameters as :func:`to_json` had them.

    >>> from_json({"shape": {"tuple": [28, 28]}})
    {'shape': (28, 28)}
    """
    if isinstance(value, list):
        return list(map(from_json, value))
    if not isinstance(value, dict):
        return value
    if value.keys() == {"tuple"} and isinstance(value["tuple"], list):
        return tuple(map(from_json, value["tuple"]))
    if value.keys() == {"made"} and isinstance(value["made"], dict):
        return registry.build_part(value["made"])
    return {name: from_json(one) for name, one in value.items()}


def _tree(value: object) -> Json:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, tuple):
        return {"tuple": list(map(_tree, value))}
    if isinstance(value, list):
        return list(map(_tree, value))
    if isinstance(value, dict):
        return {name: _tree(one) for name, one in value.items()}
    return {"made": registry.describe_part(value)} if _is_part(value) else value


def _is_part(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type) and type(value).__name__ in PARTS


def _is_kept(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_kept, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_kept(one) for key, one in value.items())
    plain = str | bool | int | float | np.ndarray | np.generic | None
    return isinstance(value, plain) or _is_part(value)
