"""Maximum-entropy models as a family."""

import torch

from partita.core.protocols import Settings
from partita.core.support import Binary
from partita.families.base import FAMILIES, TWO_VALUED, Family, Made, Setting, bits_kind
from partita.families.by_gradient import CHAINS, named_objective, objective_setting
from partita.models import MaxEnt
from partita.tables import Rows


def _maxent(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    model = MaxEnt(settings["features"], Binary(rows.width), generator=generator)
    return model, named_objective(settings, model)


FAMILIES.register(
    Family(
        "maxent",
        "maximum entropy given feature averages: binary columns, convex in its parameters",
        {
            "features": Setting("pairwise", "independent, pairwise or k-pairwise"),
            "objective": objective_setting(
                "auto",
                "exact, pcd, cd, tempered, replay, nce, pseudo-likelihood, ratio-matching, or "
                "auto: exact up to 16 columns, else pcd",
            ),
            **CHAINS,
            "support": TWO_VALUED,
        },
        _maxent,
        bits_kind,
    )
)
