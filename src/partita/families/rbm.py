"""The restricted Boltzmann machine as a family."""

from typing import Any

import torch

from partita.core.checks import check_choice
from partita.core.protocols import Model, Objective
from partita.families.base import Family, Setting
from partita.families.by_gradient import CHAINS, OBJECTIVES, named_objective
from partita.families.potts import states_of
from partita.models import RBM
from partita.tables import Rows
from partita.tables.encoding import Kind, infer_kind

UNITS = ("auto", "bernoulli", "gaussian", "categorical")


def auto_hidden(n: int, width: int) -> int:
    """About one hidden unit per column while there are twenty rows for each, between 8 and 500.

    >>> auto_hidden(60_000, 784), auto_hidden(1438, 64), auto_hidden(32, 16)
    (500, 64, 8)
    """
    return min(500, max(8, min(width, n // 20)))


def _rbm(
    rows: Rows, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Objective]:
    check_choice("rbm", "objective", settings["objective"], OBJECTIVES)
    check_choice("rbm", "visible_units", settings["visible_units"], UNITS)
    hidden, units = settings["n_hidden"], settings["visible_units"]
    hidden = auto_hidden(len(rows), rows.width) if hidden == "auto" else hidden
    if units == "auto":
        units = (
            "categorical"
            if rows.states
            else "gaussian"
            if infer_kind(rows) == "real"
            else "bernoulli"
        )
    states = states_of(rows) if units == "categorical" else None
    model = RBM(rows.width, hidden, visible_units=units, states=states, generator=generator)
    return model, named_objective(settings, model)


def _rbm_kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    """Bernoulli units take zeros and ones, gaussian ones standardized columns, categorical ones
    categories; by default, what rows hold.
    """
    check_choice("rbm", "visible_units", settings["visible_units"], UNITS)
    kinds: dict[str, Kind] = {"bernoulli": "binary", "gaussian": "real", "categorical": "category"}
    return kinds.get(settings["visible_units"]) or ("category" if rows.labels else infer_kind(rows))


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {
        "RBM, few hidden units": RBM(30, 8, generator=g),
        "RBM, many hidden units": RBM(30, 24, generator=g),
        "RBM, categorical visibles": RBM(
            12, 24, visible_units="categorical", states=4, generator=g
        ),
        "RBM, gaussian visibles": RBM(6, 24, visible_units="gaussian", generator=g),
    }


FAMILY = Family(
    "rbm",
    "restricted Boltzmann machine: binary, real or categorical columns, binary hidden units",
    {
        "n_hidden": Setting(
            "auto",
            "hidden units; auto is one per column while there are 20 rows for each, from 8 to 500",
        ),
        "visible_units": Setting(
            "auto",
            "bernoulli, gaussian, categorical, or auto: by whether columns are binary, numbers or "
            "words",
        ),
        "objective": Setting(
            "pcd",
            "pcd, cd, exact (at most 2^20 states on one side), tempered (pcd with replica "
            "exchange), replay, nce; pseudo-likelihood, ratio-matching (binary columns); "
            "score-matching, sliced-score-matching, denoising-score-matching (real ones)",
        ),
        **CHAINS,
        "centered": Setting(None, "center the gradient; none does so where the model can"),
    },
    _rbm,
    _rbm_kind,
    _examples,
)
