"""Named families of models: the one table from which the command line and the estimators build a
model and its objective. Each module registers its own.
"""

import re
from typing import Any

from partita.core import capability
from partita.core.checks import check_choice
from partita.errors import did_you_mean, invalid
from partita.families.base import FAMILIES, Family, Setting, unknown_setting

__all__ = [
    "EVALUATORS",
    "FAMILIES",
    "Family",
    "Setting",
    "family_named",
    "named_evaluator",
    "unknown_setting",
]

# of log Z: reverse-ais is ReverseAIS
EVALUATORS = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower(): name
    for name, part in capability.PARTS.items()
    if part.role == "partition"
}
# of log p(x), for latent variables
BOUNDS = {"iwae": "IWAE", "latent-ais": "LatentAIS", "filter": "ParticleFilter"}


def family_named(name: str) -> Family:
    """The family of a name, or one sentence with the known and the closest."""
    if name not in FAMILIES:
        hint = did_you_mean(name.lower(), FAMILIES, "`partita models` lists them.")
        raise invalid("fit", "MODEL", f"be one of {', '.join(FAMILIES)}", repr(name), hint)
    return FAMILIES[name]


def named_evaluator(name: Any, owner: str = "evaluate", *, bounds: bool = False) -> Any:
    """An evaluator of log Z by name; None for ``"auto"``; any other object as it is.

    With ``bounds`` also those of latent-variable models, with a number of draws or temperatures if
    one is given:

    >>> named_evaluator("iwae-5000", bounds=True).k
    5000
    """
    if not isinstance(name, str):
        return name
    base, _, count = name.rpartition("-")
    base, settings = (base, (int(count),)) if count.isdecimal() and len(count) < 19 else (name, ())
    if bounds and base in BOUNDS:
        return capability.part_named(BOUNDS[base])(*settings)
    check_choice(owner, "evaluator", name, ("auto", *EVALUATORS, *(BOUNDS if bounds else ())))
    return None if name == "auto" else capability.part_named(EVALUATORS[name])()
