r"""Missing columns of a latent model by Metropolis within Gibbs: latent variables given a full row,
then the missing columns given them.

.. math:: z' \sim q(\cdot \mid x), \quad a = \min\Big(1, \frac{w(x, z')}{w(x, z)}\Big); \qquad
          x_{\mathrm{mis}} \sim p(x_{\mathrm{mis}} \mid z)
          (theory/latent_variables.md, eq. 41.13)

The first step leaves p(z | x) as it is however bad q is, so that the chain's law is the model's own
(Mattei and Frellsen 2018), not the encoder's guess of it. The mean and the mode are of the
conditionals along the chain, which have less noise than its states.

Letters: B rows, D columns, C chains for each row, w weights.
"""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from partita.core import rng
from partita.models.directed.latent import draw_latent

CHAINS = 8  # for each row, where they are averaged; one draw takes one
BURN_IN, KEPT = 100, 100  # steps
CELLS = 1 << 22  # rows x chains x columns at once


@torch.no_grad()
def fill(model: Any, x: Tensor, how: str, *, generator: torch.Generator) -> Tensor:
    """``x`` with its NaN replaced, ``(B, D)``, by what ``model.output`` says along chains of
    ``model``.
    """
    like = model.like
    out, lost = x.to(like).clone(), x.isnan().any(-1)
    size = max(1, CELLS // (CHAINS * x.shape[-1] * model.output.blocks))
    for index in lost.nonzero()[:, 0].split(size):
        out[index] = torch.where(
            out[index].isnan(), _filled(model, out[index], how, generator), out[index]
        )
    return out


def _filled(model: Any, x: Tensor, how: str, generator: torch.Generator) -> Tensor:
    chains = 1 if how == "draw" else CHAINS
    missing = x.isnan().expand(chains, *x.shape)
    full = torch.where(
        missing, model.draw(chains * len(x), generator=generator).view(missing.shape), x
    )
    z, total = draw_latent(model.posterior(full), 1, generator)[0], x.new_zeros(())
    for step in range(BURN_IN + KEPT):
        z = _moved(model, full, z, generator)
        given: Distribution = model.output.distribution(model.decoder(z))
        full = torch.where(missing, rng.draw(given, generator), full)
        if step >= BURN_IN:
            total = total + model.output.expected(given).mean(0)
    if how == "draw":
        return full[0]
    return model.output.decided(total / KEPT, how)


def _moved(model: Any, x: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
    """One step of z given x: a proposal from q, accepted by its weight."""
    q = model.posterior(x)
    proposed = draw_latent(q, 1, generator)[0]
    new, old = (model.log_joint(x, at) - q.log_prob(at) for at in (proposed, z))
    accept = rng.uniform(new.shape, new, generator).log() < new - old
    return torch.where(accept[..., None], proposed, z)
