r"""The log-likelihood of rows, and the one function that picks how to compute it.

.. math:: \frac1N \sum_i \log p(x_i) = -\frac1N \sum_i F(x_i) - \log Z
          (theory/scoring.md, eq. 5.8)
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from partita.core import capability
from partita.core.arguments import check_choice, check_generator, check_role, check_rows
from partita.core.protocols import (
    Capability,
    EnergyModel,
    LikelihoodEvaluator,
    Model,
    PartitionEvaluator,
    in_double,
)
from partita.core.quantity import Quantity, pooled
from partita.errors import Diverged, InputError, invalid
from partita.evaluators.partition.portfolio import Portfolio
from partita.runtime import memory_limit, processes
from partita.tables import Rows, as_rows

ROWS_AT_ONCE = 4096
CELLS_AT_ONCE = 1 << 24  # numbers held in memory of a table that is scored
# of log Z: reverse-ais is ReverseAIS
EVALUATORS = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower(): name
    for name, part in capability.PARTS.items()
    if part.role == "partition"
}
# of log p(x), for latent variables
BOUNDS = {"iwae": "IWAE", "latent-ais": "LatentAIS", "filter": "ParticleFilter"}


@dataclass(frozen=True)
class FromPartition:
    """Mean log-likelihood per row of an energy model, from an evaluator of log Z (or a log Z that
    is already known).
    """

    partition: PartitionEvaluator | Quantity

    def __call__(self, model: Any, x: Tensor, *, generator: torch.Generator) -> Quantity:
        log_z = (
            self.partition
            if isinstance(self.partition, Quantity)
            else self.partition(model, generator=generator)
        )
        rows = -free_energies_of_rows(model, x)
        if not torch.isfinite(rows).all() or not math.isfinite(log_z.value):
            raise Diverged(
                f"evaluate: the free energy and log Z of {model.title()} must be finite; its "
                "parameters are too large."
            )
        q = _about_rows(
            float(rows.mean()) - log_z, rows - log_z.value, {**log_z.details, "log_z": log_z}
        )
        return _mark_impossible(q, x) if model.support.discrete else q


@dataclass(frozen=True)
class LogProb:
    """Mean log-likelihood per row of a model with an exact ``log_prob``, in float64."""

    @torch.no_grad()
    def __call__(self, model: Any, x: Tensor, *, generator: torch.Generator) -> Quantity:
        capability.require("LogProb", model)
        model = in_double(model)
        rows = torch.cat([model.log_prob(part.to(model.like)) for part in x.split(ROWS_AT_ONCE)])
        if not torch.isfinite(rows).all():
            raise Diverged(
                f"evaluate: log_prob of {model.title()} must be finite; it is not at "
                f"{int((~torch.isfinite(rows)).sum())} rows."
            )
        return _about_rows(
            Quantity(float(rows.mean()), method="log_prob"), rows, per_step(model, x, rows)
        )


@torch.no_grad()
def free_energies_of_rows(model: EnergyModel, x: Tensor) -> Tensor:
    """F of every row in float64, some thousands at a time."""
    model = in_double(model)
    return torch.cat([model(part.to(model.like)) for part in x.split(ROWS_AT_ONCE)])


@memory_limit.named("evaluate")
def evaluate(
    model: Model,
    x: Any,
    *,
    evaluator: LikelihoodEvaluator | PartitionEvaluator | Quantity | None = None,
    rows: Any = None,
    fabric: Any = None,
    generator: torch.Generator,
) -> Quantity:
    """Mean log-likelihood per row of ``x``, in nats, with its kind, interval and verdict; per-row
    values in ``details["rows"]``.

    Arguments:
        x: Rows in the model's support, ``(N, D)``: tensor, array, frame, or
            :class:`partita.tables.Rows`.
        evaluator: How to compute it; by default exact where the model has ``log_prob`` or its
            smaller side at most 2^20 states; else of energy models quadrature on at most three real
            columns and a sandwich of annealings beyond, of latent-variable models IWAE, of
            Dirichlet processes an average over posterior draws, and of GANs, which have no
            likelihood, two-sample statistics. An evaluator of log Z, or a log Z computed before,
            serves too.
        rows: Rows that show where the modes of an energy model are, such as its training data,
            where it was not fitted here and so remembers none; without any, log Z is never called
            tight.
        fabric: A launched ``lightning_fabric.Fabric`` whose processes, all of them here with the
            same arguments, share out the chains.
    """
    check_generator("evaluate", generator)
    if fabric is not None:
        with processes.together(fabric):
            return evaluate(model, x, evaluator=evaluator, rows=rows, generator=generator)
    model = _remembering(model, rows)
    missing = bool({Capability.MISSING, Capability.ENDS} & model.capabilities)
    if not isinstance(x, Tensor):
        table = as_rows(x, owner="evaluate", missing=missing)
        if isinstance(table, Rows) and len(table) * table.width > CELLS_AT_ONCE:
            again = partial(evaluate, model, generator=generator)
            return in_parts(
                model,
                table,
                evaluator,
                lambda part, known: again(part, evaluator=known),
                generator=generator,
            )
        x = table.tensor(generator)
    check_rows("evaluate", "x", x)
    if evaluator is not None and not isinstance(evaluator, Quantity):
        check_role("evaluate", "evaluator", evaluator, ("__call__",), "Sandwich()")
    model.support.check(x, "evaluate", missing=missing)
    chosen: Any = _default(model) if evaluator is None else evaluator
    likelihood: LikelihoodEvaluator = (
        FromPartition(chosen) if isinstance(chosen, Quantity) or _is_partition(chosen) else chosen
    )
    return likelihood(model, x, generator=generator)


def _default(model: Model) -> Any:
    """The one way to log Z for energy models, else the first evaluator that runs."""
    if isinstance(model, EnergyModel):
        return Portfolio()
    return capability.default("likelihood", model)


def _remembering(model: Model, rows: Any) -> Model:
    """An energy model that knows where its modes are; other models need no rows."""
    if rows is None or not isinstance(model, EnergyModel):
        return model
    return model.remembering(as_rows(rows, owner="evaluate").tensor(torch.Generator()), "evaluate")


def in_parts(
    model: Model,
    rows: Rows,
    evaluator: Any,
    score: Callable[[Tensor, Any], Quantity],
    *,
    generator: torch.Generator,
) -> Quantity:
    """The score of a table too large for memory: log Z once, then some rows after the others;
    ``rows`` of the details are left out.
    """
    chosen: Any = Portfolio() if evaluator is None and isinstance(model, EnergyModel) else evaluator
    known = (
        chosen(model, generator=generator)
        if chosen is not None and _is_partition(chosen)
        else chosen
    )
    step = max(1, CELLS_AT_ONCE // rows.width)
    places = (
        torch.arange(start, min(start + step, len(rows))) for start in range(0, len(rows), step)
    )
    return pooled(
        [_without_rows(score(rows.batch(index, generator=generator).x, known)) for index in places]
    )


def _without_rows(q: Quantity) -> Quantity:
    """A score without those of single rows, which would grow with the table."""
    return replace(q, details={name: value for name, value in q.details.items() if name != "rows"})


def _mark_impossible(q: Quantity, x: Tensor) -> Quantity:
    """Masses of distinct rows cannot sum to more than one: where they do, log Z is too low,
    whatever its diagnostics say.
    """
    index = torch.unique(x, dim=0, return_inverse=True)[1]
    first = torch.full((int(index.max()) + 1,), -math.inf, dtype=torch.float64).scatter(
        0, index.cpu(), q.details["rows"].cpu()
    )
    excess = float(torch.logsumexp(first, 0))
    if q.kind == "exact" or excess <= q.value - q.low:
        return q
    return replace(
        q,
        verdict="do not publish",
        details={**q.details, "mass_of_rows": math.exp(min(excess, 700.0))},
    )


def per_step(model: Any, x: Tensor, rows: Tensor) -> dict[str, Any]:
    """Nats per step of sequences, whose rows may differ in length."""
    if Capability.ENDS not in model.capabilities:
        return {}
    steps = int((~x.isnan()).sum()) // model.support.element.width
    return {"steps": steps, "per_step": float(rows.sum()) / steps}


def _is_partition(evaluator: Any) -> bool:
    part = capability.PARTS.get(type(evaluator).__name__)
    return isinstance(evaluator, Portfolio) or (part is not None and part.role == "partition")


def _about_rows(q: Quantity, rows: Tensor, details: dict[str, Any]) -> Quantity:
    n = len(rows)
    se = float(rows.std()) / math.sqrt(n) if n > 1 else 0.0
    details = {**details, "rows": rows}
    return Quantity(
        q.value,
        q.low,
        q.high,
        q.level,
        q.kind,
        q.unit,
        q.method,
        n,
        se,
        q.verdict,
        q.direction,
        details,
    )


def named_evaluator(name: Any, owner: str = "evaluate", *, bounds: bool = False) -> Any:
    """An evaluator of log Z by name; None for ``"auto"``; any other object as it is.

    With ``bounds`` also those of latent-variable models, with a number of draws or temperatures if
    one is given:

    >>> named_evaluator("iwae-5000", bounds=True).k
    5000
    """
    if not isinstance(name, str):
        return name
    base, _, count = name.rpartition("-")
    base, settings = (base, (int(count),)) if count.isdecimal() and len(count) < 19 else (name, ())
    if bounds and base in BOUNDS:
        try:
            return capability.part_named(BOUNDS[base])(*settings)
        except InputError as error:
            if error.facts is None:
                raise
            allowed = f"end in {error.facts.allowed.removeprefix('be ')}"
            raise invalid(owner, "evaluator", allowed, repr(name)) from None
    check_choice(owner, "evaluator", name, ("auto", *EVALUATORS, *(BOUNDS if bounds else ())))
    return None if name == "auto" else capability.part_named(EVALUATORS[name])()
