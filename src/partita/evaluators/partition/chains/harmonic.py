r"""The learned harmonic mean: log Z from draws of the target alone, by a normalized density that
lies within it (McEwen et al. 2021; Polanska et al. 2024).

.. math:: \frac1Z = \frac{1}{\alpha} E_p\Big[\frac{\varphi(x)}{f(x)}\Big], \qquad
          \alpha = \varphi\{f > 0\}
          (theory/evidence.md, eq. 60.8)

The density is a mixture fitted to other draws of the target, with 0.8 times its covariances, so
that its tails are the lighter ones and the ratio is bounded. What part of it has any density of the
target is counted over its own draws.

Letters: C chains, n draws of each, D coordinates.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from partita.core.batched import Batched
from partita.diagnostics.chains import DRAWS_PER_DEGREE
from partita.diagnostics.weights import KHAT_NORMAL, pareto_khat
from partita.evaluators.partition.chains.bridge_sampling import effective
from partita.evaluators.partition.chains.fitted_mixture import FittedMixture

TEMPERATURE = 0.8  # times the covariances
COUNTED = 2000  # draws over which its share inside of the target is counted
LEAST_SHARE = 0.02  # of the draws that carry the mean
MOST_UNSURE = 0.5  # relative deviation of the variance itself


class HarmonicEstimate(NamedTuple):
    """log Z from one half of the draws, and how far its own error can be known."""

    log_z: float
    se: float
    degrees: float  # of freedom of the error
    share: float  # of the draws that carry the mean
    kurtosis: float  # of the ratios
    khat: float  # tail index of the ratios
    inside: float  # alpha

    @property
    def unsure(self) -> float:
        """Deviation of the variance over the variance, from the kurtosis."""
        n = DRAWS_PER_DEGREE * self.degrees
        return math.sqrt(max(0.0, self.kurtosis - 1) / n)

    @property
    def reliable(self) -> bool:
        """Whether the error of the mean is itself known."""
        return (
            math.isfinite(self.log_z)
            and self.share >= LEAST_SHARE
            and self.unsure <= MOST_UNSURE
            and not self.khat > KHAT_NORMAL
            and self.inside >= LEAST_SHARE
        )


def harmonic_mean(
    fitted: FittedMixture,
    x: Tensor,
    log_f: Tensor,
    target: Batched,
    *,
    generator: torch.Generator,
) -> HarmonicEstimate:
    """log Z from draws ``x`` ``(C, n, D)`` with log density ``log_f`` ``(C, n)``.

    Arguments:
        fitted: A mixture fitted to other draws.
    """
    phi = fitted.narrowed(TEMPERATURE)
    m = min(COUNTED, log_f.numel())
    inside = float((target(phi.draw(m, generator)) > -math.inf).double().mean())
    log_ratio = phi.log_density(x.flatten(0, 1)).view_as(log_f) - log_f
    top = log_ratio.max()
    ratio = torch.exp(log_ratio - top)
    mean, variance = ratio.mean(), ratio.var()
    ess = effective(ratio)
    relative = float(variance / mean.square()) / ess
    relative += (1 - inside) / max(inside * m, 1e-9)
    return HarmonicEstimate(
        log_z=math.log(max(inside, 1e-300)) - float(top + mean.log()),
        se=math.sqrt(relative),
        degrees=ess / DRAWS_PER_DEGREE,
        share=float(ratio.sum().square() / ratio.square().sum()) / ratio.numel(),
        kurtosis=float((ratio - mean).pow(4).mean() / variance.square().clamp_min(1e-300)),
        khat=pareto_khat(log_ratio.flatten()),
        inside=inside,
    )
