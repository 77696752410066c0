r"""Expectation maximization, in one engine for all models that name their E and M steps, and
maximum likelihood in one step where it is a formula.

.. math:: \log p(x) \ge E_q[\log p(x, z)] + H[q], \qquad
          \text{E: } q = p(z \mid x, \theta), \qquad \text{M: } \theta \leftarrow \arg\max_\theta
          E_q[\log p(x, z \mid \theta)]
          (theory/mixtures.md, eq. 10.1)

A model gives ``e_step(x, weight)``, its expected sufficient statistics, and ``m_step(statistics)``,
which sets its parameters from them. Statistics are sums over rows: data larger than memory are read
in chunks, and :class:`OnlineEM` keeps running averages.

Letters: N data, s statistics, t updates.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.arguments import NonNegativeFloat, PositiveInt, within
from partita.core.protocols import Batch, Data, Update
from partita.models.directed.components.base import Statistics
from partita.models.directed.mixture import Mixing, added
from partita.models.directed.ppca import PPCA
from partita.objectives.base import Nothing
from partita.tables.arrays import row_ranges


def batches(data: Data, generator: torch.Generator) -> Iterator[Batch]:
    """All rows, a chunk at a time."""
    for part in row_ranges(len(data), data.width):
        yield data.batch(torch.arange(part.start, part.stop), generator=generator)


def expected_statistics(model: Mixing, data: Data, *, generator: torch.Generator) -> Statistics:
    """E-step: expected sufficient statistics of all rows, summed over chunks."""
    total: Statistics = {}
    for batch in batches(data, generator):
        total = added(total, model.e_step(batch.x, batch.weight))
    return total


def negative_log_likelihood(model: Mixing, statistics: Statistics, n: float) -> Tensor:
    """Minus the mean log-likelihood per row, and the log prior where the model has one, at the
    parameters of the E-step.
    """
    return -(statistics["log_likelihood"] + model.log_prior()) / n


@dataclass(frozen=True)
class EM(Update[Nothing]):
    """Expectation maximization over all rows at each update; the likelihood never falls.

    Arguments:
        restarts: Starts to try, each for some updates, before the best goes on (Biernacki, Celeux
            and Govaert 2003).
        trial: Updates of each start.

    >>> from partita.models import Mixture
    >>> import partita
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.cat([torch.randn(50, 1, generator=g), 8 + torch.randn(50, 1, generator=g)])
    >>> model = Mixture(2, 1, generator=g)
    >>> run = partita.fit(model, x, EM(), generator=g)
    >>> (
    ...     run.stopped,
    ...     model.component.location.flatten().detach().round().abs().sort().values.tolist(),
    ... )
    ('converged', [0.0, 8.0])
    """

    restarts: PositiveInt = 1
    trial: PositiveInt = 15

    @property
    def beforehand(self) -> int:
        """Updates that the starts take before the first step of a fit."""
        return self.restarts * self.trial if self.restarts > 1 else 0

    def within(self, updates: float) -> "EM":
        """The same with as many starts as take at most half of so many updates.

        >>> EM(restarts=4, trial=15).within(100), EM(restarts=4).within(1000).restarts
        (EM(restarts=3, trial=15), 4)
        """
        return replace(self, restarts=max(1, min(self.restarts, int(updates / 2 / self.trial))))

    def init(self, model: Mixing, data: Data, *, generator: torch.Generator) -> Nothing:
        """Leave in the model the best of several starts; the first is the one it comes with."""
        capability.require("EM", model)
        if self.restarts > 1:
            starts = range(self.restarts)
            tried = [self._try(model, data, generator, fresh=start > 0) for start in starts]
            model.load_state_dict(min(tried, key=lambda found: found[0])[1])
        return Nothing()

    @torch.no_grad()
    def update(
        self, model: Mixing, data: Data, state: Nothing, *, generator: torch.Generator
    ) -> tuple[Nothing, dict[str, Tensor]]:
        statistics = expected_statistics(model, data, generator=generator)
        loss = negative_log_likelihood(model, statistics, len(data))
        model.m_step(statistics)
        return state, {"loss": loss}

    @torch.no_grad()
    def _try(
        self, model: Mixing, data: Data, generator: torch.Generator, *, fresh: bool
    ) -> tuple[float, dict[str, Tensor]]:
        """The loss and the weights after the trial of one start."""
        if fresh:
            model.initialize(data, generator=generator)
        for _ in range(self.trial):
            self.update(model, data, Nothing(), generator=generator)
        statistics = expected_statistics(model, data, generator=generator)
        loss = negative_log_likelihood(model, statistics, len(data))
        return float(loss), {name: value.clone() for name, value in model.state_dict().items()}


class Averages(NamedTuple):
    """Running averages of the statistics, per row."""

    statistics: Statistics
    updates: Tensor  # t, ()
    key: int  # seeds the order of the rows


@dataclass(frozen=True)
class OnlineEM(Update[Averages]):
    r"""Online expectation maximization (Cappe and Moulines 2009): statistics are averaged over
    mini-batches with falling steps.

    .. math:: s_t = (1 - \gamma_t) s_{t-1} + \gamma_t\, s(x_t), \qquad \gamma_t = (t +
              t_0)^{-\kappa}, \; \kappa \in (1/2, 1]
              (theory/mixtures.md, eq. 10.9)

    Arguments:
        batch: Rows of one step.
        decay: kappa.
        delay: t_0.
    """

    batch: PositiveInt = 500
    decay: Annotated[float, within(0.5, 1.0, open_low=True)] = 0.6
    delay: NonNegativeFloat = 2.0

    converges = False

    def init(self, model: Mixing, data: Data, *, generator: torch.Generator) -> Averages:
        """Running averages begin with the first rows, as many as one step takes."""
        capability.require("OnlineEM", model)
        batch = data.batch(torch.arange(min(self.batch, len(data))), generator=generator)
        return self.begin(model.e_step(batch.x, batch.weight), rng.seed(generator))

    def begin(self, statistics: Statistics, key: int, updates: int = 1) -> Averages:
        """The state after so many updates whose statistics are these."""
        n = float(statistics["mass"].sum())
        per_row = {name: value / n for name, value in statistics.items()}
        return Averages(per_row, torch.tensor(updates), key)

    @torch.no_grad()
    def update(
        self, model: Mixing, data: Data, state: Averages, *, generator: torch.Generator
    ) -> tuple[Averages, dict[str, Tensor]]:
        """One pass over the data in a fresh order; the loss is that of each batch before it was
        learned from.
        """
        order = rng.permutation(len(data), rng.keyed(state.key, int(state.updates)))
        total = torch.zeros((), dtype=torch.float64)
        for index in order.split(self.batch):
            batch = data.batch(index, generator=generator)
            state, log_likelihood = self.step(model, batch.x, batch.weight, state)
            total = total - log_likelihood.cpu()
        return state, {"loss": total / len(data)}

    @torch.no_grad()
    def step(
        self, model: Mixing, x: Tensor, weight: Tensor | None, state: Averages
    ) -> tuple[Averages, Tensor]:
        """Learn from one batch; returns the state and the batch's log-likelihood before."""
        found, rate = model.e_step(x, weight), self.rate(int(state.updates))
        n = float(found["mass"].sum())
        averaged = {
            name: (1 - rate) * state.statistics[name] + rate * value / n
            for name, value in found.items()
        }
        model.m_step(averaged)
        following = state._replace(statistics=averaged, updates=state.updates + 1)
        return following, found["log_likelihood"]

    def rate(self, t: int) -> float:
        """gamma_t."""
        return (t + self.delay) ** -self.decay


