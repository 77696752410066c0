r"""Lower bounds on the likelihood of latent-variable models as objectives: ELBO,
importance-weighted, filtered.

.. math:: \mathcal L_k(x) = E\Big[\log \frac1k \sum_{i=1}^k w_i\Big] \le \log p(x), \qquad
          \mathcal L_1 = E_q[\log p(x \mid z)] - \mathrm{KL}\big(q(z \mid x)\,\|\,p(z)\big)
          (theory/latent_variables.md, eq. 41.6)

The loss is minus the bound, in nats for each row; what each latent dimension carries is recorded
beside it.

Letters: B rows, M latent dimensions, k draws for each row, w weights, beta weight of the
divergence.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor

from partita.core.arguments import NonNegativeFloat, NonNegativeInt, PositiveInt, Share
from partita.core.capability import require, require_need
from partita.core.protocols import Batch, Data, Losses, Objective, unwrapped
from partita.gradients.multisample import log_mean_exp
from partita.models.directed.latent import GaussianLatents, LatentModel
from partita.models.directed.vae import VAE
from partita.models.directed.vrnn import VRNN
from partita.objectives.base import Nothing, Stateless


class Steps(NamedTuple):
    """How many updates were made."""

    made: int = 0


@dataclass(frozen=True)
class ELBO(Objective[Steps]):
    """Minus E[log p(x | z)] + beta KL(q || p), the divergence in closed form; with beta 1 the loss
    is minus the bound.

    Arguments:
        beta: Weight of the divergence in the end; the recorded ``elbo`` has weight one whatever
            beta is.
        beta_warm_up: Updates over which the weight rises from zero to beta, against collapse of the
            posterior.
    """

    beta: NonNegativeFloat = 1.0
    beta_warm_up: NonNegativeInt = 0

    def init(self, model: GaussianLatents, data: Data, *, generator: torch.Generator) -> Steps:
        require("ELBO", model)
        return Steps()

    def losses(
        self, model: GaussianLatents, batch: Batch, state: Steps, *, generator: torch.Generator
    ) -> Losses[Steps]:
        fit, each = model.elbo_terms(batch.x, *_ends(batch), generator=generator)
        fit, kl = batch.mean(fit), batch.mean(each.sum(-1))
        beta = self.beta * min(1.0, (state.made + 1) / max(1, self.beta_warm_up))
        numbers = {"elbo": (fit - kl).detach(), "kl": kl.detach(), "active_units": _active(model)}
        return {"model": beta * kl - fit}, Steps(state.made + 1), numbers


@dataclass(frozen=True)
class IWAEBound(Stateless):
    """Minus log (1/k) sum of weights (Burda, Grosse and Salakhutdinov 2016): tighter as k grows.

    Arguments:
        k: Draws for each row.
        gradient: ``"plain"``, or ``"doubly"`` reparameterized (Tucker et al. 2019), whose noise for
            the encoder does not grow with k.
    """

    k: PositiveInt = 10
    gradient: Literal["plain", "doubly"] = "plain"

    def init(self, model: LatentModel, data: Data, *, generator: torch.Generator) -> Nothing:
        state = super().init(model, data, generator=generator)
        if self.gradient == "doubly":
            require_need("doubly", "IWAEBound(gradient='doubly')", model, "Use gradient='plain'.")
        return state

    def loss(
        self, model: LatentModel, batch: Batch, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if self.gradient == "doubly":
            loss, bound = doubly_reparameterized(cast(VAE, model), batch, self.k, generator)
        else:
            log_w = model(batch.x, self.k, *_ends(batch), generator=generator)
            bound = batch.mean(log_mean_exp(log_w))
            loss = -bound
        return loss, {"bound": bound.detach(), "active_units": _active(model)}


@dataclass(frozen=True)
class FIVO(Stateless):
    """Minus the bound of a particle filter (Maddison et al. 2017), which keeps k draws of a
    sequence near what is likely.

    Gradients do not pass through the choice of particles, as is usual: the terms left out have a
    large variance.

    Arguments:
        k: Particles for each row.
        threshold: Particles are resampled where their effective number falls below this share of k;
            0 never does, and is IWAE.
        every: Steps between two looks at that number; more are faster.
    """

    k: PositiveInt = 4
    threshold: Share = 0.5
    every: PositiveInt = 1

    def loss(
        self, model: VRNN, batch: Batch, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        how = {"threshold": self.threshold, "every": self.every}
        log_p = model.filtered(batch.x, self.k, *_ends(batch), **how, generator=generator)
        bound = batch.mean(log_p)
        return -bound, {"bound": bound.detach(), "active_units": _active(model)}


def doubly_reparameterized(
    model: VAE, batch: Batch, k: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    r"""A loss whose value is minus the bound and whose gradients are the doubly reparameterized
    ones, and the bound.

    .. math:: \nabla_\theta = \sum_i \tilde w_i\, \nabla_\theta \log w_i, \qquad
              \nabla_\phi = \sum_i \tilde w_i^2\, \frac{\partial \log w_i}{\partial z_i}
              \frac{\partial z_i}{\partial \phi}
              (theory/latent_variables.md, eq. 41.8)
    """
    log_w = model.doubly_weighted(batch.x, k, generator=generator)
    share = torch.softmax(log_w.detach(), 0)
    bound = batch.mean(log_mean_exp(log_w.detach()))
    surrogate = batch.mean((share * log_w).sum(0))
    return surrogate.detach() - surrogate - bound, bound


def _ends(batch: Batch) -> tuple[Tensor, ...]:
    return () if batch.lengths is None else (batch.lengths,)


def _active(model: LatentModel) -> Tensor:
    return torch.tensor(unwrapped(model).active_units())
