r"""Annealed importance sampling: log Z from the reference upwards (Neal 2001).

.. math:: \hat Z = Z_0 \cdot \frac1C \sum_c w_c, \qquad E[\hat Z] = Z, \quad E[\log \hat Z] \le \log
          Z
          (theory/scoring.md, eq. 5.4)

It errs low on log Z, which flatters the likelihood of an energy model.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from partita.core.arguments import check_flag
from partita.core.protocols import EnergyModel, Sampler
from partita.core.quantity import Quantity, half_width
from partita.diagnostics.weights import WeightReport, summarize_weights, verdict_on_weights
from partita.evaluators.partition.annealing import Annealing, AnnealingEvaluator
from partita.evaluators.partition.modes import sought
from partita.evaluators.partition.rounding import prepared, reach_to_rounding
from partita.evaluators.partition.tails import reach_to_tails
from partita.evaluators.partition.witnesses import heard_by_modes


@dataclass(frozen=True)
class AIS(AnnealingEvaluator):
    """log Z by annealing from the reference; a lower bound in expectation. Arguments as for
    :class:`AnnealingEvaluator`, and

    Arguments:
        witnesses: Ask rows that are known and modes that were sought whether they were passed by:
            without it the weights alone are judged, which cannot know of a mode that none of the
            chains found. It takes as long again.
    """

    witnesses: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag(type(self).__name__, "witnesses", self.witnesses)

    def __call__(
        self, model: EnergyModel, *, rows: Tensor | None = None, generator: torch.Generator
    ) -> Quantity:
        name = type(self).__name__
        model = prepared(name, model, rows)
        log_z0 = float(model.reference().log_z)
        kernel, betas = self._prepare(model, generator)
        run = self._climb(model, kernel, betas, generator)
        q = forward_quantity(log_z0, summarize_weights(run.by_founder), self.level, name)
        q = reach_to_rounding(reach_to_tails(name, q, model, run.x), model)
        if not self.witnesses:
            return q
        q = self._from_above(q, run, model, kernel, betas, generator)
        seen = log_z0 + float(run.lineage.max())
        found = sought(model, kernel, generator)
        return heard_by_modes(q, model, kernel, betas, found, seen, self.chains, generator)

    def _from_above(
        self,
        q: Quantity,
        run: Annealing,
        model: EnergyModel,
        kernel: Sampler,
        betas: Tensor,
        generator: torch.Generator,
    ) -> Quantity:
        """The quantity after chains went down from where it ended; as it is by default, for plain
        weights show by themselves how uneven they are.
        """
        return q


def forward_quantity(
    log_z0: float, report: WeightReport, level: float, method: str = "AIS"
) -> Quantity:
    """log Z from forward weights."""
    value, half = log_z0 + report.log_mean, half_width(report.se, level)
    return Quantity(
        value,
        value - half,
        value + half,
        level=level,
        kind="lower",
        method=method,
        verdict=verdict_on_weights(report),
        direction="low",
        details={"ess": report.ess, "khat": report.khat, "chains": report.n, "se": report.se},
    )
