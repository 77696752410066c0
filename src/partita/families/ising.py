"""The Ising model as a family."""

from typing import Any

import torch

from partita.core.protocols import Model, Objective
from partita.families.base import Family
from partita.families.pairs import SETTINGS, pair_objective
from partita.models import Ising, torus
from partita.tables import Rows
from partita.tables.encoding import Kind, infer_kind


def _ising(
    rows: Rows, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Objective]:
    model = Ising(rows.width, edges=settings["edges"], generator=generator)
    return model, pair_objective("ising", model, settings)


def _kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    """Spins stay as they are; anything else must be zeros and ones, which become spins."""
    return "spins" if infer_kind(rows) == "spin" else "signs"


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {
        "Ising, few spins": Ising(10, generator=g),
        "Ising, a torus": Ising(64, edges=torus(8, 8), generator=g),
    }


FAMILY = Family(
    "ising",
    "Ising model: spins, or zeros and ones read as spins, with fields and symmetric couplings",
    SETTINGS,
    _ising,
    _kind,
    _examples,
)
