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

import math
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from partita.core.capability import require, require_need
from partita.core.checks import check_choice, check_count, check_real
from partita.core.protocols import Batch, Data, Losses, Objective
from partita.models.directed.latent import GaussianLatents, LatentModel
from partita.models.directed.vae import VAE
from partita.models.directed.vrnn import VRNN
from partita.objectives.base import Nothing, unwrapped, weighted_mean

GRADIENTS = ("plain", "doubly")


class Steps(NamedTuple):
    """How many updates were made."""

    count: int = 0


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

    beta: float = 1.0
    beta_warm_up: int = 0

    def __post_init__(self) -> None:
        check_real("ELBO", "beta", self.beta, 0)
        check_count("ELBO", "beta_warm_up", self.beta_warm_up, 0)

    def init(self, model: GaussianLatents, data: Data, *, generator: torch.Generator) -> Steps:
        require("ELBO", model)
        return Steps()

    def losses(
        self, model: GaussianLatents, batch: Batch, state: Steps, *, generator: torch.Generator
    ) -> Losses[Steps]:
        fit, each = model.elbo_terms(batch.x, *_ends(batch), generator=generator)
        fit, kl = weighted_mean(fit, batch.weight), weighted_mean(each.sum(-1), batch.weight)
        beta = self.beta * min(1.0, (state.count + 1) / max(1, self.beta_warm_up))
        numbers = {"elbo": (fit - kl).detach(), "kl": kl.detach(), "active_units": _active(model)}
        return {"model": beta * kl - fit}, Steps(state.count + 1), numbers


@dataclass(frozen=True)
class IWAEBound(Objective[Nothing]):
    """Minus log (1/k) sum of weights (Burda, Grosse and Salakhutdinov 2016): tighter as k grows.

    Arguments:
        k: Draws for each row.
        gradient: ``"plain"``, or ``"doubly"`` reparameterized (Tucker et al. 2019), whose noise for
            the encoder does not grow with k.
    """

    k: int = 10
    gradient: str = "plain"

    def __post_init__(self) -> None:
        check_count("IWAEBound", "k", self.k)
        check_choice("IWAEBound", "gradient", self.gradient, GRADIENTS)

    def init(self, model: LatentModel, data: Data, *, generator: torch.Generator) -> Nothing:
        require("IWAEBound", model)
        if self.gradient == "doubly":
            require_need("doubly", "IWAEBound(gradient='doubly')", model, "Use gradient='plain'.")
        return Nothing()

    def losses(
        self, model: LatentModel, batch: Batch, state: Nothing, *, generator: torch.Generator
    ) -> Losses[Nothing]:
        if self.gradient == "doubly":
            loss, bound = doubly_reparameterized(cast(VAE, model), batch, self.k, generator)
        else:
            log_w = model(batch.x, self.k, *_ends(batch), generator=generator)
            bound = weighted_mean(log_mean_exp(log_w), batch.weight)
            loss = -bound
        return {"model": loss}, state, {"bound": bound.detach(), "active_units": _active(model)}


@dataclass(frozen=True)
class FIVO(Objective[Nothing]):
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

    k: int = 4
    threshold: float = 0.5
    every: int = 1

    def __post_init__(self) -> None:
        check_count("FIVO", "k", self.k)
        check_real("FIVO", "threshold", self.threshold, 0, 1)
        check_count("FIVO", "every", self.every)

    def init(self, model: VRNN, data: Data, *, generator: torch.Generator) -> Nothing:
        require("FIVO", model)
        return Nothing()

    def losses(
        self, model: VRNN, batch: Batch, state: Nothing, *, generator: torch.Generator
    ) -> Losses[Nothing]:
        how = {"threshold": self.threshold, "every": self.every}
        log_p = model.filtered(batch.x, self.k, *_ends(batch), **how, generator=generator)
        bound = weighted_mean(log_p, batch.weight)
        return {"model": -bound}, state, {"bound": bound.detach(), "active_units": _active(model)}


def log_mean_exp(log_w: Tensor) -> Tensor:
    """log (1/k) sum_i w_i, ``(k, B) -> (B,)``."""
    return torch.logsumexp(log_w, 0) - math.log(len(log_w))


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
    bound = weighted_mean(log_mean_exp(log_w.detach()), batch.weight)
    surrogate = weighted_mean((share * log_w).sum(0), batch.weight)
    return surrogate.detach() - surrogate - bound, bound


def _ends(batch: Batch) -> tuple[Tensor, ...]:
    return () if batch.lengths is None else (batch.lengths,)


def _active(model: LatentModel) -> Tensor:
    return torch.tensor(unwrapped(model).active_units())
