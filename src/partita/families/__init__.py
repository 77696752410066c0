"""Named families of models: the one table from which the command line and the estimators build a
model and its objective.
"""

from difflib import get_close_matches
from typing import Any

import torch

from partita.core import capability
from partita.core.checks import check_choice
from partita.core.protocols import Model
from partita.errors import invalid
from partita.families import (
    autoregressive,
    belief,
    boltzmann,
    dpmm,
    flow,
    gan,
    ising,
    latent_energy,
    maxent,
    mixture,
    neural_energy,
    potts,
    ppca,
    rbm,
    vae,
    vrnn,
)
from partita.families.base import Family, Setting, unknown_setting

__all__ = [
    "EVALUATORS",
    "FAMILIES",
    "Family",
    "Setting",
    "family_named",
    "named_evaluator",
    "representatives",
    "unknown_setting",
]

MODULES = (
    rbm,
    maxent,
    ising,
    boltzmann,
    potts,
    latent_energy,
    neural_energy,
    mixture,
    ppca,
    autoregressive,
    dpmm,
    flow,
    gan,
    vae,
    vrnn,
    belief,
)
VARIANTS = (ppca.MIXED, *autoregressive.BY_BACKBONE)
FAMILIES: dict[str, Family] = {
    family.name: family for family in (*(module.FAMILY for module in MODULES), *VARIANTS)
}
EVALUATORS = {
    "enumeration": "Enumeration",
    "quadrature": "Quadrature",
    "sandwich": "Sandwich",
    "bridge": "Bridge",
    "ais": "AIS",
    "smc": "SMC",
    "reverse-ais": "ReverseAIS",
}
# of log p(x), for latent variables
BOUNDS = {"iwae": "IWAE", "latent-ais": "LatentAIS", "filter": "ParticleFilter"}


def family_named(name: str) -> Family:
    """The family of a name, or one sentence with the known and the closest."""
    if name not in FAMILIES:
        close = get_close_matches(name.lower(), FAMILIES, 1, 0.5)
        hint = f"Did you mean {close[0]!r}?" if close else "`partita models` lists them."
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
        return capability.load(BOUNDS[base])(*settings)
    check_choice(owner, "evaluator", name, ("auto", *EVALUATORS, *(BOUNDS if bounds else ())))
    return None if name == "auto" else capability.load(EVALUATORS[name])()


def representatives() -> dict[str, Model]:
    """One model of each sort, for the capability grid: what enumerates and what does not, discrete
    and real.
    """
    g = torch.Generator().manual_seed(0)
    return {
        label: model for family in FAMILIES.values() for label, model in family.examples(g).items()
    }
