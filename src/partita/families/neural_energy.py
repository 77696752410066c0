"""Networks as energies, as a family."""

import torch

from partita.core import capability
from partita.core.protocols import Settings
from partita.core.support import Binary, Real
from partita.families.base import (
    FAMILIES,
    Family,
    Made,
    Setting,
    check_correlated,
    support_kind,
)
from partita.families.by_gradient import CHAINS, OBJECTIVES, named_objective, objective_setting
from partita.families.networks import NETWORK, network
from partita.models import NeuralEnergy
from partita.tables import Rows

OBJECTIVE = objective_setting(
    "auto",
    f"{', '.join(OBJECTIVES)}, or auto: exact where Z is a small sum or an integral over one or "
    "two columns, else pcd",
)


def _neural_energy(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    real, covariance = support_kind(rows, settings) == "real", settings["covariance_type"]
    if real and covariance == "full":
        check_correlated("neural-energy", "covariance_type", "full", rows.width, ("diagonal",))
    model = NeuralEnergy(
        network(settings, rows.width, 1, generator),
        Real(rows.width) if real else Binary(rows.width),
        covariance=covariance,
    )
    return model, named_objective(settings, model, capability.cheap_exact)


FAMILIES.register(
    Family(
        "neural-energy",
        "a network as energy: real columns (beside a normal reference) or binary ones",
        {
            **NETWORK,
            "covariance_type": Setting(
                "full", "of the normal reference of real columns: full or diagonal"
            ),
            "support": Setting(
                "auto",
                "real, binary, spin, or auto: what the columns hold",
                ("auto", "real", "binary", "spin"),
            ),
            "objective": OBJECTIVE,
            **CHAINS,
        },
        _neural_energy,
        support_kind,
    )
)
