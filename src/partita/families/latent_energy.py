"""Deep features with binary hidden units, as a family."""

import torch

from partita.core import capability
from partita.core.protocols import Settings
from partita.families.base import FAMILIES, Family, Made, Setting, check_correlated
from partita.families.by_gradient import CHAINS, named_objective
from partita.families.networks import NETWORK, network
from partita.families.neural_energy import OBJECTIVE
from partita.models import LatentEnergy
from partita.tables import Rows


def _latent_energy(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    features, covariance = settings["n_features"], settings["covariance_type"]
    if covariance == "full":
        check_correlated("latent-energy", "covariance_type", "full", rows.width, ("diagonal",))
    model = LatentEnergy(
        network(settings, rows.width, features, generator),
        rows.width,
        settings["n_hidden"],
        features,
        covariance=covariance,
        generator=generator,
    )
    return model, named_objective(settings, model, capability.cheap_exact)


FAMILIES.register(
    Family(
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
        "real",
    )
)
