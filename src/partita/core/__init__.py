"""The words all parts share: roles, quantities, supports, what runs with what, randomness, checks
and errors.
"""

from partita.core.protocols import (
    Batch,
    DirectedModel,
    EnergyModel,
    Field,
    Model,
    Objective,
    Sampler,
    Update,
)
from partita.core.quantity import Quantity, bits_per_dimension
from partita.core.support import (
    Binary,
    Categorical,
    Count,
    Interval,
    Product,
    Real,
    Sequence,
    Spin,
    Support,
)
from partita.errors import DataError, Diverged, InputError, PartitaError, RunError, Unsupported

__all__ = [
    "Batch",
    "Binary",
    "Categorical",
    "Count",
    "DataError",
    "DirectedModel",
    "Diverged",
    "EnergyModel",
    "Field",
    "InputError",
    "Interval",
    "Model",
    "Objective",
    "PartitaError",
    "Product",
    "Quantity",
    "Real",
    "RunError",
    "Sampler",
    "Sequence",
    "Spin",
    "Support",
    "Unsupported",
    "Update",
    "bits_per_dimension",
]
