"""The variational recurrent network as a family: sequences as they are, tables one column after the
other.
"""

from typing import Any

import torch

from partita.core.checks import check_choice, check_count
from partita.core.protocols import Model, Objective
from partita.datasets import Sequences
from partita.datasets.open import Reading
from partita.errors import invalid
from partita.families.autoregressive import element_of
from partita.families.base import Family, Setting
from partita.families.vae import BOUND
from partita.models import VRNN
from partita.objectives import ELBO, FIVO, IWAEBound
from partita.tables.encoding import Kind, infer_kind

OBJECTIVES = ("elbo", "iwae", "fivo")


def named_bound(settings: dict[str, Any]) -> Objective:
    """The objective that the settings ask for."""
    check_choice("vrnn", "objective", settings["objective"], OBJECTIVES)
    if settings["objective"] == "elbo":
        return ELBO(settings["beta"], settings["beta_warm_up"])
    return (
        IWAEBound(settings["n_particles"])
        if settings["objective"] == "iwae"
        else FIVO(settings["n_particles"], every=settings["resample_every"])
    )


def _vrnn(
    rows: Any, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Objective]:
    element, streams = _element(rows), isinstance(rows, Sequences)
    size = rows.size if streams else check_count("vrnn", "step_columns", settings["step_columns"])
    if not streams and rows.width % size:
        raise invalid("vrnn", "step_columns", f"divide the {rows.width} columns", size)
    length = rows.longest if streams else rows.width // size
    hidden, features = settings["n_hidden"], settings["n_features"]
    model = VRNN(
        length,
        element,
        size=size,
        latent=settings["n_latent"],
        hidden=hidden,
        features=hidden if features == "auto" else features,
        **{name: settings[name] for name in ("cell", "variance", "activation")},
        generator=generator,
    )
    return model, named_bound(settings)


def _kind(rows: Any, settings: dict[str, Any]) -> Kind:
    """Sequences as they are: what scales real ones is part of the model. Tables by what they
    hold.
    """
    if not isinstance(rows, Sequences):
        return infer_kind(rows)
    _element(rows)  # tokens are refused before anything is built
    return "steps"


def _element(rows: Any) -> str:
    """What a step holds, which must not be tokens."""
    element = element_of(rows)
    if element == "categorical":
        remedy = "Use `partita fit autoregressive`, which has tokens."
        raise invalid(
            "vrnn", "DATA", "be sequences of bits or numbers", "text or other tokens", remedy
        )
    return element


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {"VRNN": VRNN(6, size=2, latent=2, hidden=8, features=8, generator=g)}


def _reads(settings: dict[str, Any]) -> dict[str, Any]:
    """Sequences whole; tokens of text, which it has no likelihood for, by bytes, so that they are
    named as such.
    """
    return Reading(settings["length"]).as_json()


FAMILY = Family(
    "vrnn",
    "variational recurrent network: sequences of bits or numbers with latent variables at every "
    "step, scored from below",
    {
        "n_latent": Setting(16, "latent dimensions of a step"),
        "n_hidden": Setting(128, "hidden units of the recurrence"),
        "n_features": Setting("auto", "units of the networks around it; auto is n_hidden"),
        "cell": Setting("gru", "gru or lstm"),
        "variance": Setting(
            "row",
            "learned deviation of real steps: by the decoder (row), one for each column, or shared",
        ),
        "activation": Setting("relu", "of the networks: relu, tanh, silu, gelu or softplus"),
        "step_columns": Setting(1, "columns of a table that make one step"),
        "length": Setting(256, "steps of a window of a stream"),
        "objective": Setting("elbo", "elbo, iwae, or fivo (a particle filter)"),
        **BOUND,
        "resample_every": Setting(
            1, "steps between two looks at the particles (fivo); more are faster"
        ),
    },
    _vrnn,
    _kind,
    _examples,
    reads=_reads,
)
