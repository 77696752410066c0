"""Sigmoid belief networks as a family."""

from typing import Any

import torch

from partita.core.checks import check_choice, check_count, check_layers
from partita.core.protocols import Model, Objective
from partita.families.base import Family, Setting
from partita.families.potts import states_of
from partita.families.rbm import auto_hidden
from partita.gradients import ESTIMATORS
from partita.models import SigmoidBelief
from partita.objectives import DiscreteELBO
from partita.tables import Rows
from partita.tables.encoding import Kind, infer_kind

LIKELIHOODS = ("auto", "bernoulli", "gaussian", "categorical")
KINDS: dict[str, Kind] = {"bernoulli": "binary", "gaussian": "real", "categorical": "category"}
MOST_UNITS = 200  # of a layer, by default


def _belief(
    rows: Rows, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Objective]:
    likelihood, hidden = settings["likelihood"], settings["n_hidden"]
    if likelihood == "auto":
        likelihood = (
            "categorical"
            if rows.states
            else "gaussian"
            if infer_kind(rows) == "real"
            else "bernoulli"
        )
    hidden = min(MOST_UNITS, auto_hidden(len(rows), rows.width)) if hidden == "auto" else hidden
    units = (hidden,) * check_layers("belief", "n_layers", settings["n_layers"])
    width = check_count("belief", "width", settings["width"], 0)
    states = states_of(rows) if likelihood == "categorical" else None
    made = {
        "widths": (width,) if width else (),
        "activation": settings["activation"],
        "likelihood": likelihood,
        "states": states,
    }
    objective = DiscreteELBO(
        settings["estimator"], settings["n_particles"], settings["temperature"]
    )
    return SigmoidBelief(rows.width, units, **made, generator=generator), objective


def _kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    """Zeros and ones, standardized columns or categories, as the likelihood says; by default, what
    rows hold.
    """
    check_choice("belief", "likelihood", settings["likelihood"], LIKELIHOODS)
    return KINDS.get(settings["likelihood"]) or ("category" if rows.labels else infer_kind(rows))


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {
        "Belief net, many bits": SigmoidBelief(20, (12, 6), generator=g),
        "Belief net, few bits, real": SigmoidBelief(6, (4,), likelihood="gaussian", generator=g),
    }


FAMILY = Family(
    "belief",
    "sigmoid belief network: binary, real or categorical columns from layers of bits, scored from "
    "below",
    {
        "n_hidden": Setting(
            "auto",
            "bits of each layer; auto is one per column while there are 20 rows for each, from 8 "
            "to 200",
        ),
        "n_layers": Setting(1, "layers of bits, each given the one above it"),
        "width": Setting(0, "hidden units of the perceptron between two layers; 0 is linear"),
        "activation": Setting("tanh", "of those perceptrons: tanh, relu, silu, gelu or softplus"),
        "likelihood": Setting(
            "auto", "bernoulli, gaussian, categorical, or auto: by what columns hold"
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
    _examples,
)
