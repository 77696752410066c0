r"""Maximum a posteriori: any objective that stands for the likelihood, with priors on the
parameters.

.. math:: \theta_{\mathrm{MAP}} = \arg\max_\theta \sum_i \log p(x_i \mid \theta) + \log p(\theta),
          \qquad
          \ell = -\frac1N \sum_i \log p(x_i \mid \theta) - \frac1N \log p(\theta)
          (theory/bayes.md, eq. 8.20)

The mode depends on the coordinates: it is that of the density in the model's own parameters.

Letters: N data, theta parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal

from partita.core import capability
from partita.core.arguments import check_role
from partita.core.protocols import Batch, Data, Losses, Model, Objective, unwrapped
from partita.divergences.kl import in_support
from partita.errors import invalid
from partita.objectives.exact import ExactLikelihood

Prior = Distribution | Mapping[str, Distribution]


class Posterior(NamedTuple):
    """The state of the wrapped objective, whose chains and modules are seen through, and the number
    of rows.
    """

    inner: NamedTuple
    rows: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass(frozen=True)
class MAP(Objective[Posterior]):
    """An objective with priors.

    Arguments:
        likelihood: The objective that stands for -log p(x | theta), such as ``ExactLikelihood()``
            or ``PCD()``.
        prior: One ``torch.distributions`` object for every parameter that is learned, standard
            normal by default, or several by the names of ``model.named_parameters()``; parameters
            without one have a flat prior.

    >>> import partita
    >>> from torch.distributions import Normal
    >>> from partita.core import Binary
    >>> from partita.models import MaxEnt
    >>> from partita.objectives import ExactLikelihood
    >>> g = torch.Generator().manual_seed(0)
    >>> model = MaxEnt("independent", Binary(1), generator=g)
    >>> nine_of_ten = (torch.arange(10)[:, None] > 0).float()
    >>> objective = MAP(ExactLikelihood(), {"theta": Normal(0.0, 1.0)})
    >>> run = partita.fit(model, nine_of_ten, objective, generator=g)
    >>> round(model.theta.item(), 2)  # where 9 - 10 sigmoid(theta) = theta; by likelihood alone 2.2
    1.24
    """

    likelihood: Objective = field(default_factory=ExactLikelihood)
    prior: Prior = field(default_factory=lambda: Normal(0.0, 1.0))

    in_nats = False  # a log prior density has no natural size

    def __post_init__(self) -> None:
        check_role("MAP", "likelihood", self.likelihood, ("losses",), "ExactLikelihood()")

    @property
    def deterministic(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the likelihood's."""
        return self.likelihood.deterministic

    def deterministic_on(self, model: Model) -> bool:
        return self.likelihood.deterministic_on(model)

    def shared(self, processes: int) -> Self:
        """The likelihood is shared out; every process has the prior."""
        return replace(self, likelihood=self.likelihood.shared(processes))

    def init(self, model: Model, data: Data, *, generator: torch.Generator) -> Posterior:
        if isinstance(self.likelihood, ExactLikelihood):
            capability.require("MAP", model)
        check_priors(unwrapped(model), self.prior)
        return Posterior(self.likelihood.init(model, data, generator=generator), len(data))

    def losses(
        self, model: Model, batch: Batch, state: Posterior, *, generator: torch.Generator
    ) -> Losses[Posterior]:
        losses, inner, info = self.likelihood.losses(model, batch, state.inner, generator=generator)
        log_prior = log_prior_density(unwrapped(model), self.prior)
        if "model" in losses:  # whose turn it may not be
            losses = {**losses, "model": losses["model"] - log_prior / state.rows}
        return losses, state._replace(inner=inner), {**info, "log_prior": log_prior.detach()}

    def precondition(self, model: Model, state: Posterior) -> None:
        self.likelihood.precondition(model, state.inner)

    def epoch(
        self, model: Model, data: Data, state: Posterior, *, generator: torch.Generator
    ) -> Posterior:
        inner = self.likelihood.epoch(model, data, state.inner, generator=generator)
        return state._replace(inner=inner)


def log_prior_density(model: nn.Module, prior: Prior) -> Tensor:
    """log p(theta), with all constants."""
    return torch.stack(
        [law.log_prob(parameter).sum() for _, parameter, law in _pairs(model, prior)]
    ).sum()


def check_priors(model: nn.Module, prior: Prior) -> None:
    """Every prior belongs to a parameter and holds the value it starts from."""
    parameters = dict(model.named_parameters())
    named = prior if isinstance(prior, Mapping) else dict.fromkeys(parameters, prior)
    known = [name in parameters and isinstance(law, Distribution) for name, law in named.items()]
    if not known or not all(known):
        got = dict(prior) if isinstance(prior, Mapping) else repr(prior)
        allowed = f"give torch.distributions objects for some of {', '.join(parameters)}"
        raise invalid("MAP", "prior", allowed, got)
    for name, parameter, law in _pairs(model, prior):
        if not in_support(law, parameter.detach()).all():
            allowed = f"start in the support of its prior, {law.support}"
            raise invalid("MAP", f"parameter {name!r}", allowed, "values outside")


def _pairs(model: nn.Module, prior: Prior) -> list[tuple[str, Tensor, Distribution]]:
    """Names, parameters and their priors; one prior alone goes with all that is learned."""
    if isinstance(prior, Distribution):
        return [(name, p, prior) for name, p in model.named_parameters() if p.requires_grad]
    parameters = dict(model.named_parameters())
    return [(name, parameters[name], law) for name, law in prior.items()]
