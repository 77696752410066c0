"""The Boltzmann machine as a family."""

from typing import Any

import torch

from partita.core.protocols import Model, Objective
from partita.families.base import Family, Setting
from partita.families.pairs import SETTINGS, pair_objective
from partita.models import Boltzmann
from partita.tables import Rows
from partita.tables.encoding import Kind, infer_kind


def _boltzmann(
    rows: Rows, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Objective]:
    model = Boltzmann(
        rows.width, settings["n_hidden"], edges=settings["edges"], generator=generator
    )
    return model, pair_objective("boltzmann", model, settings)


def _kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    """Spins are relabeled; anything else must be zeros and ones."""
    return "spin" if infer_kind(rows) == "spin" else "binary"


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {
        "Boltzmann, few units": Boltzmann(10, generator=g),
        "Boltzmann, hidden units": Boltzmann(22, 2, generator=g),
    }


FAMILY = Family(
    "boltzmann",
    "Boltzmann machine: binary columns that all see one another, and up to 12 hidden units",
    {"n_hidden": Setting(0, "hidden units, at most 12"), **SETTINGS},
    _boltzmann,
    _kind,
    _examples,
)
