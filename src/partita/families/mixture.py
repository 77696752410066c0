"""Finite mixtures as a family."""

from typing import Any

import numpy as np
import torch

from partita.core.checks import check_choice, check_count
from partita.core.protocols import Model, Update
from partita.families.base import Family, Setting
from partita.families.component_search import best, ladder
from partita.families.width import check_correlated
from partita.models import Mixture
from partita.models.directed.mixture import COMPONENTS, COVARIANCES
from partita.objectives import EM
from partita.runtime import deadline
from partita.tables import Rows
from partita.tables.encoding import Kind, infer_kind

RESTARTS = 4
MOST_COMPONENTS = 20
# of the time that is left, where there is a limit; the rest is for the fit of the number that was
# found
SEARCH_SHARE = 0.6


def chosen_count(
    components: Any, make: Any, rows: Rows, most: int, restarts: int, generator: torch.Generator
) -> int:
    """The number of components: as given, or for ``"auto"`` that of the smallest BIC on a
    ladder.
    """
    if components != "auto":
        return check_count("mixture", "n_components", components)
    counts = range(1, check_count("mixture", "max_components", most) + 1)
    with deadline.ending_within(SEARCH_SHARE * deadline.left()):
        return best(
            ladder(make, rows, counts, objective=EM(restarts), tolerance=1e-4, generator=generator)
        ).components


def _mixture(
    rows: Rows, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Update]:
    check_choice("mixture", "covariance_type", settings["covariance_type"], COVARIANCES)
    component, states = component_of(settings["component"], rows), settings["n_states"]
    if component == "categorical" and states == "auto":
        states = rows.states or largest(rows) + 1
    _check_room(rows, component, settings["covariance_type"])

    def make(components: int) -> Mixture:
        return Mixture(
            components,
            rows.width,
            component,
            settings["covariance_type"],
            floor=settings["reg_covar"],
            generator=generator,
            states=states if component == "categorical" else None,
            laws=rows.laws if component == "mixed" else None,
        )

    most, restarts = settings["max_components"], settings["n_init"]
    return make(chosen_count(settings["n_components"], make, rows, most, restarts, generator)), EM(
        restarts
    )


def component_of(component: str, rows: Rows) -> str:
    """The kind of component that is given; ``"auto"`` is by what the table holds: different sorts
    of columns, words, else numbers.
    """
    check_choice("mixture", "component", component, ("auto", *COMPONENTS))
    if component != "auto":
        return component
    if rows.laws is not None or (rows.schema is not None and rows.schema.by_column):
        return "mixed"
    return "categorical" if rows.labels or rows.states else "gaussian"


def _check_room(rows: Rows, component: str, covariance: str) -> None:
    """Refuse covariances that no memory holds, before they are made."""
    real = rows.width if component == "gaussian" else (rows.laws or ()).count("real")
    if covariance in ("full", "tied"):
        check_correlated("mixture", "covariance_type", covariance, real, ("diagonal", "spherical"))


def largest(rows: Rows) -> int:
    """The largest value of a table, at least 1."""
    return max(1, *(int(np.nanmax(part)) for part in rows.parts()))


def _mixture_kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    return component_kind(
        component_of(settings["component"], rows), settings["covariance_type"], rows
    )


def component_kind(component: str, covariance: str, rows: Rows) -> Kind:
    """How columns are encoded for a sort of component; one common scale where the model is not the
    same under others.
    """
    if component == "bernoulli":
        return "spin" if infer_kind(rows) == "spin" else "binary"
    if component == "mixed":
        return "mixed"
    if component in ("poisson", "categorical"):
        return "count" if component == "poisson" else "category"
    return "scaled" if covariance == "spherical" else "real"


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {
        "Mixture of Gaussians": Mixture(2, 2, generator=g),
        "Mixture of Bernoullis": Mixture(2, 2, "bernoulli", generator=g),
        "Mixture, mixed columns": Mixture(2, 3, "mixed", laws=("real", "count", 3), generator=g),
    }


FAMILY = Family(
    "mixture",
    "finite mixture of Gaussian, Bernoulli, categorical or Poisson components, or mixed columns, "
    "by EM; missing values allowed",
    {
        "n_components": Setting("auto", "number of components; auto compares fits by their BIC"),
        "component": Setting(
            "auto",
            "gaussian, bernoulli, categorical, poisson, mixed, or auto: by what a table holds",
        ),
        "covariance_type": Setting(
            "full", "of Gaussian components: full, tied, diagonal or spherical"
        ),
        "n_states": Setting(
            "auto", "number of states of categorical columns; auto looks at the data"
        ),
        "max_components": Setting(MOST_COMPONENTS, "the largest number that auto tries"),
        "n_init": Setting(RESTARTS, "k-means++ starts of which the best goes on"),
        "reg_covar": Setting(
            1e-6, "smallest eigenvalue of a covariance, in the units of the encoded columns"
        ),
    },
    _mixture,
    _mixture_kind,
    _examples,
    missing=True,
    mixed=True,
)
