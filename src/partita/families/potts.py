"""The Potts model as a family."""

from typing import Any

import torch

from partita.core.protocols import Model, Objective
from partita.errors import invalid
from partita.families.base import Family
from partita.families.pairs import SETTINGS, pair_objective
from partita.models import Potts
from partita.tables import Rows
from partita.tables.categories import looks_categorical
from partita.tables.encoding import Kind


def states_of(rows: Rows) -> int:
    """K of encoded rows: as their encoding says, else one more than the largest code."""
    return rows.states or max(2, *(int(part.max()) + 1 for part in rows.parts()))


def _potts(
    rows: Rows, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Objective]:
    model = Potts(rows.width, states_of(rows), edges=settings["edges"], generator=generator)
    return model, pair_objective("potts", model, settings)


def _kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    """Words and whole numbers are categories; real columns must be cut first."""
    if not looks_categorical(rows):
        remedy = (
            "Cut real columns into parts first, or use PottsDensity, which cuts them at their "
            "quantiles."
        )
        raise invalid(
            "potts",
            "DATA",
            "hold categories: words, or whole numbers of at most 64 values a column",
            "other numbers",
            remedy,
        )
    return "category"


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {
        "Potts, few columns": Potts(4, 3, generator=g),
        "Potts, many columns": Potts(12, 4, generator=g),
    }


FAMILY = Family(
    "potts",
    "Potts model: categories, such as the letters of aligned sequences, with a field for each and "
    "a coupling for each pair",
    SETTINGS,
    _potts,
    _kind,
    _examples,
    words=True,
)
