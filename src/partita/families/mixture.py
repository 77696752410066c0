r"""Finite mixtures as a family, and how many components: a fit for each number, compared by the
Bayesian information criterion (Schwarz 1978).

.. math:: \mathrm{BIC} = -2 \sum_n \log p(x_n) + P \log N          (theory/mixtures.md, eq. 10.13)

Where there is a deadline (:mod:`partita.runtime.deadline`), a number is tried only if there is time
for as many updates as the one before it took, no fit takes more updates than there is time for, and
numbers are skipped once a part of the time is gone; those near the best one are tried afterwards.

Letters: N rows, P free parameters, K components.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch

from partita.core import rng
from partita.core.arguments import check_count
from partita.core.protocols import Settings
from partita.errors import PartitaWarning
from partita.families.base import FAMILIES, Family, Made, Setting, check_correlated
from partita.models import Mixture
from partita.models.directed.mixture import COMPONENTS, COVARIANCES, Mixing
from partita.objectives.base import Nothing
from partita.objectives.em import EM, total_log_prob
from partita.runtime import deadline
from partita.tables import Rows, as_rows
from partita.tables.arrays import TableLike
from partita.tables.encoding import Kind, infer_kind
from partita.training.loop import fit
from partita.training.run import Interrupted, Run
from partita.training.settings import LENGTHS, UPDATES

PATIENCE = 2  # rungs without a better criterion after which a ladder ends
# the part of a time after which the next number to try is so many times the last one
HASTE, GROWTH = 0.25, 1.5

# of the time that is left, where there is a limit; the rest is for the fit of the number that was
# found
SEARCH_SHARE = 0.6
COUNT = {  # settings of the number of components
    "max_components": Setting(20, "the largest number that auto tries"),
    "n_init": Setting(4, "k-means++ starts of which the best goes on"),
}
BITS = {"component": "bernoulli"}


class Rung(NamedTuple):
    """One number of components."""

    components: int
    log_likelihood: float  # of all rows
    parameters: int
    bic: float
    run: Run


def criterion(
    model: Mixing, data: TableLike | Rows, *, generator: torch.Generator
) -> tuple[float, float]:
    """The log-likelihood of all rows and the BIC of a model with free parameters ``freedom()``;
    smaller is better.
    """
    rows = as_rows(data, missing=True)
    total = float(total_log_prob(model, rows, generator=generator))
    return total, -2 * total + model.freedom() * math.log(len(rows))


def ladder(
    make: Callable[[int], Mixing],
    data: TableLike | Rows,
    counts: Iterable[int],
    *,
    objective: EM | None = None,
    generator: torch.Generator,
    **options: Any,
) -> list[Rung]:
    """Fit ``make(K)`` for each K and tabulate; stops after :data:`PATIENCE` numbers in a row that
    do not lower the BIC.

    Arguments:
        make: The model for a number of components.
        data: Rows to fit.
        counts: Numbers of components to try, rising.
        objective: How each is fitted; ``EM(restarts=4)`` if not given.
        options: Of :func:`partita.fit`.

    >>> from partita.models import Mixture
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.cat([torch.randn(60, 2, generator=g), 6 + torch.randn(60, 2, generator=g)])
    >>> table = ladder(lambda K: Mixture(K, 2, generator=g), x, range(1, 6), generator=g)
    >>> best(table).components
    2
    """
    rows = as_rows(data, missing=True)
    objective = objective or EM(restarts=4)
    whole = deadline.left()
    table: list[Rung] = []
    waiting, skipped = [count for count in counts if count <= len(rows)], []

    def tried(K: int) -> bool:
        """Fit one number, unless there is no time for it."""
        model = make(K)
        shorter, length = _affordable(model, rows, objective, table)
        if shorter is None:
            return False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartitaWarning)  # they stay in each run's warnings
            try:
                run = fit(
                    model,
                    rows,
                    shorter,
                    generator=generator,
                    **({} if options.keys() & LENGTHS else length),
                    **options,
                )
            except Interrupted:  # a search has nothing to go on from
                raise KeyboardInterrupt from None
        total, bic = criterion(model, rows, generator=generator)
        table.append(Rung(K, total, model.freedom(), bic, run))
        return True

    in_time = True
    while in_time and waiting and _since_best(table) < PATIENCE:
        if table and deadline.left() < (1 - HASTE) * whole:
            near = [count for count in waiting[:-1] if count < GROWTH * table[-1].components]
            skipped, waiting = skipped + near, waiting[len(near) :]
        in_time = tried(waiting.pop(0))
    while in_time and (near := [K for K in skipped if abs(K - best(table).components) <= PATIENCE]):
        skipped.remove(nearest := min(near, key=lambda K: abs(K - best(table).components)))
        in_time = tried(nearest)
    table.sort(key=lambda rung: rung.components)
    if skipped or not in_time:  # what was tried depends on the machine either way
        numbers = ", ".join(str(rung.components) for rung in table)
        why = "the search for the number of components was cut short by the clock"
        deadline.record_cut(f"{why}: of {numbers} the best is taken, and others may be better.")
    return table


def _since_best(table: list[Rung]) -> int:
    """Rungs after the best one."""
    return len(table) - 1 - table.index(best(table)) if table else 0


def best(table: list[Rung]) -> Rung:
    """The rung with the smallest BIC among those whose fit needed no holding back, else among
    all.
    """
    sound = [rung for rung in table if not rung.run.warnings]
    return min(sound or table, key=lambda rung: rung.bic)


def _affordable(
    model: Mixing, rows: Rows, objective: EM, table: list[Rung]
) -> tuple[EM | None, dict[str, int]]:
    """How a rung is fitted within the time that is left; by nothing if it would likely have to end
    early, which the first one may.
    """
    if deadline.left() == math.inf:
        return objective, {}
    needed = objective.beforehand + table[-1].run.steps if table else 0
    if needed and deadline.left() <= 0:
        return None, {}
    # which may take all the time there was
    updates = max(0.0, deadline.left() / _seconds_of_update(model, rows))
    if updates < needed:
        return None, {}
    shorter = objective.within(updates)
    return shorter, {"epochs": max(1, min(UPDATES["epochs"], int(updates) - shorter.beforehand))}


def _seconds_of_update(model: Mixing, rows: Rows) -> float:
    """Of one update of a copy, which leaves the model and its draws as they are."""
    thrown_away = copy.deepcopy(model)
    thrown_away.initialize(rows, generator=rng.keyed(0))
    started = deadline.now()
    EM().update(thrown_away, rows, Nothing(), generator=rng.keyed(0))
    return deadline.now() - started


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
