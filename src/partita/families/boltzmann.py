"""The Boltzmann machine as a family."""

import torch

from partita.core.protocols import Settings
from partita.families.base import FAMILIES, TWO_VALUED, Family, Made, Setting, bits_kind
from partita.families.by_gradient import PAIRS, named_objective
from partita.models import Boltzmann
from partita.tables import Rows


def _boltzmann(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    hidden, edges = settings["n_hidden"], settings["edges"]
    model = Boltzmann(rows.width, hidden, edges=edges, generator=generator)
    return model, named_objective(settings, model)


FAMILIES.register(
    Family(
        "boltzmann",
        "Boltzmann machine: binary columns that all see one another, and up to 12 hidden units",
        {"n_hidden": Setting(0, "hidden units, at most 12"), **PAIRS, "support": TWO_VALUED},
        _boltzmann,
        bits_kind,
    )
)
