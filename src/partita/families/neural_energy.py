"""Networks as energies, as a family."""

from typing import Any

import torch

from partita.core import capability
from partita.core.checks import check_choice
from partita.core.protocols import Model, Objective
from partita.core.support import Binary, Real, Spin, Support
from partita.families.base import Family, Setting
from partita.families.by_gradient import CHAINS, OBJECTIVES, named_objective
from partita.families.networks import NETWORK, network
from partita.families.width import check_correlated
from partita.models import NeuralEnergy
from partita.nets import MLP
from partita.tables import Rows
from partita.tables.encoding import Kind, infer_kind

SUPPORTS = ("auto", "real", "binary")
ALL = ", ".join(OBJECTIVES)
OBJECTIVE = Setting(
    "auto",
    f"{ALL}, or auto: exact where Z is a small sum or an integral over one or two columns, else "
    "pcd",
)


def chosen_objective(owner: str, model: Model, settings: dict[str, Any]) -> Objective:
    """The objective named, or the likelihood itself where it is cheap."""
    check_choice(owner, "objective", settings["objective"], ("auto", *OBJECTIVES))
    if settings["objective"] != "auto":
        return named_objective(settings, model)
    return named_objective(
        {
            **settings,
            "objective": "exact" if capability.NEEDS["cheap_exact"].holds(model) else "pcd",
        },
        model,
    )


def _neural_energy(
    rows: Rows, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Objective]:
    real = (
        infer_kind(rows) == "real"
        if settings["support"] == "auto"
        else settings["support"] == "real"
    )
    if real and settings["covariance_type"] == "full":
        check_correlated("neural-energy", "covariance_type", "full", rows.width, ("diagonal",))
    support: Support = Real(rows.width) if real else Binary(rows.width)
    model = NeuralEnergy(
        network(settings, rows.width, 1, generator), support, covariance=settings["covariance_type"]
    )
    return model, chosen_objective("neural-energy", model, settings)


def _kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    """Zeros and ones as they are, spins relabeled, other columns standardized."""
    check_choice("neural-energy", "support", settings["support"], SUPPORTS)
    return infer_kind(rows) if settings["support"] == "auto" else settings["support"]


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {
        "NeuralEnergy, two real columns": NeuralEnergy(MLP(2, 1, generator=g), Real(2)),
        "NeuralEnergy, many real columns": NeuralEnergy(MLP(6, 1, generator=g), Real(6)),
        "NeuralEnergy, spins": NeuralEnergy(MLP(22, 1, generator=g), Spin(22)),
    }


FAMILY = Family(
    "neural-energy",
    "a network as energy: real columns (beside a normal reference) or binary ones",
    {
        **NETWORK,
        "covariance_type": Setting(
            "full", "of the normal reference of real columns: full or diagonal"
        ),
        "support": Setting("auto", "real, binary, or auto: what the columns hold"),
        "objective": OBJECTIVE,
        **CHAINS,
    },
    _neural_energy,
    _kind,
    _examples,
)
