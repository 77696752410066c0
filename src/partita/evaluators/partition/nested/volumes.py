r"""How much of the reference lies above each point that nested sampling has passed.

.. math:: \log X_i = \sum_{j \le i} \log t_j, \quad t_j \sim \mathrm{Beta}(n_j, 1), \qquad
          \hat Z = Z_0 \sum_i e^{\ell_i} (X_{i-1} - X_i)          (theory/scoring.md, eq. 5.51)

n_j counts the points that were alive when point j was passed: born below it, and not passed before.
Counted that way, points killed in batches, threads that were added later, and the live points that
are left at the end are all the same thing. The shrinkages t are not known, only their distribution:
many sequences of them are simulated, and the spread of their log Z is an error.

Letters: N points, G groups.
"""

import math
from typing import NamedTuple

import torch
from scipy.stats import kstest
from torch import Tensor

SIMULATIONS, AT_ONCE = 256, 1 << 21  # sequences of volumes; numbers held at a time
LOOKS = 8  # parts of a run that are looked at by themselves
LEAST_RANKS = 50  # in each of them


class Points(NamedTuple):
    """All points of a run, in the order in which they came."""

    x: Tensor  # (N, D)
    log_l: Tensor  # (N,), float64
    label: Tensor  # (N,), float64
    birth: Tensor  # (N,), number of the point on whose contour each was born; -1 is the reference
    group: Tensor  # (N,), which of G groups; groups never see one another's points

    def plus(self, more: "Points") -> "Points":
        return Points(*(torch.cat(pair) for pair in zip(self, more, strict=True)))

    def at(self, index: Tensor) -> "Points":
        return Points(*(part[index] for part in self))


class Passed(NamedTuple):
    """Points from the least likely to the likeliest, and where each was born."""

    points: Points
    born: Tensor  # (N,), how many points lie no higher than where each was born

    def counts(self, kept: Tensor | None = None) -> Tensor:
        """How many points were alive when each was passed, ``(N,)``; of those ``kept`` only."""
        N = len(self.born)
        kept = torch.ones(N, dtype=torch.bool, device=self.born.device) if kept is None else kept
        births = torch.bincount(self.born[kept], minlength=N + 1).cumsum(0)[:N]
        return births - (kept.long().cumsum(0) - kept.long())

    def log_weights(self, counts: Tensor, log_t: Tensor | None = None) -> Tensor:
        """log of likelihood times shell, ``(*, N)``, by default with shrinkages at the mean of
        their logarithms.
        """
        log_t = -1 / counts.double() if log_t is None else log_t
        log_x = log_t.cumsum(-1)
        shell = log_x - log_t + torch.log(-torch.expm1(log_t))
        shell[..., -1] = log_x[..., -1] - log_t[..., -1]  # the last point holds all that is left
        return self.points.log_l + shell


def passed(points: Points) -> Passed:
    """Points in the order of (likelihood, label)."""
    by_label = points.label.argsort(stable=True)
    order = by_label[points.log_l[by_label].argsort(stable=True)]
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    born = torch.where(points.birth < 0, 0, place[points.birth.clamp_min(0)] + 1)
    return Passed(points.at(order), born[order])


def simulated(run: Passed, generator: torch.Generator) -> Tensor:
    """log Z - log Z_0 under simulated shrinkages, ``(S,)``."""
    counts, found = run.counts().double(), []
    each = max(1, min(SIMULATIONS, AT_ONCE // len(counts)))
    for _ in range(math.ceil(SIMULATIONS / each)):
        u = torch.rand(
            each, len(counts), generator=generator, device=counts.device, dtype=torch.float64
        )
        log_t = u.clamp_min(1e-300).log() / counts
        found.append(torch.logsumexp(run.log_weights(counts, log_t.clamp_max(-1e-300)), -1))
    return torch.cat(found)[:SIMULATIONS]


def left_out(run: Passed, groups: int) -> Tensor:
    """log Z - log Z_0 without each of the groups, ``(G,)``."""
    found = []
    for g in range(groups):
        kept = run.points.group != g
        part = Passed(run.points.at(kept), run.born[kept])
        found.append(torch.logsumexp(part.log_weights(run.counts(kept)[kept]), -1))
    return torch.stack(found)


def jackknife(values: Tensor) -> float:
    """Standard error from values that leave out one group each."""
    return math.sqrt(float((len(values) - 1) * (values - values.mean()).square().mean()))


def sequential_ranks(old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor]) -> Tensor:
    """Ranks of new points (likelihoods and labels) among the old ones and the new before them,
    spread over [0, 1]: independent and uniform if all are draws of one distribution.
    """
    (a, s), (b, t) = old, new
    lower = ((a < b[:, None]) | ((a == b[:, None]) & (s < t[:, None]))).sum(1)
    among = (b < b[:, None]) | ((b == b[:, None]) & (t < t[:, None]))
    rank = lower + among.tril(-1).sum(1)
    return rank / (len(a) + torch.arange(len(b), device=a.device)).double()


def rank_p_value(ranks: Tensor) -> float:
    """Kolmogorov's test of uniform ranks, of the whole run and of parts of it, with Bonferroni's
    correction for the number of looks.
    """
    looks = min(LOOKS, len(ranks) // LEAST_RANKS)
    parts = [ranks, *(ranks.tensor_split(looks) if looks > 1 else ())]
    least = min(float(kstest(part.cpu().numpy(), "uniform").pvalue) for part in parts)
    return min(1.0, len(parts) * least)
