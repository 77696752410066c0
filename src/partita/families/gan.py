"""Generative adversarial networks as a family."""

import torch

from partita.core.protocols import Settings
from partita.families.base import FAMILIES, Family, Made, Setting
from partita.models import GAN
from partita.objectives import Adversarial
from partita.tables import Rows

OF_LOSS = ("loss", "lipschitz", "critic_steps", "strength", "clip", "audit_every")


def _gan(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    widths = (settings["n_hidden"],) * 2
    model = GAN(rows.width, settings["n_latent"], widths=widths, generator=generator)
    return model, Adversarial(critic=widths, **{name: settings[name] for name in OF_LOSS})


FAMILIES.register(
    Family(
        "gan",
        "generative adversarial network: draws of real columns, no likelihood",
        {
            "n_latent": Setting(8, "columns of noise"),
            "n_hidden": Setting(
                128, "units of each of the two hidden layers of generator and critic"
            ),
            "loss": Setting(
                "non-saturating",
                "non-saturating, minimax, wasserstein, kl, reverse-kl, total-variation, "
                "jensen-shannon, hellinger, pearson, alpha-A",
            ),
            "lipschitz": Setting(
                "penalty", "how the critic's slope is bounded: penalty, spectral, clip or none"
            ),
            "critic_steps": Setting(1, "updates of the critic for each of the generator"),
            "strength": Setting(0.1, "of the penalty on slopes other than one"),
            "clip": Setting(0.05, "largest weight of the critic, with lipschitz=clip"),
            "audit_every": Setting(
                200, "updates between two looks at what the critic claims; 0 for none"
            ),
        },
        _gan,
        "real",
    )
)
