"""The Potts model as a family."""

import torch

from partita.core.protocols import Settings
from partita.families.base import FAMILIES, Family, Made, Setting, states_of
from partita.families.by_gradient import PAIRS, named_objective
from partita.models import Potts
from partita.tables import Rows
from partita.tables.categories import looks_categorical
from partita.tables.encoding import Kind


def _potts(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    model = Potts(rows.width, states_of(rows), edges=settings["edges"], generator=generator)
    return model, named_objective(settings, model)


def _kind(rows: Rows, settings: Settings) -> Kind:
    """Words and whole numbers of at most 64 values a column are categories."""
    categories = settings["support"] == "categorical" or looks_categorical(rows)
    return "category" if categories else "quantile"


FAMILIES.register(
    Family(
        "potts",
        "Potts model: categories, such as the letters of aligned sequences, with a field for each "
        "and a coupling for each pair",
        {
            **PAIRS,
            "support": Setting(
                "auto",
                "categorical, which is strict, or auto: columns that are no categories are cut at "
                "their quartiles",
                ("auto", "categorical"),
            ),
        },
        _potts,
        _kind,
        words=True,
    )
)
