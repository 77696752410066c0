"""Maximum-entropy models as a family."""

from typing import Any

import torch

from partita.core import capability
from partita.core.checks import check_choice
from partita.core.protocols import Model, Objective
from partita.core.support import Binary
from partita.families.base import Family, Setting
from partita.families.by_gradient import CHAINS, OBJECTIVES, named_objective
from partita.models import MaxEnt
from partita.tables import Rows
from partita.tables.encoding import Kind, infer_kind

AUTO_EXACT_BITS = 16  # a support of at most 2^16 states is summed at every step of a fit by default


def _maxent(
    rows: Rows, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Objective]:
    check_choice("maxent", "objective", settings["objective"], ("auto", *OBJECTIVES))
    model = MaxEnt(settings["features"], Binary(rows.width), generator=generator)
    if settings["objective"] == "auto":
        few = capability.smallest_bits(model) <= AUTO_EXACT_BITS
        settings = {**settings, "objective": "exact" if few else "pcd"}
    return model, named_objective(settings, model)


def _maxent_kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    """Spins are relabeled; anything else must be zeros and ones."""
    return "spin" if infer_kind(rows) == "spin" else "binary"


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {
        "MaxEnt, few columns": MaxEnt("pairwise", Binary(6), generator=g),
        "MaxEnt, many columns": MaxEnt("pairwise", Binary(24), generator=g),
    }


FAMILY = Family(
    "maxent",
    "maximum entropy given feature averages: binary columns, convex in its parameters",
    {
        "features": Setting("pairwise", "independent, pairwise or k-pairwise"),
        "objective": Setting(
            "auto",
            "exact, pcd, cd, tempered, replay, nce, pseudo-likelihood, ratio-matching, or auto: "
            "exact up to 16 columns, else pcd",
        ),
        **CHAINS,
    },
    _maxent,
    _maxent_kind,
    _examples,
)
