"""Finite mixtures as a family."""

from collections.abc import Callable

import numpy as np
import torch

from partita.core.arguments import check_count
from partita.core.protocols import Settings
from partita.families.base import FAMILIES, Family, Made, Setting, check_correlated
from partita.families.component_search import best, ladder
from partita.models import Mixture
from partita.models.directed.mixture import COMPONENTS, COVARIANCES, Mixing
from partita.objectives import EM
from partita.runtime import deadline
from partita.tables import Rows
from partita.tables.encoding import Kind, infer_kind

# of the time that is left, where there is a limit; the rest is for the fit of the number that was
# found
SEARCH_SHARE = 0.6
COUNT = {  # settings of the number of components
    "max_components": Setting(20, "the largest number that auto tries"),
    "n_init": Setting(4, "k-means++ starts of which the best goes on"),
}
BITS = {"component": "bernoulli"}


def counted(
    make: Callable[[int], Mixing], rows: Rows, settings: Settings, generator: torch.Generator
) -> Made:
    """The mixture of as many components as the settings say, or for ``"auto"`` of those with the
    smallest BIC on a ladder; and EM.
    """
    count, objective = settings["n_components"], EM(settings["n_init"])
    if count == "auto":
        most = check_count("mixture", "max_components", settings["max_components"])
        with deadline.ending_within(SEARCH_SHARE * deadline.left()):
            tried = ladder(
                make,
                rows,
                range(1, most + 1),
                objective=objective,
                tolerance=1e-4,
                generator=generator,
            )
        count = best(tried).components
    return make(check_count("mixture", "n_components", count)), objective


def _mixture(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    component, states = component_of(settings["component"], rows), settings["n_states"]
    covariance = settings["covariance_type"]
    if component == "categorical" and states == "auto":
        states = rows.states or largest(rows) + 1
    if covariance in ("full", "tied"):
        real = rows.width if component == "gaussian" else (rows.laws or ()).count("real")
        check_correlated("mixture", "covariance_type", covariance, real, ("diagonal", "spherical"))

    def make(components: int) -> Mixture:
        return Mixture(
            components,
            rows.width,
            component,
            covariance,
            floor=settings["reg_covar"],
            generator=generator,
            states=states if component == "categorical" else None,
            laws=rows.laws if component == "mixed" else None,
        )

    return counted(make, rows, settings, generator)


def component_of(component: str, rows: Rows) -> str:
    """The kind of component that is given; ``"auto"`` is by what the table holds: different kinds
    of columns, words, else numbers.
    """
    if component != "auto":
        return component
    if rows.laws is not None or (rows.schema is not None and rows.schema.by_column):
        return "mixed"
    return "categorical" if rows.labels or rows.states else "gaussian"


def largest(rows: Rows) -> int:
    """The largest value of a table, at least 1."""
    return max(1, *(int(np.nanmax(part)) for part in rows.parts()))


def _kind(rows: Rows, settings: Settings) -> Kind:
    component = component_of(settings["component"], rows)
    return component_kind(component, settings["covariance_type"], rows)


def component_kind(component: str, covariance: str, rows: Rows) -> Kind:
    """How columns are encoded for a kind of component; one common scale where the model is not the
    same under others.
    """
    if component == "bernoulli":
        return "spin" if infer_kind(rows) == "spin" else "binary"
    kinds: dict[str, Kind] = {"mixed": "mixed", "poisson": "count", "categorical": "category"}
    return kinds.get(component, "scaled" if covariance == "spherical" else "real")


FAMILIES.register(
    Family(
        "mixture",
        "finite mixture of Gaussian, Bernoulli, categorical or Poisson components, or mixed "
        "columns, by EM; missing values allowed",
        {
            "n_components": Setting(
                "auto", "number of components; auto compares fits by their BIC"
            ),
            "component": Setting(
                "auto",
                "gaussian, bernoulli, categorical, poisson, mixed, or auto: by what a table holds",
                ("auto", *COMPONENTS),
            ),
            "covariance_type": Setting(
                "full",
                "of Gaussian components: full, tied, diagonal or spherical",
                tuple(COVARIANCES),
            ),
            "n_states": Setting(
                "auto", "number of states of categorical columns; auto looks at the data"
            ),
            **COUNT,
            "reg_covar": Setting(
                1e-6, "smallest eigenvalue of a covariance, in the units of the encoded columns"
            ),
        },
        _mixture,
        _kind,
        missing=True,
        mixed=True,
        by_kind={"binary": BITS, "spin": BITS, "category": {"component": "categorical"}},
    )
)
