r"""log p(x) of a latent-variable model by annealing its latent variables, one set of chains for each row (Wu et al. 2017).

.. math:: F_\beta(z) = -(1 - \beta) \log r(z) - \beta \log p(x, z), \qquad \log \hat p(x) = \log \frac1C \sum_c w_c
          (theory/latent_variables.md, eq. 41.9)

With x held, -log p(x, z) is an energy of z whose Z is p(x); r is the prior or the encoder's q(z | x), whose log Z is zero. From r upwards
the estimate errs low, so that it is conservative for the model. For rows that the model draws, the z behind them is an exact draw at
beta = 1: annealed downwards it gives an upper side. Processes that work together share out the rows, each with all of its chains.

Letters: N rows, C chains for each row, T temperatures, M latent dimensions.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from partita.core import capability, processes
from partita.core.checks import check_choice, check_count, check_flag
from partita.core.protocols import Data, EnergyModel, Reference, Sampler
from partita.core.quantity import Quantity
from partita.core.support import Real
from partita.evaluators.importance import Sums, bound_quantity, check_weights, joined, latent_use, one_side, sums_of
from partita.evaluators.partition.annealing import anneal, check_annealing, resolve_kernel, temperatures_for
from partita.models.directed.latent import LatentModel, draw_latent

CELLS = 1 << 21  # rows x chains x columns at once
REFERENCES = ("posterior", "prior")


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
        return draw_latent(self.law, n // self.rows, generator).flatten(0, 1).detach()


class GivenRows(EnergyModel):
    """-log p(x, z) as an energy of z, with x held: chain c belongs to row c mod N, and there are a multiple of N chains."""

    def __init__(self, model: LatentModel, x: Tensor, reference: str) -> None:
        super().__init__()
        object.__setattr__(self, "model", model)  # not a submodule: a view owns no parameters
        self.x, self.kind, self.support = x, reference, Real(model.latent)  # type: ignore[arg-type]
        self.law = model.posterior(x) if reference == "posterior" else _standard(model, len(x))

    def free_energy(self, x: Tensor) -> Tensor:
        z = x.view(-1, len(self.x), x.shape[-1])
        return -self.model.log_joint(self.x, z).view(x.shape[:-1])  # type: ignore[operator,union-attr]

    def reference(self) -> Reference:
        return Start(self.law, len(self.x))

    def initialise(self, data: Data, *, generator: torch.Generator) -> None:
        """Nothing: the reference is the model's own."""

    def settings(self) -> dict[str, Any]:
        return {}

    def title(self) -> str:
        return f"the latent variables of {self.model.title()}"  # type: ignore[operator,union-attr]

    @property
    def device_like(self) -> Tensor:
        return self.x


@dataclass(frozen=True)
class LatentAIS:
    """Mean lower bound per row by annealing C chains for each row from the encoder, or the prior, to the posterior.

    Arguments:
        temperatures: Inverse temperatures, 0 and 1 included.
        chains: C, for each row.
        kernel: Leaves each temperature invariant; Hamiltonian Monte Carlo if not given.
        reference: ``"posterior"`` starts from the encoder's q(z | x), ``"prior"`` from p(z).
        simulated: Rows drawn from the model on which both sides are computed; their gap goes into ``details["gap"]``. 0 leaves it out.
        adaptive: Place temperatures by a pilot run; evenly if False.
        level: Of the interval.
    """

    temperatures: int = 200
    chains: int = 16
    kernel: Sampler | None = None
    reference: str = "posterior"
    simulated: int = 0
    adaptive: bool = True
    level: float = 0.95

    def __post_init__(self) -> None:
        check_annealing("LatentAIS", self.temperatures, self.chains, self.level)
        check_flag("LatentAIS", "adaptive", self.adaptive)
        check_choice("LatentAIS", "reference", self.reference, REFERENCES)
        check_count("LatentAIS", "simulated", self.simulated, 0)

    @torch.no_grad()
    def __call__(self, model: Any, x: Tensor, *, generator: torch.Generator) -> Quantity:
        capability.require("LatentAIS", model)
        x = x.to(model.device_like)
        kernel, betas = self._prepare(model, x, generator)
        sums = self._weighed(model, x, kernel, betas, generator)
        check_weights(model, sums)
        details: dict[str, Any] = {"chains": self.chains, **latent_use(model, x)}
        if self.simulated:
            low, high = self._both_sides(model, kernel, betas, generator)
            details |= {"simulated_lower": low, "simulated_upper": high, "gap": high.value - low.value}
        return bound_quantity(sums, self.chains, self.level, f"latent AIS from the {self.reference}, {self.chains} chains", details)

    def _prepare(self, model: Any, x: Tensor, generator: torch.Generator) -> tuple[Sampler, Tensor]:
        """Step sizes and temperatures, found on one row and kept for all."""
        chosen = capability.load("HMC")() if self.kernel is None else self.kernel
        one = GivenRows(model, x[:1], self.reference)
        kernel = resolve_kernel("AIS", chosen, one, generator=generator)
        return kernel, temperatures_for(one, kernel, self.temperatures, adaptive=self.adaptive, generator=generator)

    def _weighed(self, model: Any, x: Tensor, kernel: Sampler, betas: Tensor, generator: torch.Generator) -> Sums:
        size = max(1, CELLS // (self.chains * x.shape[-1]))

        def climbed(rows: Tensor, own: torch.Generator) -> Sums:
            given = GivenRows(model, rows, self.reference)
            start = given.reference().draw(self.chains * len(rows), generator=own)
            return sums_of(anneal(given, kernel, betas, start, generator=own).log_w.view(self.chains, len(rows)))

        def of(part: slice, own: torch.Generator) -> Sums:
            return joined([climbed(rows, own) for rows in x[part].split(size)])

        return joined(processes.shared_out(len(x), of, generator))

    def _both_sides(self, model: Any, kernel: Sampler, betas: Tensor, generator: torch.Generator) -> tuple[Quantity, Quantity]:
        """Rows that the model draws, from below, and from above by annealing downwards from the z behind them."""
        x, z = model.draw_joint(self.simulated, generator=generator)
        low = self._weighed(model, x, kernel, betas, generator).log_mean

        def of(part: slice, own: torch.Generator) -> Tensor:
            given = GivenRows(model, x[part], self.reference)
            down = anneal(given, kernel, betas.flip(0), z[part].repeat(self.chains, 1), generator=own).log_w
            return -sums_of(down.view(self.chains, len(given.x))).log_mean

        high = torch.cat(processes.shared_out(len(x), of, generator))
        return one_side(low, "lower", self.chains, self.level), one_side(high, "upper", self.chains, self.level)


def _standard(model: Any, rows: int) -> Any:
    from torch.distributions import Independent, Normal

    zeros = model.device_like.new_zeros(rows, model.latent)
    return Independent(Normal(zeros, torch.ones_like(zeros), validate_args=False), 1, validate_args=False)
