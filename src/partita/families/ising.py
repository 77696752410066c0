"""The Ising model as a family."""

import torch

from partita.core.protocols import Settings
from partita.families.base import AS_SPINS, FAMILIES, TWO_VALUED, Family, Made, support_kind
from partita.families.by_gradient import PAIRS, named_objective
from partita.models import Ising
from partita.tables import Rows
from partita.tables.encoding import Kind


def _ising(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    model = Ising(rows.width, edges=settings["edges"], generator=generator)
    return model, named_objective(settings, model)


def _kind(rows: Rows, settings: Settings) -> Kind:
    return AS_SPINS[support_kind(rows, settings)]


FAMILIES.register(
    Family(
        "ising",
        "Ising model: spins, or zeros and ones read as spins, with fields and symmetric couplings",
        {**PAIRS, "support": TWO_VALUED},
        _ising,
        _kind,
    )
)
