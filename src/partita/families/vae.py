"""The variational autoencoder as a family."""

from typing import Any

import torch

from partita.core.checks import check_choice, check_layers
from partita.core.protocols import Model, Objective
from partita.families.base import Family, Setting
from partita.families.networks import IMAGE, NETWORKS, image_shape
from partita.families.potts import states_of
from partita.models import VAE
from partita.objectives import ELBO, IWAEBound
from partita.tables import Rows
from partita.tables.encoding import Kind, infer_kind

OBJECTIVES = ("elbo", "iwae", "dreg")
LIKELIHOODS = ("auto", "bernoulli", "gaussian", "categorical", "mixed")
KINDS: dict[str, Kind] = {
    "bernoulli": "binary",
    "gaussian": "real",
    "categorical": "category",
    "mixed": "mixed",
}

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


def named_bound(owner: str, settings: dict[str, Any]) -> Objective:
    """The objective that the settings ask for."""
    check_choice(owner, "objective", settings["objective"], OBJECTIVES)
    if settings["objective"] == "elbo":
        return ELBO(settings["beta"], settings["beta_warm_up"])
    return IWAEBound(
        settings["n_particles"], "doubly" if settings["objective"] == "dreg" else "plain"
    )


def _vae(
    rows: Rows, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Objective]:
    check_choice("vae", "network", settings["network"], NETWORKS)
    likelihood = settings["likelihood"]
    if likelihood == "auto":
        likelihood = (
            "mixed"
            if rows.laws
            else "categorical"
            if rows.states
            else "gaussian"
            if infer_kind(rows) == "real"
            else "bernoulli"
        )
    latent, hidden = settings["n_latent"], settings["n_hidden"]
    made: dict[str, Any] = {
        "likelihood": likelihood,
        "variance": settings["variance"],
        "activation": settings["activation"],
    }
    made["states"] = states_of(rows) if likelihood == "categorical" else None
    made["laws"] = rows.laws if likelihood == "mixed" else None
    depth = check_layers("vae", "n_layers", settings["n_layers"], 0)
    made["widths"] = auto_widths(len(rows), depth) if hidden == "auto" else (hidden,) * depth
    if settings["network"] == "conv":
        made |= {
            "image": image_shape(rows.width, settings["image"]),
            "channels": settings["channels"],
        }
    latent = auto_latent(rows.width) if latent == "auto" else latent
    return VAE(rows.width, latent, **made, generator=generator), named_bound("vae", settings)


def _kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    """Zeros and ones, standardized columns or categories, as the likelihood says; by default, what
    rows hold.

    Where columns are of different sorts, or values of a table are missing, each column has its own
    likelihood.
    """
    check_choice("vae", "likelihood", settings["likelihood"], LIKELIHOODS)
    if (
        settings["likelihood"] == "auto"
        and rows.schema is not None
        and (rows.schema.by_column or not rows.complete())
    ):
        return "mixed"
    return KINDS.get(settings["likelihood"]) or ("category" if rows.labels else infer_kind(rows))


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {
        "VAE, binary": VAE(20, 4, widths=(16,), generator=g),
        "VAE, real": VAE(6, 2, likelihood="gaussian", widths=(16,), generator=g),
        "VAE, mixed columns": VAE(
            3, 2, likelihood="mixed", laws=("real", "count", 3), widths=(16,), generator=g
        ),
    }


FAMILY = Family(
    "vae",
    "variational autoencoder: binary, real, categorical or mixed columns from normal latent "
    "variables, scored from below",
    {
        "n_latent": Setting("auto", "latent dimensions; auto is half the columns, from 2 to 50"),
        "likelihood": Setting(
            "auto", "bernoulli, gaussian, categorical, mixed, or auto: by what columns hold"
        ),
        "variance": Setting(
            "column",
            "learned deviation of real columns: one for each column, shared by all, or row (by the "
            "decoder)",
        ),
        "network": Setting("mlp", "mlp, or conv for images and sequences"),
        "n_hidden": Setting(
            "auto", "units of each hidden layer (mlp); auto is 200, fewer where there are few rows"
        ),
        "n_layers": Setting(2, "hidden layers (mlp)"),
        "activation": Setting("tanh", "of hidden layers (mlp): tanh, relu, silu, gelu or softplus"),
        "channels": Setting([16, 32], "of convolutions, from the image inwards (conv)"),
        "image": Setting(None, IMAGE),
        "objective": Setting(
            "elbo", "elbo, iwae, or dreg (iwae with doubly reparameterized gradients)"
        ),
        **BOUND,
    },
    _vae,
    _kind,
    _examples,
    missing="mixed",
    mixed=True,
)
