r"""Noise-contrastive estimation: tell data from noise, with the log normalizer as one more
parameter (Gutmann and Hyvärinen 2010, 2012).

.. math:: \ell = -E_{\mathrm{data}}[\log h(x)] - \nu\, E_{\mathrm{noise}}[\log(1 - h(y))], \qquad
          h(u) = \sigma\big({-F(u)} - c - \log p_n(u) - \log \nu\big)
          (theory/objectives.md, eq. 6.6, 6.7)

At the optimum c is log Z: unlike the likelihood, the contrast has no use for a normalizer that is
too small. c starts at an importance-sampling estimate, from which the first steps climb; from zero
they would spend themselves on c.

Letters: B batch, D visible, nu noise rows for each row of data.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from partita.core import capability, rng
from partita.core.arguments import MOST, PositiveFloat
from partita.core.protocols import Batch, Data, EnergyModel, Losses, Objective, unwrapped
from partita.objectives.noise import Contrast, as_noise, check_covers, check_noise, noise_title

IMPORTANCE_DRAWS = 8192
ROWS_AT_ONCE = 1024


class LogNormalizer(nn.Module):
    """The learned log normalizer c."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.c = nn.Parameter(value.detach().clone())

    def forward(self) -> Tensor:
        return self.c


class Normalizer(NamedTuple):
    """What is trained beside the model."""

    module: LogNormalizer


@dataclass(frozen=True)
class NCE(Objective[Normalizer]):
    """Logistic regression between data and noise.

    Arguments:
        noise: A ``torch.distributions`` object, a model with ``log_prob`` and ``draw``, or None for
            the model's own fitted reference.
        ratio: nu, noise rows for each row of data; the larger, the nearer to maximum likelihood.

    >>> import partita
    >>> from partita.models import RBM
    >>> g = torch.Generator().manual_seed(0)
    >>> run = partita.fit(RBM(3, 2, generator=g), torch.eye(3), NCE(ratio=5), steps=2, generator=g)
    >>> sorted(set(run.history[-1]) - {"step", "epoch", "seconds"})
    ['accuracy', 'log_normalizer', 'model']
    """

    noise: Contrast = None
    ratio: PositiveFloat = 10.0

    def init(self, model: EnergyModel, data: Data, *, generator: torch.Generator) -> Normalizer:
        capability.require("NCE", model)
        check_noise(self.noise, model, data, generator=generator)
        log_z = importance_log_z(
            model, self.noise, IMPORTANCE_DRAWS, generator=rng.child(generator)
        )
        return Normalizer(LogNormalizer(log_z))

    def losses(
        self, model: EnergyModel, batch: Batch, state: Normalizer, *, generator: torch.Generator
    ) -> Losses[Normalizer]:
        count = max(1, round(min(self.ratio * len(batch.x), MOST)))
        u, log_noise = with_noise(unwrapped(model), self.noise, batch.x, count, generator)
        nu, c = count / len(batch.x), state.module()
        log_odds = -model(u) - c - log_noise - math.log(nu)
        of_data, of_noise = log_odds.split([len(batch.x), count])
        loss = batch.mean(functional.softplus(-of_data)) + nu * functional.softplus(of_noise).mean()
        even = -math.log(nu)
        right = (of_data > even).float().mean() + (of_noise <= even).float().mean()
        return {"model": loss}, state, {"log_normalizer": c.detach(), "accuracy": 0.5 * right}


def free_likelihood(model: EnergyModel, x: Tensor, c: Tensor) -> Tensor:
    """The negative log-likelihood with a free c in place of log Z, which has no minimum
    (theory/objectives.md, eq. 6.5).

    Its derivative in c is one everywhere: c goes to minus infinity whatever the model, and the
    "likelihood" with it beyond every bound.
    """
    return model(x).mean() + c


@torch.no_grad()
def with_noise(
    model: EnergyModel, noise: Contrast, x: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Rows of data followed by ``count`` rows of noise, and log p_n of all of them."""
    ready = as_noise(noise, model)
    u = torch.cat([x, ready.draw(count, generator=generator).to(x)])
    log_noise = ready.log_prob(u).to(x)
    check_covers(log_noise[: len(x)], noise_title(noise))
    return u, log_noise


@torch.no_grad()
def importance_log_z(
    model: EnergyModel, noise: Contrast, n: int, *, generator: torch.Generator
) -> Tensor:
    r"""log Z from draws of the noise: :math:`\log \frac1n \sum_i e^{-F(y_i)} / p_n(y_i)`
    (theory/objectives.md, eq. 6.8).
    """
    ready = as_noise(noise, model)
    y = ready.draw(n, generator=generator).to(model.like)
    log_weights = torch.cat(
        [-model(part) - ready.log_prob(part).to(part) for part in y.split(ROWS_AT_ONCE)]
    )
    return (torch.logsumexp(log_weights.double(), 0) - math.log(n)).to(y)
