r"""Annealed importance sampling: log Z from the reference upwards (Neal 2001).

.. math:: \hat Z = Z_0 \cdot \frac1C \sum_c w_c, \qquad E[\hat Z] = Z, \quad E[\log \hat Z] \le \log Z          (theory/scoring.md, eq. 5.4)

It errs low on log Z, which flatters the likelihood of an energy model.
"""

from dataclasses import dataclass

import torch

from partita.core.protocols import EnergyModel
from partita.core.quantity import Quantity, half_width
from partita.diagnostics.weights import WeightReport, summarise_weights, verdict_on_weights
from partita.evaluators.partition.annealing import AnnealingEvaluator


@dataclass(frozen=True)
class AIS(AnnealingEvaluator):
    """log Z by annealing from the reference; a lower bound in expectation. Arguments as for :class:`AnnealingEvaluator`."""

    def __call__(self, model: EnergyModel, *, generator: torch.Generator) -> Quantity:
        kernel, betas = self._prepare(model, generator)
        report = summarise_weights(self._climb(model, kernel, betas, generator).log_w)
        return forward_quantity(float(model.reference().log_z), report, self.level)


def forward_quantity(log_z0: float, report: WeightReport, level: float) -> Quantity:
    """log Z from forward weights."""
    value, half = log_z0 + report.log_mean, half_width(report.se, level)
    return Quantity(
        value,
        value - half,
        value + half,
        level=level,
        kind="lower",
        method="AIS",
        verdict=verdict_on_weights(report),
        direction="low",
        details={"ess": report.ess, "khat": report.khat, "chains": report.n, "se": report.se},
    )
