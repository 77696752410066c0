"""Constructor parameters that estimators share, as dataclasses: scikit-learn reads them off the
signature of ``__init__``; and all parameters of an estimator as JSON and back.
"""

from dataclasses import dataclass, is_dataclass
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from partita.core import registry
from partita.core.capability import PARTS

Estimator = TypeVar("Estimator", bound=type)
ESTIMATORS: registry.Registry[type] = registry.Registry("partita.estimators")


@dataclass_transform(eq_default=False)
def parameters(cls: Estimator) -> Estimator:
    """An estimator as a dataclass that keeps scikit-learn's own ``__repr__`` and comparison by
    identity; it is registered, so that ``load`` knows its name.
    """
    return ESTIMATORS.register(dataclass(eq=False, repr=False)(cls))


@dataclass(eq=False, repr=False, kw_only=True)
class FitParameters:
    """Of every fit."""

    validation_fraction: float = 0.1
    max_minutes: float | None = None
    random_state: Any = None
    verbose: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class GradientParameters(FitParameters):
    """Of fits by gradients."""

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
    evaluator: Any = "auto"


def to_json(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters that are numbers, words, None, evaluators and other parts of the capability table,
    or tuples, lists or dicts of such; others, such as a generator, are left out, and so fall back
    to their default.

    >>> to_json(
    ...     {"shape": (28, 28), "l2": np.float64(0.5), "random_state": np.random.default_rng(0)}
    ... )
    {'shape': {'tuple': [28, 28]}, 'l2': 0.5}
    """
    return {name: _tree(value) for name, value in parameters.items() if _is_kept(value)}


def from_json(value: Any) -> Any:
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


def _tree(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, tuple):
        return {"tuple": list(map(_tree, value))}
    if isinstance(value, list):
        return list(map(_tree, value))
    if isinstance(value, dict):
        return {name: _tree(one) for name, one in value.items()}
    return {"made": registry.describe_part(value)} if _is_part(value) else value


def _is_part(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type) and type(value).__name__ in PARTS


def _is_kept(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_kept, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_kept(one) for key, one in value.items())
    return (
        value is None
        or isinstance(value, str | bool | int | float | np.ndarray | np.generic)
        or _is_part(value)
    )
