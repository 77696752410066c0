r"""Missing numbers of a sequence by particle Gibbs (Andrieu, Doucet and Holenstein 2010).

.. math:: (z, x_{\mathrm{mis}}) \sim \text{a path of a filter that keeps the last one among its particles}
          (theory/latent_variables.md, eq. 41.15)

Where a step is whole, particles are drawn from the encoder; where some of it is missing, the latent variables come from the prior and
the missing numbers from the decoder, weighed by what was observed. One of the particles is the path of the sweep before, and the next
path is chosen by weight: the law of the paths stays p(z, missing | observed), whatever the number of particles.

Letters: B rows, T steps, E numbers in a step, k particles for each row, M latent dimensions.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from partita.core import rng
from partita.core.errors import invalid
from partita.models.directed.gaussian_latents import normal_log_prob
from partita.models.directed.vrnn.filtering import pick

PARTICLES = 24
BURN_IN, KEPT = 10, 30  # sweeps
ROWS_AT_ONCE = 64


class Kept(NamedTuple):
    """A path: latent values and full rows."""

    z: Tensor  # (B, T, M)
    x: Tensor  # (B, T, E)


@torch.no_grad()
def fill(model: Any, x: Tensor, how: str, *, generator: torch.Generator) -> Tensor:
    """``x`` with its NaN replaced, ``(B, L E)``."""
    size = model.output.support.width
    if x.dim() != 2 or x.shape[1] != model.support.width:
        raise invalid("VRNN.fill", "x", f"have shape (*, {model.support.width})", tuple(x.shape))
    out = x.to(model.device_like).clone()
    for index in x.isnan().any(-1).nonzero()[:, 0].split(ROWS_AT_ONCE):
        steps = out[index].unflatten(-1, (-1, size))
        out[index] = torch.where(steps.isnan(), _filled(model, steps, how, generator), steps).flatten(1)
    return out


def _filled(model: Any, steps: Tensor, how: str, generator: torch.Generator) -> Tensor:
    kept, total = None, torch.zeros_like(steps)
    for sweep in range(BURN_IN + KEPT):
        kept = conditional_sweep(model, steps, kept, generator)
        if sweep >= BURN_IN:
            total += kept.x
    assert kept is not None
    mean = total / KEPT
    return kept.x if how == "draw" else mean if how == "mean" else (mean > 0.5).to(mean)


def conditional_sweep(model: Any, steps: Tensor, kept: Kept | None, generator: torch.Generator, k: int = PARTICLES) -> Kept:
    """One pass of the filter, with ``kept`` as its first particle, and a path of it chosen by weight."""
    parts, (B, T, _) = model.parts, steps.shape
    state, log_w = parts.start(k * B, steps), steps.new_zeros(k, B)
    places, parents = [], []
    for t in range(T):
        parent = torch.arange(k, device=steps.device)[:, None].expand(k, B)
        if t:
            parent = rng.categories(log_w.mT.expand(k, B, k), generator)
            if kept is not None:
                parent[0] = 0
            state = pick(state, parent)
        z, x, log_w = _proposed(model, steps[:, t], state, k, generator, None if kept is None else (kept.z[:, t], kept.x[:, t]))
        places.append((z, x))
        parents.append(parent)
        state = parts.advance(parts.phi_x(model.output.encode(x)), parts.phi_z(z), state)
    return _traced(places, parents, rng.categories(log_w.mT, generator))


def _proposed(
    model: Any, seen: Tensor, state: Tensor, k: int, generator: torch.Generator, first: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """z and x of every particle at one step, ``(k B, .)``, and the log weights ``(k, B)``; ``first`` is what particle 0 holds to."""
    parts, B, h = model.parts, len(seen), model.parts.h(state)
    missing = seen.isnan().expand(k, -1, -1).flatten(0, 1)
    partly = missing.any(-1, keepdim=True)
    x = seen.nan_to_num().expand(k, -1, -1).flatten(0, 1)
    prior, q = parts.prior_of(h), parts.posterior_of(parts.phi_x(model.output.encode(x)), h)
    mean, log_scale = (torch.where(partly, a, b) for a, b in zip(prior, q, strict=True))
    z = mean + log_scale.exp() * rng.normal(mean.shape, mean, generator)
    if first is not None:
        z[:B] = first[0]
    numbers = parts.numbers_of(parts.phi_z(z), h)
    x = torch.where(missing, rng.draw(model.output.distribution(numbers), generator), x)
    if first is not None:
        x[:B] = first[1]
    fit = model.output.log_prob(numbers, x).where(~missing, 0.0).sum(-1)
    return z, x, (fit + normal_log_prob(z, *prior) - normal_log_prob(z, mean, log_scale)).view(k, B)


def _traced(places: list[tuple[Tensor, Tensor]], parents: list[Tensor], last: Tensor) -> Kept:
    """The path that ends in particle ``last`` of every row, back through its parents."""
    zs, xs, at = [], [], last[None]
    for (z, x), parent in zip(reversed(places), reversed(parents), strict=True):
        zs.append(pick(z, at))
        xs.append(pick(x, at))
        at = parent.gather(0, at)
    return Kept(torch.stack(zs[::-1], 1), torch.stack(xs[::-1], 1))
