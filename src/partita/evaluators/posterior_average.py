r"""The posterior predictive density of rows, averaged over kept draws of the posterior.

.. math:: \log p(x) \approx \log \frac1S \sum_s p(x \mid \text{draw } s), \qquad
          \mathrm{se} = \frac{\mathrm{sd}(g)}{\sqrt{\mathrm{ESS}(g)}}, \quad
          g_s = \frac1N \sum_i \frac{p(x_i \mid s)}{\bar p(x_i)}          (theory/dirichlet.md, eq. 20.16)

g is how the mean log density of the N rows moves with the weight of draw s: its spread, at its effective sample size, is the Monte Carlo
error. The logarithm of an average errs low.

Letters: N rows, S draws of each of C chains.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from partita.core import capability
from partita.core.checks import check_level
from partita.core.errors import Diverged
from partita.core.quantity import Quantity, Verdict, half_width
from partita.diagnostics.chains import RHAT_LOOSE, ChainReport, summarise_chains

TIGHT, LOOSE = (RHAT_LOOSE, 100.0), (1.2, 20.0)  # R-hat at most, effective sample size at least


@dataclass(frozen=True)
class PosteriorAverage:
    """Mean log posterior predictive density per row, with an interval for the finite number of draws.

    Arguments:
        level: Of the interval.
    """

    level: float = 0.95

    def __post_init__(self) -> None:
        check_level("PosteriorAverage", self.level)

    @torch.no_grad()
    def __call__(self, model: Any, x: Tensor, *, generator: torch.Generator) -> Quantity:
        capability.require("PosteriorAverage", model)
        each = model.log_predictive(x.double())
        rows = torch.logsumexp(each, 0) - math.log(len(each))
        if not torch.isfinite(rows).all():
            raise Diverged(f"evaluate: the predictive density of {model.title()} must be finite; it is not for some rows.")
        value, spread = float(rows.mean()), float(rows.std()) / math.sqrt(len(rows)) if len(rows) > 1 else 0.0
        g = (each - rows).exp().mean(-1).view(model.alphas.shape).T  # (C, S)
        report = summarise_chains(g[..., None])
        half = half_width(_standard_error(g, report), self.level)
        details = {"rows": rows, "rhat": report.rhat, "ess": report.ess_bulk, "draws": len(each)}
        return Quantity(value, value - half, value + half, self.level, "estimate", "nats", f"average over {len(each)} posterior draws",
                        len(rows), spread, _verdict(g, report), "low", details)  # fmt: skip


def _standard_error(g: Tensor, report: ChainReport) -> float:
    """Of the mean of g; infinite where there are too few draws to tell."""
    if math.isfinite(report.ess_bulk):
        return float(g.std()) / math.sqrt(max(1.0, min(report.ess_bulk, g.numel())))
    return 0.0 if g.numel() > 1 and float(g.std()) == 0 else math.inf


def _verdict(g: Tensor, report: ChainReport) -> Verdict:
    """By R-hat, where there are several chains, and effective sample size."""
    if g.shape[1] >= 4 and float(g.std()) == 0:  # every draw agrees
        return "tight" if len(g) > 1 else "loose"
    if _reaches(report, TIGHT, len(g)):
        return "tight"
    return "loose" if _reaches(report, LOOSE, len(g)) else "do not publish"


def _reaches(report: ChainReport, marks: tuple[float, float], chains: int) -> bool:
    return report.ess_bulk >= marks[1] and (chains == 1 or report.rhat <= marks[0])
