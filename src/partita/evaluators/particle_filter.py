r"""log p(x) of sequences with latent variables by a particle filter: a lower bound in expectation
that stays tight along long rows.

.. math:: E[\hat p(x)] = p(x), \qquad E[\log \hat p(x)] \le \log p(x)
          (theory/latent_variables.md, eq. 41.14)

The filter runs several times; the value is the mean of the logarithms, still a bound, and their
spread gives its error. With a draw of the posterior kept among the particles the same filter errs
high: known of rows that the model draws, sought on the rows themselves. Processes that work
together share out the rows.

Letters: N rows, k particles for each, R repeats.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from partita.core import capability
from partita.core.arguments import check_count, check_level, check_real
from partita.core.quantity import Quantity, Verdict
from partita.diagnostics.weights import verdict_on_reach
from partita.evaluators.latent_gaps import (
    Bound,
    auto_simulated,
    check_simulated,
    check_weights,
    conclude,
    gap_of,
    searched,
    simulated_rows,
)
from partita.runtime import processes

CELLS = 1 << 22  # rows x particles x columns at once


@dataclass(frozen=True)
class ParticleFilter:
    """Mean lower bound per row from k particles, resampled where their effective number falls below
    ``threshold`` k.

    The interval is about log p(x), and the verdict is as of :class:`IWAE`: by gaps between the
    filter and one that keeps a posterior draw.

    Arguments:
        k: Particles for each row.
        repeats: R, at least 2.
        threshold: Share of k; 0 never resamples, and is importance sampling.
        simulated: Rows drawn from the model on which both sides are computed; by default as many as
            are scored, from 100 to 2,000, so that it costs as much as the bound. 0 leaves the gaps
            out; the interval is then the bound's own, and not to be published.
        level: Of the interval.
    """

    k: int = 128
    repeats: int = 2
    threshold: float = 0.5
    simulated: int | None = None
    level: float = 0.95

    def __post_init__(self) -> None:
        check_count("ParticleFilter", "k", self.k)
        check_count("ParticleFilter", "repeats", self.repeats, 2)
        check_real("ParticleFilter", "threshold", self.threshold, 0, 1)
        check_simulated("ParticleFilter", self.simulated)
        check_level("ParticleFilter", self.level)

    @torch.no_grad()
    def __call__(self, model: Any, x: Tensor, *, generator: torch.Generator) -> Quantity:
        capability.require("ParticleFilter", model)
        x = x.to(model.like)
        runs = self._runs(model, x, self.repeats, generator)
        check_weights(model, runs.mean(0))
        gaps, n = {}, auto_simulated(self.simulated, len(x))

        def above(rows: Tensor, z: Tensor, own: torch.Generator) -> Tensor:
            low = self._runs(model, rows, 1, own)
            return torch.cat([self._runs(model, rows, 1, own, kept) for kept in z]) - low

        if n:
            gaps["gap"] = gap_of(simulated_rows(model, n, x, generator).gaps(above, generator))
            gaps["gap_of_search"] = gap_of(
                searched(model, x, self.repeats * self.k, generator).gaps(above, generator)
            )
        noise = math.sqrt(float(runs.var(0).mean()))
        bound = Bound(
            runs.mean(0), math.sqrt(float(runs.var(0).sum() / self.repeats)) / len(x), _cap(noise)
        )
        details = {"k": self.k, "deviation_of_rows": noise}
        return conclude(
            model, x, bound, gaps, self.level, f"particle filter with {self.k} particles", details
        )

    def _runs(
        self,
        model: Any,
        x: Tensor,
        repeats: int,
        generator: torch.Generator,
        kept: Tensor | None = None,
    ) -> Tensor:
        """The logarithm of every row in each repeat, ``(repeats, N)``; with latent values that a
        particle of each row keeps, if given.
        """
        size = max(1, CELLS // (self.k * int((~x.isnan()).sum(-1).max())))

        def once(part: slice, own: torch.Generator) -> Tensor:
            held = [None] * len(x) if kept is None else kept[part].split(size)
            pairs = zip(x[part].split(size), held, strict=False)
            return torch.cat(
                [
                    model.filtered(
                        rows, self.k, threshold=self.threshold, kept=z, generator=own
                    ).double()
                    for rows, z in pairs
                ]
            )

        def of(part: slice, own: torch.Generator) -> Tensor:
            return torch.stack([once(part, own) for _ in range(repeats)])

        return torch.cat(processes.shared_out(len(x), of, generator), 1)


def _cap(noise: float) -> Verdict:
    """By how much the logarithm of a row moves between runs: half the variance, on average over
    rows, is about what the bound loses.
    """
    return verdict_on_reach(0.5 * noise**2, "tight")
