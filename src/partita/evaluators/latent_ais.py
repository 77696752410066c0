r"""log p(x) of a latent-variable model by annealing its latent variables, one set of chains for
each row (Wu et al. 2017).

.. math:: F_\beta(z) = -(1 - \beta) \log r(z) - \beta \log p(x, z), \qquad \log \hat p(x) = \log
          \frac1C \sum_c w_c
          (theory/latent_variables.md, eq. 41.9)

With x held, -log p(x, z) is an energy of z whose Z is p(x); r is the prior, the encoder's q(z | x)
or half of each, and its log Z is zero. From r upwards the estimate errs low, so that it is
conservative for the model. For rows that the model draws, the z behind them is an exact draw at
beta = 1: annealed downwards it gives an upper side, as posterior draws that were sought do on the
rows themselves. Processes that work together share out the rows, each with all of its chains.

Letters: N rows, C chains for each row, T temperatures, M latent dimensions.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.arguments import check_choice, check_flag
from partita.core.protocols import Data, EnergyModel, Reference, Sampler
from partita.core.quantity import Quantity
from partita.core.support import Real
from partita.evaluators.importance import Sums, cap, joined, sums_of
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
from partita.evaluators.partition.annealing import (
    anneal,
    check_annealing,
    resolve_kernel,
    temperatures_for,
)
from partita.models.directed.latent import LatentModel, draw_latent
from partita.runtime import processes

CELLS = 1 << 21  # rows x chains x columns at once
REFERENCES = ("both", "posterior", "prior")
COST = 2  # of a simulated row, which is annealed both ways


class Either(NamedTuple):
    """Half of one law and half of another, over the same rows."""

    one: Any
    other: Any

    def log_prob(self, z: Tensor) -> Tensor:
        return torch.logaddexp(self.one.log_prob(z), self.other.log_prob(z)) - math.log(2)

    def draw(self, k: int, generator: torch.Generator) -> Tensor:
        """``(k, N, M)``."""
        one, other = (draw_latent(law, k, generator) for law in self)
        return torch.where(rng.uniform((*one.shape[:-1], 1), one, generator) < 0.5, one, other)


class Start(NamedTuple):
    """r(z) of every chain: a distribution whose rows the chains take in turn."""

    law: Any  # of rows (N, M)
    rows: int

    @property
    def log_z(self) -> Tensor:
        return torch.zeros((), dtype=torch.float64)

    def free_energy(self, x: Tensor) -> Tensor:
        return -self.law.log_prob(x.view(-1, self.rows, x.shape[-1])).view(x.shape[:-1])

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        k, either = n // self.rows, isinstance(self.law, Either)
        return (
            (self.law.draw(k, generator) if either else draw_latent(self.law, k, generator))
            .flatten(0, 1)
            .detach()
        )


class GivenRows(EnergyModel):
    """-log p(x, z) as an energy of z, with x held: chain c belongs to row c mod N, and there are a
    multiple of N chains.
    """

    model: LatentModel

    def __init__(self, model: LatentModel, x: Tensor, reference: str) -> None:
        super().__init__()
        object.__setattr__(self, "model", model)  # not a submodule: a view owns no parameters
        self.x, self.kind, self.support = x, reference, Real(model.latent)
        self.law = _reference(model, x, reference)

    def free_energy(self, x: Tensor) -> Tensor:
        z = x.view(-1, len(self.x), x.shape[-1])
        log_joint = self.model.log_joint(self.x, z)
        return -log_joint.view(x.shape[:-1])

    def reference(self) -> Reference:
        return Start(self.law, len(self.x))

    def initialize(self, data: Data, *, generator: torch.Generator) -> None:
        """Nothing: the reference is the model's own."""

    def settings(self) -> dict[str, Any]:
        return {}

    def title(self) -> str:
        return f"the latent variables of {self.model.title()}"

    @property
    def like(self) -> Tensor:
        return self.x


