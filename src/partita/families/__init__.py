"""Named families of models: the one table from which the command line and the estimators build a
model and its objective. Each module registers its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partita.families.base import FAMILIES, Family, Setting, family_named, unknown_setting

__all__ = ["FAMILIES", "Family", "Setting", "family_named", "unknown_setting"]


def __getattr__(name: str) -> Any:
    """Imported when first used, so that a list of families does not wait for torch."""
    if name in __all__:
        return getattr(import_module("partita.families.base"), name)
    raise AttributeError(f"module 'partita.families' has no attribute {name!r}")
