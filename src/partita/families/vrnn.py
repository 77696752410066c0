"""The variational recurrent network as a family: sequences as they are, tables one column after the
other.
"""

import torch

from partita.core.arguments import check_count
from partita.core.protocols import Settings
from partita.datasets import Sequences
from partita.datasets.open import Reading
from partita.errors import invalid
from partita.families.autoregressive import element_of
from partita.families.base import FAMILIES, Family, Made, Setting
from partita.families.vae import BOUND, named_bound
from partita.models import VRNN
from partita.tables import Rows
from partita.tables.encoding import Kind, infer_kind


def _vrnn(rows: Rows | Sequences, settings: Settings, generator: torch.Generator) -> Made:
    if isinstance(rows, Sequences):
        size, length = rows.size, rows.longest
    else:
        size = check_count("vrnn", "step_columns", settings["step_columns"])
        length = rows.width // size
        if rows.width % size:
            raise invalid("vrnn", "step_columns", f"divide the {rows.width} columns", size)
    hidden, features = settings["n_hidden"], settings["n_features"]
    model = VRNN(
        length,
        _element(rows),
        size=size,
        latent=settings["n_latent"],
        hidden=hidden,
        features=hidden if features == "auto" else features,
        **{name: settings[name] for name in ("cell", "variance", "activation")},
        generator=generator,
    )
    return model, named_bound(settings)


def _kind(rows: Rows | Sequences, settings: Settings) -> Kind:
    """Sequences as they are: what scales real ones is part of the model. Tables by what they
    hold.
    """
    if not isinstance(rows, Sequences):
        return infer_kind(rows)
    _element(rows)  # tokens are refused before anything is built
    return "steps"


def _element(rows: Rows | Sequences) -> str:
    """What a step holds, which must not be tokens."""
    element = element_of(rows)
    if element == "categorical":
        allowed, got = "be sequences of bits or numbers", "text or other tokens"
        remedy = "Use `partita fit autoregressive`, which has tokens."
        raise invalid("vrnn", "DATA", allowed, got, remedy)
    return element


def _reads(settings: Settings) -> Settings:
    """Sequences whole; tokens of text, which it has no likelihood for, by bytes, so that they are
    named as such.
    """
    return Reading(settings["length"]).as_json()


FAMILIES.register(
    Family(
        "vrnn",
        "variational recurrent network: sequences of bits or numbers with latent variables at "
        "every step, scored from below",
        {
            "n_latent": Setting(16, "latent dimensions of a step"),
            "n_hidden": Setting(128, "hidden units of the recurrence"),
            "n_features": Setting("auto", "units of the networks around it; auto is n_hidden"),
            "cell": Setting("gru", "gru or lstm"),
            "variance": Setting(
                "row",
                "learned deviation of real steps: by the decoder (row), one for each column, or "
                "shared",
            ),
            "activation": Setting("relu", "of the networks: relu, tanh, silu, gelu or softplus"),
            "step_columns": Setting(1, "columns of a table that make one step"),
            "length": Setting(256, "steps of a window of a stream"),
            "objective": Setting(
                "elbo", "elbo, iwae, or fivo (a particle filter)", ("elbo", "iwae", "fivo")
            ),
            **BOUND,
            "resample_every": Setting(
                1, "steps between two looks at the particles (fivo); more are faster"
            ),
        },
        _vrnn,
        _kind,
        reads=_reads,
    )
)
