"""Constructor parameters that estimators share, as dataclasses: scikit-learn reads them off the signature of ``__init__``."""

from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

Estimator = TypeVar("Estimator", bound=type)


@dataclass_transform(eq_default=False)
def parameters(cls: Estimator) -> Estimator:
    """A dataclass that keeps scikit-learn's own ``__repr__`` and comparison by identity."""
    return dataclass(eq=False, repr=False)(cls)


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

    chains: int = 256
    k: int = 1
    evaluator: Any = "auto"