@dataclass(frozen=True)
class ClosedForm(Update[Nothing]):
    """The model's own ``solve(data)``, for complete rows.

    >>> import partita
    >>> from partita.models import PPCA
    >>> g = torch.Generator().manual_seed(0)
    >>> partita.fit(
    ...     PPCA(4, 2, generator=g), torch.randn(50, 4, generator=g), ClosedForm(), generator=g
    ... ).stopped
    'converged'
    """

    def init(self, model: PPCA, data: Data, *, generator: torch.Generator) -> Nothing:
        capability.require("ClosedForm", model)
        return Nothing()

    @torch.no_grad()
    def update(
        self, model: PPCA, data: Data, state: Nothing, *, generator: torch.Generator
    ) -> tuple[Nothing, dict[str, Tensor]]:
        model.solve(data, generator=generator)
        return state, {"loss": -total_log_prob(model, data, generator=generator) / len(data)}


@torch.no_grad()
def total_log_prob(model: Mixing, data: Data, *, generator: torch.Generator) -> Tensor:
    """The weighted sum of log p(x) over all rows, read in chunks."""
    total = torch.zeros((), dtype=torch.float64)
    for batch in batches(data, generator):
        log_p = model.log_prob(batch.x.to(model.like)).double()
        total += (log_p.sum() if batch.weight is None else batch.weight.to(log_p) @ log_p).cpu()
    return total
