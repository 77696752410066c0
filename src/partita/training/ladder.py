r"""How many components: a fit for each number, compared by the Bayesian information criterion (Schwarz 1978).

.. math:: \mathrm{BIC} = -2 \sum_n \log p(x_n) + P \log N          (theory/mixtures.md, eq. 10.13)

Letters: N rows, P free parameters, K components.
"""

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from partita.data import as_rows
from partita.objectives.closed_form import total_log_prob
from partita.objectives.em import EM
from partita.training.loop import PartitaWarning, fit
from partita.training.run import Run

PATIENCE = 2  # rungs without a better criterion after which a ladder ends


class Rung(NamedTuple):
    """One number of components."""

    components: int
    log_likelihood: float  # of all rows
    parameters: int
    bic: float
    run: Run


def criterion(model: Any, data: Any, *, generator: torch.Generator) -> tuple[float, float]:
    """The log-likelihood of all rows and the BIC of a model with free parameters ``freedom()``; smaller is better."""
    rows = as_rows(data, missing=True)
    total = float(total_log_prob(model, rows, generator=generator))
    return total, -2 * total + model.freedom() * math.log(len(rows))


def ladder(
    make: Callable[[int], Any],
    data: Any,
    counts: Iterable[int],
    *,
    objective: EM | None = None,
    patience: int = PATIENCE,
    generator: torch.Generator,
    **options: Any,
) -> list[Rung]:
    """Fit ``make(K)`` for each K and tabulate; stops after ``patience`` numbers in a row that do not lower the BIC.

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
    table: list[Rung] = []
    rows = as_rows(data, missing=True)
    for K in counts:
        if len(rows) < K or (table and K - best(table).components > patience):
            break
        model = make(K)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartitaWarning)  # they stay in each run's cautions
            run = fit(model, rows, objective or EM(restarts=4), generator=generator, **options)
        table.append(Rung(K, *_scored(model, rows, generator), run))
    return table


def best(table: list[Rung]) -> Rung:
    """The rung with the smallest BIC among those whose fit needed no holding back, else among all."""
    sound = [rung for rung in table if not rung.run.cautions]
    return min(sound or table, key=lambda rung: rung.bic)


def _scored(model: Any, rows: Any, generator: torch.Generator) -> tuple[float, int, float]:
    total, bic = criterion(model, rows, generator=generator)
    return total, model.freedom(), bic
