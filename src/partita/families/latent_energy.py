"""Deep features with binary hidden units, as a family."""

from typing import Any

import torch

from partita.core.protocols import Model, Objective
from partita.families.base import Family, Setting
from partita.families.by_gradient import CHAINS
from partita.families.networks import NETWORK, network
from partita.families.neural_energy import OBJECTIVE, chosen_objective
from partita.families.width import check_correlated
from partita.models import LatentEnergy
from partita.nets import MLP
from partita.tables import Rows
from partita.tables.encoding import Kind


def _latent_energy(
    rows: Rows, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Objective]:
    if settings["covariance_type"] == "full":
        check_correlated("latent-energy", "covariance_type", "full", rows.width, ("diagonal",))
    f = network(settings, rows.width, settings["n_features"], generator)
    model = LatentEnergy(
        f,
        rows.width,
        settings["n_hidden"],
        settings["n_features"],
        covariance=settings["covariance_type"],
        generator=generator,
    )
    return model, chosen_objective("latent-energy", model, settings)


def _kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    """Any column is real."""
    return "real"


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {
        "LatentEnergy, two columns": LatentEnergy(MLP(2, 8, generator=g), 2, 16, 8, generator=g),
        "LatentEnergy, many columns": LatentEnergy(MLP(6, 8, generator=g), 6, 16, 8, generator=g),
    }


FAMILY = Family(
    "latent-energy",
    "binary hidden units that see real columns through a network, summed out exactly",
    {
        "n_hidden": Setting(32, "hidden units"),
        "n_features": Setting(32, "outputs of the network that hidden units see"),
        **NETWORK,
        "covariance_type": Setting("full", "of the normal reference: full or diagonal"),
        "objective": OBJECTIVE,
        **CHAINS,
    },
    _latent_energy,
    _kind,
    _examples,
)
