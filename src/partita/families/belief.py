"""Sigmoid belief networks as a family."""

import torch

from partita.core.arguments import check_count, check_layers
from partita.core.protocols import Settings
from partita.families.base import (
    FAMILIES,
    Family,
    Made,
    Setting,
    likelihood_kind,
    likelihood_of,
    states_of,
)
from partita.families.rbm import auto_hidden
from partita.gradients import ESTIMATORS
from partita.models import SigmoidBelief
from partita.objectives import DiscreteELBO
from partita.tables import Rows
from partita.tables.encoding import Kind

MOST_UNITS = 200  # of a layer, by default


def _belief(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    likelihood, hidden = likelihood_of(settings["likelihood"], rows), settings["n_hidden"]
    hidden = min(MOST_UNITS, auto_hidden(len(rows), rows.width)) if hidden == "auto" else hidden
    width = check_count("belief", "width", settings["width"], 0)
    model = SigmoidBelief(
        rows.width,
        (hidden,) * check_layers("belief", "n_layers", settings["n_layers"]),
        widths=(width,) if width else (),
        activation=settings["activation"],
        likelihood=likelihood,
        states=states_of(rows) if likelihood == "categorical" else None,
        generator=generator,
    )
    names = ("estimator", "n_particles", "temperature")
    return model, DiscreteELBO(*(settings[name] for name in names))


def _kind(rows: Rows, settings: Settings) -> Kind:
    return likelihood_kind(settings["likelihood"], rows)


FAMILIES.register(
    Family(
        "belief",
        "sigmoid belief network: binary, real or categorical columns from layers of bits, scored "
        "from below",
        {
            "n_hidden": Setting(
                "auto",
                "bits of each layer; auto is one per column while there are 20 rows for each, from "
                "8 to 200",
            ),
            "n_layers": Setting(1, "layers of bits, each given the one above it"),
            "width": Setting(0, "hidden units of the perceptron between two layers; 0 is linear"),
            "activation": Setting(
                "tanh", "of those perceptrons: tanh, relu, silu, gelu or softplus"
            ),
            "likelihood": Setting(
                "auto",
                "bernoulli, gaussian, categorical, or auto: by what columns hold",
                ("auto", "bernoulli", "gaussian", "categorical"),
            ),
            "estimator": Setting("disarm", f"of the gradient: {', '.join(ESTIMATORS)}"),
            "n_particles": Setting(4, "draws for each row (leave-one-out, vimco)"),
            "temperature": Setting(
                0.5,
                "of relaxed draws (gumbel-softmax, straight-through), or where it starts (rebar, "
                "relax)",
            ),
        },
        _belief,
        _kind,
        by_kind={"category": {"likelihood": "categorical"}},
    )
)
