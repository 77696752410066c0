r"""Have the chains mixed? R-hat and effective sample sizes from arviz-stats, and the one place
where verdicts on chains are made.

.. math:: \bar g \pm t_{\mathrm{ESS} / 10}\, \frac{\mathrm{sd}(g)}{\sqrt{\mathrm{ESS}}}
          (theory/scoring.md, eq. 5.20)

R-hat is rank-normalized and split (Vehtari et al. 2021). Chains that are many are short: from eight
on, they are read as four families, or the short average of each would pass for disagreement
(Margossian et al. 2024). tests/truth/test_chains.py calibrates the thresholds.

Letters: C chains, n draws of each, K summaries.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit
from torch import Tensor

from partita.core.quantity import VERDICTS, Verdict

RHAT_TIGHT, RHAT_LOOSE = 1.01, 1.1  # Vehtari et al. (2021); Gelman and Rubin's
ESS_TIGHT, ESS_LOOSE = 100.0, 12.5  # effective draws of each chain, of four at most
# of each chain, however many there are: chains that stay in one mode have one
EACH_TIGHT, EACH_LOOSE = 10.0, 5.0
CHAINS_TIGHT, CHAINS_LOOSE = 4, 2
FAMILIES = 4
LEAST_DRAWS = 4
# effective draws for each degree of freedom of an interval: few draws know their own number badly
DRAWS_PER_DEGREE = 10.0
RHAT_INFINITE = 1e6  # above which the variance within chains is rounding


class ChainReport(NamedTuple):
    """The worst coordinate's R-hat and effective sample sizes; nan where nothing moved, R-hat
    infinite where still chains differ.
    """

    rhat: float
    ess_bulk: float
    ess_tail: float
    chains: int
    draws: int
    # whether every step draws all of the state anew, so that chains which stand still and agree are
    # an answer
    redrawn: bool = False

    @property
    def ess(self) -> float:
        """The smaller of the two effective sample sizes."""
        return min(self.ess_bulk, self.ess_tail)

    @property
    def verdict(self) -> Verdict:
        """How far an average over the draws, with its interval, can be trusted."""
        if self.still:
            return "loose" if self.redrawn else "do not publish"
        if self._reaches(CHAINS_TIGHT, RHAT_TIGHT, self._enough(ESS_TIGHT, EACH_TIGHT)):
            return "tight"
        if self._reaches(CHAINS_LOOSE, RHAT_LOOSE, self._enough(ESS_LOOSE, EACH_LOOSE)):
            return "loose"
        return "do not publish"

    @property
    def mixed(self) -> bool:
        """Whether averages over the draws can be trusted with their intervals."""
        return self.verdict != "do not publish"

    @property
    def finding(self) -> str:
        """The verdict on the chains and what it rests on; every warning and every report says it in
        these words.
        """
        words = {"tight": "mixed", "loose": "nearly mixed", "do not publish": "not mixed"}
        return f"{words[self.verdict]}, {self._reason()}"

    def _reason(self) -> str:
        if self.draws < LEAST_DRAWS:
            return f"fewer than {LEAST_DRAWS} draws of a chain show nothing"
        if self.chains < CHAINS_LOOSE:
            return "one chain has no other to agree with"
        if self.still:
            return "no chain moved, and all are alike"
        if self.ess == 0:
            return "a summary of the chains is not finite"
        if math.isinf(self.rhat):
            return "the chains disagree, and none of them moves"
        if not self.rhat <= RHAT_LOOSE:
            return f"the chains disagree, R-hat {self.rhat:.3g}"
        if not self.mixed:
            enough = self._enough(ESS_LOOSE, EACH_LOOSE)
            return f"{self.ess:.0f} effective draws where {enough:.0f} are needed"
        return "the chains agree" if self.verdict == "tight" else self._not_tight()

    def __str__(self) -> str:
        ess = f"ESS {self.ess_bulk:.0f} (bulk) {self.ess_tail:.0f} (tail)"
        remedy = "" if self.mixed else ": run longer, or temper"
        return (
            f"R-hat {self.rhat:.3f}, {ess}, {self.chains} chains x {self.draws} draws: "
            f"{self.finding}{remedy}"
        )

    @property
    def still(self) -> bool:
        """Whether no summary differs from draw to draw, nor from chain to chain."""
        return self.chains >= CHAINS_LOOSE and self.draws >= LEAST_DRAWS and math.isnan(self.rhat)

    def _reaches(self, chains: int, rhat: float, ess: float) -> bool:
        return (
            self.draws >= LEAST_DRAWS
            and self.chains >= chains
            and self.rhat <= rhat
            and self.ess >= ess
        )

    def _enough(self, of_four: float, of_each: float) -> float:
        return max(of_four * min(self.chains, FAMILIES), of_each * self.chains)

    def _not_tight(self) -> str:
        if self.chains < CHAINS_TIGHT:
            return f"the {self.chains} chains agree as far as fewer than {CHAINS_TIGHT} can show"
        if self.rhat > RHAT_TIGHT:
            return f"the chains nearly agree, R-hat {self.rhat:.3g}"
        enough = self._enough(ESS_TIGHT, EACH_TIGHT)
        return f"{self.ess:.0f} effective draws where {enough:.0f} would do"


def summarize_chains(values: Tensor, *, redrawn: bool = False) -> ChainReport:
    """R-hat and ESS of scalar summaries, ``(C, n, K)``; the worst of the K is reported.

    Arguments:
        values: Of every chain at every step; of many chains, those that began alike stand next to
            each other.
        redrawn: Whether each step draws all of the state anew, as Gibbs sampling does.
    """
    from arviz_stats.base.array import array_stats

    C, n, _ = values.shape
    # (K, C, n), in two halves
    table = values[:, n % 2 :].detach().double().cpu().movedim(-1, 0).numpy()
    if not np.isfinite(table).all():
        return ChainReport(math.inf, 0.0, 0.0, C, n, redrawn)
    table = table[np.ptp(table, axis=(1, 2)) > 0] if n >= LEAST_DRAWS else table[:0]  # what moves
    if not len(table):
        return ChainReport(math.nan, math.nan, math.nan, C, n, redrawn)
    # chains that never move have no variance within
    with np.errstate(divide="ignore", invalid="ignore"):
        rhats = [float(np.nanmax(np.asarray(array_stats.rhat(p)))) for p in _families(table)]
        rhat = max(rhats, default=math.nan)
        # rounding of a variance that is zero
        rhat = rhat if math.isnan(rhat) or rhat < RHAT_INFINITE else math.inf
        bulk = float(np.asarray(array_stats.ess(table, method="bulk", prob=None)).min())
        tail = float(np.asarray(array_stats.ess(table, method="tail", prob=0.9)).min())
    return ChainReport(rhat, bulk, tail, C, n, redrawn)


def worst_of(*reports: ChainReport) -> ChainReport:
    """The report that trusts the chains least; of equal ones that of the largest R-hat."""

    def distrust(report: ChainReport) -> tuple[int, bool, float]:
        return VERDICTS.index(report.verdict), not math.isnan(report.rhat), report.rhat

    return max(reports, key=distrust)


def mean_half_width(values: Tensor, report: ChainReport, level: float) -> float:
    """Half the interval of the mean of ``values``, ``(C, n)``; where ``report`` says not mixed it
    reaches to the mean of every chain.
    """
    from arviz_stats.base.array import array_stats

    if values.shape[1] < LEAST_DRAWS:
        return math.inf
    ess = float(np.asarray(array_stats.ess(values.double().cpu().numpy(), method="mean")))
    known = [n for n in (ess, report.ess_bulk, values.numel()) if not math.isnan(n)]
    ess = max(1.0, min(known))
    quantile = stdtrit(max(2.0, ess / DRAWS_PER_DEGREE), 0.5 + level / 2)
    half = float(values.std() * quantile) / math.sqrt(ess)
    return half if report.mixed else max(half, float((values.mean(1) - values.mean()).abs().max()))


def _families(table: np.ndarray) -> list[np.ndarray]:
    """The chains, ``(K, C, n)``; many of them as four families, each read step by step, and those
    left over in a second reading.
    """
    K, C, n = table.shape
    if C < CHAINS_LOOSE:
        return []
    if C < 2 * FAMILIES:
        return [table]
    whole = C - C % FAMILIES
    parts = [table[:, :whole], table[:, C - whole :]][: 1 + (whole < C)]
    return [
        part.reshape(K, FAMILIES, -1, n).swapaxes(2, 3).reshape(K, FAMILIES, -1) for part in parts
    ]
