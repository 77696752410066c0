r"""log p(x) of sequences with latent variables by a particle filter: a lower bound in expectation that stays tight along long rows.

.. math:: E[\hat p(x)] = p(x), \qquad E[\log \hat p(x)] \le \log p(x)          (theory/latent_variables.md, eq. 41.14)

The filter runs several times; the value is the mean of the logarithms, still a bound, and their spread gives the interval. Processes
that work together share out the rows.

Letters: N rows, k particles for each, R repeats.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from partita.core import capability, processes
from partita.core.checks import check_count, check_level, check_real
from partita.core.errors import Diverged
from partita.core.quantity import Quantity, Verdict, half_width
from partita.diagnostics.weights import GAP_LOOSE, GAP_TIGHT
from partita.evaluators.importance import latent_use
from partita.evaluators.likelihood import per_step

CELLS = 1 << 22  # rows x particles x columns at once


@dataclass(frozen=True)
class ParticleFilter:
    """Mean lower bound per row from k particles, resampled where their effective number falls below ``threshold`` k.

    Arguments:
        k: Particles for each row.
        repeats: R, at least 2.
        threshold: Share of k; 0 never resamples, and is importance sampling.
        level: Of the interval.
    """

    k: int = 128
    repeats: int = 2
    threshold: float = 0.5
    level: float = 0.95

    def __post_init__(self) -> None:
        check_count("ParticleFilter", "k", self.k)
        check_count("ParticleFilter", "repeats", self.repeats, 2)
        check_real("ParticleFilter", "threshold", self.threshold, 0, 1)
        check_level("ParticleFilter", self.level)

    @torch.no_grad()
    def __call__(self, model: Any, x: Tensor, *, generator: torch.Generator) -> Quantity:
        capability.require("ParticleFilter", model)
        x = x.to(model.device_like)
        runs = self._runs(model, x, generator)
        if not torch.isfinite(runs).all():
            raise Diverged(f"evaluate: the weights of {model.title()} must be finite. Fit it again with a lower learning_rate.")
        rows, n = runs.mean(0), len(x)
        half = half_width(math.sqrt(float(runs.var(0).sum() / self.repeats)) / n, self.level)
        value, spread = float(rows.mean()), float(rows.std()) / math.sqrt(n) if n > 1 else 0.0
        noise = math.sqrt(float(runs.var(0).mean()))
        details = {"rows": rows, "k": self.k, "deviation_of_rows": noise, **per_step(model, x, rows), **latent_use(model, x)}
        method = f"particle filter with {self.k} particles"
        return Quantity(value, value - half, value + half, self.level, "lower", "nats", method, n, spread, _verdict(noise), "low", details)

    def _runs(self, model: Any, x: Tensor, generator: torch.Generator) -> Tensor:
        """The logarithm of every row in each repeat, ``(R, N)``."""
        size = max(1, CELLS // (self.k * int((~x.isnan()).sum(-1).max())))

        def of(part: slice, own: torch.Generator) -> Tensor:
            return torch.stack([torch.cat([self._once(model, rows, own) for rows in x[part].split(size)]) for _ in range(self.repeats)])

        return torch.cat(processes.shared_out(len(x), of, generator), 1)

    def _once(self, model: Any, x: Tensor, generator: torch.Generator) -> Tensor:
        return model.filtered(x, self.k, threshold=self.threshold, generator=generator).double()


def _verdict(noise: float) -> Verdict:
    """By how much the logarithm of a row moves between runs: half the variance, on average over rows, is about what the bound loses."""
    loss = 0.5 * noise**2
    return "tight" if loss <= GAP_TIGHT / 4 else "loose" if loss <= GAP_LOOSE else "do not publish"
