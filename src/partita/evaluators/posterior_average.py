r"""The posterior predictive density of rows, averaged over kept draws of the posterior.

.. math:: \log p(x) \approx \log \frac1S \sum_s p(x \mid \text{draw } s), \qquad
          g_s = \frac1N \sum_i \frac{p(x_i \mid s)}{\bar p(x_i)}
          (theory/dirichlet.md, eq. 20.16)

g is how the mean log density of the N rows moves with the weight of draw s: the interval of its
mean (theory/scoring.md, eq. 5.20) is that of the score. It reaches over what each chain says alone
where the chains have not mixed; where they never move, over what may have a weight of 3 / (S C) and
yet not be among the draws. The logarithm of an average errs low.

Letters: N rows, S draws of each of C chains.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from partita.core import capability
from partita.core.arguments import check_level
from partita.core.quantity import Quantity
from partita.diagnostics.chains import mean_half_width, summarize_chains, worst_of
from partita.errors import Diverged


@dataclass(frozen=True)
class PosteriorAverage:
    """Mean log posterior predictive density per row, with an interval for the finite number of
    draws.

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
            raise Diverged(
                f"evaluate: the predictive density of {model.title()} must be finite; it is not "
                "for some rows."
            )
        value = float(rows.mean())
        spread = float(rows.std()) / math.sqrt(len(rows)) if len(rows) > 1 else 0.0
        S, C = model.alphas.shape
        g = (each - rows).exp().mean(-1).view(S, C).T
        clusters, own = model.mixing(), summarize_chains(g[..., None], redrawn=True)
        report = worst_of(clusters, own)
        # the rule of three
        unseen = -math.log1p(-self.level) / len(each) if clusters.still or own.still else 0.0
        half = max(mean_half_width(g, report, self.level), unseen)
        # each chain's own score
        alone = (
            []
            if report.mixed
            else (torch.logsumexp(each.view(S, C, -1), 0) - math.log(S)).mean(-1).tolist()
        )
        low, high = min(value - half, *alone, math.inf), max(value + half, *alone, -math.inf)
        details = {
            "rows": rows,
            "rhat": report.rhat,
            "ess": report.ess,
            "chains": C,
            "draws": len(each),
            "mixing": report.finding,
        }
        return Quantity(
            value,
            low,
            high,
            self.level,
            "estimate",
            "nats",
            f"average over {len(each)} posterior draws",
            len(rows),
            spread,
            report.verdict,
            "low",
            details,
        )
