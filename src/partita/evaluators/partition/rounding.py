r"""What every evaluator of log Z does to a model first, and how much of its answer is rounding.

.. math:: |\delta \log Z| \lesssim 10\, \epsilon\, |F|          (theory/scoring.md, eq. 5.26)

Energies are subtracted at every temperature, so what counts is their size, not their differences: a
bias of 1e6 leaves float32 a tenth of a nat. Such a model is evaluated in float64, which takes twice
as long for an RBM of 784 x 500; others keep their dtype.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from partita.core import capability
from partita.core.protocols import EnergyModel, in_double
from partita.core.quantity import Quantity, half_width, worst
from partita.diagnostics.weights import verdict_on_unseen
from partita.evaluators.partition.difference import Between
from partita.evaluators.partition.tails import check_integral, reference_draws
from partita.evaluators.partition.truncation import CutReference, cut

ROUNDED = 3e-4  # nats by which one energy may be rounded
ROUNDINGS = 10.0  # that add up along a path, averaged over chains
NOTICED = 1e-3  # nats below which the interval need not know
COMMON = 0.9  # share of states whose energies are no larger
KEY = 1301
ROWS = 64  # whose energies are looked at


def prepared(owner: str, model: EnergyModel, rows: Tensor | None) -> EnergyModel:
    """The model with the rows that are known, in a dtype that is fine enough, and with a finite
    Z as far as can be seen.
    """
    capability.require(owner, model)
    model = precise(model.remembering(rows, owner))
    if isinstance(model, Between):
        for end in (model.first, model.last):
            check_integral(owner, end)
        return model
    check_integral(owner, model)
    generator = torch.Generator(model.like.device).manual_seed(KEY)
    return cut(owner, model, reference_draws(model), generator)


def precise(model: EnergyModel) -> EnergyModel:
    """The model itself, or a copy in float64 where its dtype rounds energies that large."""
    eps = torch.finfo(model.like.dtype).eps
    if eps <= torch.finfo(torch.float32).eps and eps * energy_size(model) <= ROUNDED:
        return model
    if isinstance(model, Between):
        return Between(in_double(model.first), in_double(model.last))
    return in_double(model)


@torch.no_grad()
def energy_size(model: EnergyModel) -> float:
    """The size that most energies do not exceed, in nats: at draws of the reference, at rows, and
    of the reference's log Z.
    """
    ends = (model.first, model.last) if isinstance(model, Between) else (model,)
    sizes = [0.0]
    for end in ends:
        rows = end.anchor_rows(ROWS)
        for x in (reference_draws(end), rows):
            if x is not None:
                size = end.free_energy(x).double().abs()
                size = size[size.isfinite()]
                sizes.append(float(size.quantile(COMMON)) if len(size) else 0.0)
        sizes.append(abs(float(end.reference().log_z)))
    return max(size for size in sizes if math.isfinite(size))


def reach_to_rounding(q: Quantity, model: EnergyModel) -> Quantity:
    """The quantity with an interval that holds the rounding of the model's energies, where that is
    noticed, and the error of the share at which a reference is cut.
    """
    return reach_to_rounding_of(q, model, model.like.dtype, energy_size(model))


def reach_to_rounding_of(
    q: Quantity, model: EnergyModel, dtype: torch.dtype, size: float
) -> Quantity:
    """The same where energies are of a known dtype and size."""
    half = ROUNDINGS * torch.finfo(dtype).eps * size
    reference = model.reference()
    if isinstance(reference, CutReference):
        half += half_width(reference.se, q.level)
    if half < NOTICED:
        return q
    verdict = worst(q.verdict, verdict_on_unseen(half))
    details = {**q.details, "rounding": half}
    return replace(q, low=q.low - half, high=q.high + half, verdict=verdict, details=details)
