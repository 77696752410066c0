"""A model seen through its encoding: scores and draws in the units of the table."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from partita.core import capability
from partita.core.protocols import (
    DirectedModel,
    EnergyModel,
    LikelihoodEvaluator,
    Model,
    PartitionEvaluator,
)
from partita.core.quantity import Quantity
from partita.errors import invalid
from partita.evaluators import evaluate
from partita.evaluators.partition.reverse_ais import exact_draws
from partita.samplers import sample
from partita.tables import Encoding


def evaluate_encoded(
    model: Model,
    encoding: Encoding,
    x: np.ndarray,
    *,
    evaluator: LikelihoodEvaluator | PartitionEvaluator | Quantity | None = None,
    owner: str = "evaluate",
    generator: torch.Generator,
) -> Quantity:
    """Mean log-likelihood per row of ``x`` in its own units: of the encoded rows, with the Jacobian
    of what was observed.
    """
    if x.shape[1] != len(encoding.shift):
        raise invalid(
            owner, "X", f"have shape (*, {len(encoding.shift)}) to match {model.title()}", x.shape
        )
    z = torch.from_numpy(encoding.encode(encoding.check(x, owner)))
    q = evaluate(model, z, evaluator=evaluator, generator=generator)
    shifts = encoding.log_jacobians(x)
    if q.kind == "none":  # no likelihood: a statistic of the encoded rows
        return q
    shift, alike = (
        (float(shifts[0]), True) if np.ptp(shifts) == 0 else (float(shifts.mean()), False)
    )
    rows = q.details["rows"] + (shift if alike else torch.from_numpy(shifts).to(q.details["rows"]))
    details = {**q.details, "rows": rows}
    if "per_step" in details:
        details["per_step"] += shift * len(x) / details["steps"]
    se = q.se_data if alike else float(rows.std()) / len(x) ** 0.5
    return replace(q + shift, se_data=se, details=details)


def draw_rows(
    model: EnergyModel | DirectedModel, n: int, burn_in: int | None, generator: torch.Generator
) -> Tensor:
    """``n`` draws: exact by enumeration where the states are few and no burn-in is given, else
    the ends of chains.
    """
    few_states = capability.smallest_bits(model) <= capability.CHEAP_BITS
    if burn_in is None and few_states and isinstance(model, EnergyModel):
        return exact_draws(model, n, generator=generator)
    return sample(model, n, burn_in=1000 if burn_in is None else burn_in, generator=generator)
