"""Named families of models: the one table from which the command line and the estimators build a
model and its objective. Each module registers its own.
"""

from partita.families.base import FAMILIES, Family, Setting, family_named, unknown_setting

__all__ = ["FAMILIES", "Family", "Setting", "family_named", "unknown_setting"]
