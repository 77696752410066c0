r"""Annealed importance sampling: log Z from the reference upwards (Neal 2001).

.. math:: \hat Z = Z_0 \cdot \frac1C \sum_c w_c, \qquad E[\hat Z] = Z, \quad E[\log \hat Z] \le \log Z          (theory/scoring.md, eq. 5.4)

It errs low on log Z, which flatters the likelihood of an energy model.
"""

from dataclasses import dataclass

import torch

from partita.core.protocols import EnergyModel, Sampler
from partita.core.quantity import Quantity
from partita.diagnostics.weights import WeightReport, summarise_weights, verdict_on_weights
from partita.evaluators.partition.annealing import anneal, check_annealing, from_reference, resolve_kernel, temperatures_for
from partita.evaluators.partition.interval import half_width


@dataclass(frozen=True)
class AIS:
    """log Z by annealing from the reference; a lower bound in expectation.

    Arguments:
        temperatures: Number of inverse temperatures, 0 and 1 included; as many as a pilot finds needed if not given.
        chains: Independent annealings C.
        kernel: Leaves each temperature invariant; chosen by the capability table if not given.
        adaptive: Place temperatures by a pilot run; evenly if False.
        level: Of the interval.
    """

    temperatures: int | None = None
    chains: int = 128
    kernel: Sampler | None = None
    adaptive: bool = True
    level: float = 0.95

    def __post_init__(self) -> None:
        check_annealing("AIS", self.temperatures, self.chains, self.level)

    def __call__(self, model: EnergyModel, *, generator: torch.Generator) -> Quantity:
        kernel = resolve_kernel("AIS", self.kernel, model)
        betas = temperatures_for(model, kernel, self.temperatures, adaptive=self.adaptive, generator=generator)
        ends = anneal(model, kernel, betas, from_reference(model, self.chains, generator), generator=generator)
        report = summarise_weights(ends.log_w)
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
