"""The words all parts share: roles, quantities, supports, what runs with what, randomness, checks and errors."""

from partita.core.errors import DataError, Diverged, InputError, PartitaError, RunError, Unsupported
from partita.core.protocols import Batch, DirectedModel, EnergyModel, Field, Model
from partita.core.quantity import Quantity, bits_per_dimension
from partita.core.support import Binary, Categorical, Count, Product, Real, Sequence, Spin, Support

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
    "Model",
    "PartitaError",
    "Product",
    "Quantity",
    "Real",
    "RunError",
    "Sequence",
    "Spin",
    "Support",
    "Unsupported",
    "bits_per_dimension",
]
