"""The variational autoencoder as a family."""

import torch

from partita.core.arguments import check_layers
from partita.core.protocols import Objective, Settings
from partita.families.base import (
    FAMILIES,
    Family,
    Made,
    Setting,
    likelihood_kind,
    likelihood_of,
    states_of,
)
from partita.families.networks import CHOICE, IMAGE, image_shape
from partita.models import VAE
from partita.objectives import ELBO, FIVO, IWAEBound
from partita.tables import Rows
from partita.tables.encoding import Kind

BOUND = {
    "beta": Setting(1.0, "weight of the divergence from the prior (elbo)"),
    "beta_warm_up": Setting(
        0,
        "updates over which that weight rises from zero, against collapse of the posterior (elbo)",
    ),
    "n_particles": Setting(
        10, "draws for each row of the importance-weighted bound, particles of the filtered one"
    ),
}


def auto_latent(width: int) -> int:
    """Half the columns, between 2 and 50.

    >>> auto_latent(784), auto_latent(64), auto_latent(3)
    (50, 32, 2)
    """
    return max(2, min(50, width // 2))


def auto_widths(n: int, depth: int) -> tuple[int, ...]:
    """Layers of 200 units, fewer where there are few rows."""
    return (max(16, min(200, n // 5)),) * depth


def named_bound(settings: Settings) -> Objective:
    """The objective that the settings ask for."""
    particles = settings["n_particles"]
    match settings["objective"]:
        case "elbo":
            return ELBO(settings["beta"], settings["beta_warm_up"])
        case "fivo":
            return FIVO(particles, every=settings["resample_every"])
        case "dreg":
            return IWAEBound(particles, "doubly")
    return IWAEBound(particles)


def _vae(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    likelihood = likelihood_of(settings["likelihood"], rows)
    latent, hidden = settings["n_latent"], settings["n_hidden"]
    depth = check_layers("vae", "n_layers", settings["n_layers"], 0)
    image: Settings = {}
    if settings["network"] == "conv":
        shape = image_shape(rows.width, settings["image"])
        image = {"image": shape, "channels": settings["channels"]}
    model = VAE(
        rows.width,
        auto_latent(rows.width) if latent == "auto" else latent,
        likelihood=likelihood,
        variance=settings["variance"],
        activation=settings["activation"],
        states=states_of(rows) if likelihood == "categorical" else None,
        laws=rows.laws if likelihood == "mixed" else None,
        widths=auto_widths(len(rows), depth) if hidden == "auto" else (hidden,) * depth,
        **image,
        generator=generator,
    )
    return model, named_bound(settings)


def _kind(rows: Rows, settings: Settings) -> Kind:
    """As the likelihood says; where columns are of different kinds, or values of a table are
    missing, each column has its own likelihood by default.
    """
    likelihood, schema = settings["likelihood"], rows.schema
    if likelihood == "auto" and schema is not None and (schema.by_column or not rows.complete()):
        return "mixed"
    return likelihood_kind(likelihood, rows)


FAMILIES.register(
    Family(
        "vae",
        "variational autoencoder: binary, real, categorical or mixed columns from normal latent "
        "variables, scored from below",
        {
            "n_latent": Setting(
                "auto", "latent dimensions; auto is half the columns, from 2 to 50"
            ),
            "likelihood": Setting(
                "auto",
                "bernoulli, gaussian, categorical, mixed, or auto: by what columns hold",
                ("auto", "bernoulli", "gaussian", "categorical", "mixed"),
            ),
            "variance": Setting(
                "column",
                "learned deviation of real columns: one for each column, shared by all, or row (by "
                "the decoder)",
            ),
            "network": CHOICE,
            "n_hidden": Setting(
                "auto",
                "units of each hidden layer (mlp); auto is 200, fewer where there are few rows",
            ),
            "n_layers": Setting(2, "hidden layers (mlp)"),
            "activation": Setting(
                "tanh", "of hidden layers (mlp): tanh, relu, silu, gelu or softplus"
            ),
            "channels": Setting([16, 32], "of convolutions, from the image inwards (conv)"),
            "image": IMAGE,
            "objective": Setting(
                "elbo",
                "elbo, iwae, or dreg (iwae with doubly reparameterized gradients)",
                ("elbo", "iwae", "dreg"),
            ),
            **BOUND,
        },
        _vae,
        _kind,
        missing="mixed",
        mixed=True,
        by_kind={"category": {"likelihood": "categorical"}},
    )
)
