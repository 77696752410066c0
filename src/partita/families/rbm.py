"""The restricted Boltzmann machine as a family."""

import torch

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
from partita.families.by_gradient import CHAINS, named_objective, objective_setting
from partita.models import RBM
from partita.tables import Rows
from partita.tables.encoding import Kind


def auto_hidden(n: int, width: int) -> int:
    """About one hidden unit per column while there are twenty rows for each, between 8 and 500.

    >>> auto_hidden(60_000, 784), auto_hidden(1438, 64), auto_hidden(32, 16)
    (500, 64, 8)
    """
    return min(500, max(8, min(width, n // 20)))


def _rbm(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    hidden, units = settings["n_hidden"], likelihood_of(settings["visible_units"], rows)
    hidden = auto_hidden(len(rows), rows.width) if hidden == "auto" else hidden
    states = states_of(rows) if units == "categorical" else None
    model = RBM(rows.width, hidden, visible_units=units, states=states, generator=generator)
    return model, named_objective(settings, model)


def _kind(rows: Rows, settings: Settings) -> Kind:
    return likelihood_kind(settings["visible_units"], rows)


FAMILIES.register(
    Family(
        "rbm",
        "restricted Boltzmann machine: binary, real or categorical columns, binary hidden units",
        {
            "n_hidden": Setting(
                "auto",
                "hidden units; auto is one per column while there are 20 rows for each, from 8 to "
                "500",
            ),
            "visible_units": Setting(
                "auto",
                "bernoulli, gaussian, categorical, or auto: by whether columns are binary, numbers "
                "or words",
                ("auto", "bernoulli", "gaussian", "categorical"),
            ),
            "objective": objective_setting(
                "pcd",
                "pcd, cd, exact (at most 2^20 states on one side), tempered (pcd with replica "
                "exchange), replay, nce; pseudo-likelihood, ratio-matching (binary columns); "
                "score-matching, sliced-score-matching, denoising-score-matching (real ones)",
            ),
            **CHAINS,
            "centered": Setting(None, "center the gradient; none does so where the model can"),
        },
        _rbm,
        _kind,
        by_kind={"category": {"visible_units": "categorical"}},
    )
)
