"""Have the chains mixed? R-hat and effective sample size, from arviz-stats."""

from typing import NamedTuple

import numpy as np
from torch import Tensor

RHAT_FINE = 1.01
RHAT_LOOSE = 1.05
RHAT_INFINITE = 1e6  # above which the variance within chains is rounding


class ChainReport(NamedTuple):
    """The worst coordinate's R-hat and effective sample sizes; nan where nothing moved, R-hat infinite where still chains differ."""

    rhat: float
    ess_bulk: float
    ess_tail: float
    chains: int
    draws: int

    @property
    def mixed(self) -> bool:
        """Whether the chains agree as well as independent ones would."""
        return self.rhat < RHAT_LOOSE

    def __str__(self) -> str:
        why = "" if np.isnan(self.rhat) else "the chains disagree, "
        word = "mixed" if self.mixed else f"{why}not mixed: run longer, or temper"
        ess = f"ESS {self.ess_bulk:.0f} (bulk) {self.ess_tail:.0f} (tail)"
        return f"R-hat {self.rhat:.3f}, {ess}, {self.chains} chains x {self.draws} draws: {word}"


def summarise_chains(values: Tensor) -> ChainReport:
    """R-hat and ESS of scalar summaries, ``(C, n, K)``; the worst of the K is reported."""
    from arviz_stats.base.array import array_stats

    table = values.detach().double().cpu().movedim(-1, 0).numpy()  # (K, C, n)
    moving = table.std(axis=(1, 2)) > 0
    if not moving.any() or table.shape[-1] < 4:
        return ChainReport(float("nan"), float("nan"), float("nan"), *values.shape[:2])
    table = table[moving]
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that never move have no variance within
        rhat = np.asarray(array_stats.rhat(table)).max() if values.shape[0] > 1 else float("nan")
        rhat = rhat if np.isnan(rhat) or rhat < RHAT_INFINITE else np.inf  # rounding of a variance that is zero
        bulk, tail = (np.asarray(array_stats.ess(table, method=how, prob=prob)).min() for how, prob in (("bulk", None), ("tail", 0.9)))
    return ChainReport(float(rhat), float(bulk), float(tail), *values.shape[:2])