@dataclass(frozen=True)
class LatentAIS:
    """Mean lower bound per row by annealing C chains for each row from the encoder and the prior to
    the posterior.

    The interval is about log p(x), and the verdict is as of :class:`IWAE`: by gaps between
    annealing up and annealing down.

    Arguments:
        temperatures: Inverse temperatures, 0 and 1 included.
        chains: C, for each row.
        kernel: Leaves each temperature invariant; Hamiltonian Monte Carlo if not given.
        reference: ``"posterior"`` starts from the encoder's q(z | x), ``"prior"`` from p(z),
            ``"both"`` from half of each, so that what the encoder does not know is reached too.
        simulated: Rows drawn from the model on which both sides are computed; by default half as
            many as are scored, from 50 to 2,000, so that it costs as much as the bound. 0 leaves
            the gaps out; the interval is then the bound's own, and not to be published.
        adaptive: Place temperatures by a pilot run; evenly if False.
        level: Of the interval.
    """

    temperatures: int = 200
    chains: int = 16
    kernel: Sampler | None = None
    reference: str = "both"
    simulated: int | None = None
    adaptive: bool = True
    level: float = 0.95

    def __post_init__(self) -> None:
        check_annealing("LatentAIS", self.temperatures, self.chains, self.level)
        check_flag("LatentAIS", "adaptive", self.adaptive)
        check_choice("LatentAIS", "reference", self.reference, REFERENCES)
        check_simulated("LatentAIS", self.simulated)

    @torch.no_grad()
    def __call__(self, model: Any, x: Tensor, *, generator: torch.Generator) -> Quantity:
        capability.require("LatentAIS", model)
        x = x.to(model.like)
        kernel, betas = self._prepare(model, x, generator)
        sums = self._weighed(model, x, kernel, betas, generator)
        check_weights(model, sums.log_mean)
        gaps, n = {}, auto_simulated(self.simulated, len(x), COST)

        def above(rows: Tensor, z: Tensor, own: torch.Generator) -> Tensor:
            low = self._weighed(model, rows, kernel, betas, own).log_mean
            return (self._from_above(model, rows, z, kernel, betas, own) - low)[None]

        if n:
            gaps["gap"] = gap_of(simulated_rows(model, n, x, generator).gaps(above, generator))
            gaps["gap_of_search"] = gap_of(
                searched(model, x, self.chains, generator).gaps(above, generator)
            )
        bound = Bound(
            sums.log_mean, math.sqrt(float(sums.variance(self.chains).sum())) / len(x), cap(sums)
        )
        details = {"chains": self.chains, "ess_of_rows": float(sums.ess.median())}
        start = "encoder and prior" if self.reference == "both" else self.reference
        return conclude(
            model,
            x,
            bound,
            gaps,
            self.level,
            f"latent AIS from the {start}, {self.chains} chains",
            details,
        )

    def _prepare(self, model: Any, x: Tensor, generator: torch.Generator) -> tuple[Sampler, Tensor]:
        """Step sizes and temperatures, found on one row and kept for all."""
        chosen = capability.part_named("HMC")() if self.kernel is None else self.kernel
        one = GivenRows(model, x[:1], self.reference)
        kernel = resolve_kernel("AIS", chosen, one, generator=generator)
        return kernel, temperatures_for(
            one, kernel, self.temperatures, adaptive=self.adaptive, generator=generator
        )

    def _weighed(
        self, model: Any, x: Tensor, kernel: Sampler, betas: Tensor, generator: torch.Generator
    ) -> Sums:
        def climbed(rows: Tensor, own: torch.Generator) -> Sums:
            given = GivenRows(model, rows, self.reference)
            start = given.reference().draw(self.chains * len(rows), generator=own)
            return sums_of(
                anneal(given, kernel, betas, start, generator=own).log_w.view(
                    self.chains, len(rows)
                )
            )

        def of(part: slice, own: torch.Generator) -> Sums:
            return joined([climbed(rows, own) for rows in x[part].split(self._size(x))])

        return joined(processes.shared_out(len(x), of, generator))

    def _from_above(
        self,
        model: Any,
        x: Tensor,
        z: Tensor,
        kernel: Sampler,
        betas: Tensor,
        generator: torch.Generator,
    ) -> Tensor:
        """Annealed downwards from posterior draws ``(R, B, M)``, which the chains take in turn,
        ``(B,)``.
        """
        parts, turns = [], torch.arange(self.chains, device=z.device) % len(z)
        for rows, known in zip(x.split(self._size(x)), z.split(self._size(x), 1), strict=True):
            down = anneal(
                GivenRows(model, rows, self.reference),
                kernel,
                betas.flip(0),
                known[turns].flatten(0, 1),
                generator=generator,
            )
            parts.append(-sums_of(down.log_w.view(self.chains, len(rows))).log_mean)
        return torch.cat(parts)

    def _size(self, x: Tensor) -> int:
        return max(1, CELLS // (self.chains * x.shape[-1]))


def _reference(model: Any, x: Tensor, kind: str) -> Any:
    from torch.distributions import Independent, Normal

    zeros = model.like.new_zeros(len(x), model.latent)
    standard = Independent(
        Normal(zeros, torch.ones_like(zeros), validate_args=False), 1, validate_args=False
    )
    return (
        standard
        if kind == "prior"
        else model.posterior(x)
        if kind == "posterior"
        else Either(model.posterior(x), standard)
    )
