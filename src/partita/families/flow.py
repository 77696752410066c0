"""Normalizing flows as a family."""

import torch

from partita.core.protocols import Settings
from partita.families.base import FAMILIES, Family, Made, Setting, check_correlated
from partita.models import Flow
from partita.objectives import ExactLikelihood
from partita.tables import Rows


def _flow(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    if settings["mixing"] == "lu":
        check_correlated("flow", "mixing", "lu", rows.width, ("permutation", "reverse", "none"))
    model = Flow(
        rows.width,
        settings["n_layers"],
        widths=(settings["n_hidden"],) * 2,
        bins=settings["n_bins"],
        **{name: settings[name] for name in ("coupling", "activation", "mixing", "bound")},
        generator=generator,
    )
    return model, ExactLikelihood()


FAMILIES.register(
    Family(
        "flow",
        "normalizing flow: an exact density of real columns from invertible networks",
        {
            "n_layers": Setting(8, "number of coupling layers"),
            "coupling": Setting(
                "affine", "affine (RealNVP) or spline (rational-quadratic, stronger and slower)"
            ),
            "n_hidden": Setting(
                64, "units of each of the two hidden layers of a coupling's network"
            ),
            "activation": Setting("relu", "of those networks: relu, silu, tanh, gelu or softplus"),
            "mixing": Setting(
                "lu", "of columns between couplings: lu (learned), permutation, reverse or none"
            ),
            "n_bins": Setting(8, "of splines"),
            "bound": Setting(5.0, "where splines become the identity, in standard deviations"),
        },
        _flow,
        "real",
    )
)
