"""Normalizing flows as a family."""

from typing import Any

import torch

from partita.core.protocols import Model, Objective
from partita.families.base import Family, Setting
from partita.families.width import check_correlated
from partita.models import Flow
from partita.objectives import ExactLikelihood
from partita.tables import Rows
from partita.tables.encoding import Kind


def _flow(
    rows: Rows, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Objective]:
    if settings["mixing"] == "lu":
        check_correlated("flow", "mixing", "lu", rows.width, ("permutation", "reverse", "none"))
    hidden = settings["n_hidden"]
    model = Flow(
        rows.width,
        settings["n_layers"],
        widths=(hidden, hidden),
        bins=settings["n_bins"],
        **{name: settings[name] for name in ("coupling", "activation", "mixing", "bound")},
        generator=generator,
    )
    return model, ExactLikelihood()


def _kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    return "real"


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {"Flow": Flow(2, 2, widths=(8,), generator=g)}


FAMILY = Family(
    "flow",
    "normalizing flow: an exact density of real columns from invertible networks",
    {
        "n_layers": Setting(8, "number of coupling layers"),
        "coupling": Setting(
            "affine", "affine (RealNVP) or spline (rational-quadratic, stronger and slower)"
        ),
        "n_hidden": Setting(64, "units of each of the two hidden layers of a coupling's network"),
        "activation": Setting("relu", "of those networks: relu, silu, tanh, gelu or softplus"),
        "mixing": Setting(
            "lu", "of columns between couplings: lu (learned), permutation, reverse or none"
        ),
        "n_bins": Setting(8, "of splines"),
        "bound": Setting(5.0, "where splines become the identity, in standard deviations"),
    },
    _flow,
    _kind,
    _examples,
)
