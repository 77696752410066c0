r"""Missing numbers of a sequence by particle Gibbs (Andrieu, Doucet and Holenstein 2010).

.. math:: (z, x_{\mathrm{mis}}) \sim \text{a path of a filter that keeps the last one among its
          particles}
          (theory/latent_variables.md, eq. 41.15)

Where a step is whole, particles are drawn from the encoder; where some of it is missing, the latent
variables come from the prior and the missing numbers from the decoder, weighed by what was
observed. One of the particles is the path of the sweep before, and the next path is chosen by
weight: the distribution of the paths stays p(z, missing | observed), whatever the number of
particles. Means are over all paths of a sweep by their weights, which has less noise than the
chosen one.

Letters: B rows, T steps, E numbers in a step, k particles for each row, M latent dimensions.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Generator, Tensor

from partita.core import rng
from partita.errors import invalid
from partita.models.directed.latent import draw_normal, normal_log_prob
from partita.models.directed.vrnn.filtering import effective_number, independent, parents, pick

if TYPE_CHECKING:
    from partita.models.directed.vrnn.model import VRNN

# at least and at most; between them twice the steps, for paths of fewer are all alike far back
PARTICLES = (24, 256)
THRESHOLD = 0.5  # share of the particles below which their effective number has them drawn anew
BURN_IN, KEPT = 10, 20  # sweeps
CELLS = 1 << 23  # rows x particles x steps x numbers at once


class Kept(NamedTuple):
    """A path: latent values and full rows."""

    z: Tensor  # (B, T, M)
    x: Tensor  # (B, T, E)


@torch.no_grad()
def fill_steps(model: "VRNN", x: Tensor, how: str, *, generator: Generator) -> Tensor:
    """``x`` with its NaN replaced, ``(B, L E)``."""
    size, width = model.output.support.width, model.support.width
    if x.dim() != 2 or x.shape[1] != width:
        raise invalid("VRNN.fill", "x", f"have shape (*, {width})", tuple(x.shape))
    out, k = x.to(model.like).clone(), particles(model.length)
    rows = max(1, CELLS // (k * (width + model.length * model.latent)))
    for index in x.isnan().any(-1).nonzero()[:, 0].split(rows):
        steps = out[index].unflatten(-1, (-1, size))
        out[index] = torch.where(
            steps.isnan(), _filled(model, steps, how, k, generator), steps
        ).flatten(1)
    return out


def smoothed_latents(model: "VRNN", steps: Tensor, generator: Generator) -> Tensor:
    """Latent values of each row after some sweeps, ``(B, T, E) -> (B, T, M)``; steps beyond the end
    of a row are NaN.
    """
    kept, k = None, particles(steps.shape[1])
    for _ in range(BURN_IN):
        kept, _ = conditional_sweep(model, steps, kept, generator, k)
    assert kept is not None
    return kept.z


def particles(length: int) -> int:
    """k for sequences of so many steps.

    >>> particles(5), particles(60), particles(1000)
    (24, 120, 256)
    """
    least, most = PARTICLES
    return max(least, min(most, 2 * length))


def _filled(model: "VRNN", steps: Tensor, how: str, k: int, generator: Generator) -> Tensor:
    kept, total = None, torch.zeros_like(steps)
    for sweep in range(BURN_IN + KEPT):
        kept, mean = conditional_sweep(model, steps, kept, generator, k)
        if sweep >= BURN_IN:
            total += mean
    assert kept is not None
    mean = total / KEPT
    if how == "draw":
        return kept.x
    return mean if how == "mean" else (mean > 0.5).to(mean)


def conditional_sweep(
    model: "VRNN", steps: Tensor, kept: Kept | None, generator: Generator, k: int
) -> tuple[Kept, Tensor]:
    """One pass of the filter, with ``kept`` as its first particle: a path of it chosen by weight,
    and the mean of x over all paths.
    """
    parts, (B, T, _) = model.parts, steps.shape
    state, log_w = parts.start(k * B, steps), steps.new_zeros(k, B)
    places, followed = [], []
    for t in range(T):
        poor = effective_number(log_w) < THRESHOLD * k
        parent = parents(poor, independent(log_w, k, generator), kept is not None)
        log_w = log_w.where(~poor, 0.0)
        state = pick(state, parent)
        z, x, now = _proposed(
            model,
            steps[:, t],
            state,
            k,
            generator,
            None if kept is None else (kept.z[:, t], kept.x[:, t]),
        )
        places.append((z, x))
        followed.append(parent)
        log_w = log_w + now
        state = parts.advance(parts.phi_x(model.output.encode(x)), parts.phi_z(z), state)
    z, x = _traced(places, followed)
    chosen, share = independent(log_w, 1, generator)[0], torch.softmax(log_w, 0)[..., None, None]
    rows = torch.arange(B, device=steps.device)
    return Kept(z[chosen, rows], x[chosen, rows]), (share * x).sum(0)


def _proposed(
    model: "VRNN",
    seen: Tensor,
    state: Tensor,
    k: int,
    generator: Generator,
    first: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """z and x of every particle at one step, ``(k B, .)``, and the log weights ``(k, B)``;
    ``first`` is what particle 0 holds to.
    """
    parts, B, h = model.parts, len(seen), model.parts.h(state)
    missing = seen.isnan().expand(k, -1, -1).flatten(0, 1)
    partly = missing.any(-1, keepdim=True)
    x = seen.nan_to_num().expand(k, -1, -1).flatten(0, 1)
    prior, q = parts.prior_of(h), parts.posterior_of(parts.phi_x(model.output.encode(x)), h)
    mean, log_scale = (torch.where(partly, a, b) for a, b in zip(prior, q, strict=True))
    z = draw_normal(mean, log_scale, generator)
    if first is not None:
        z[:B] = first[0]
    numbers = parts.numbers_of(parts.phi_z(z), h)
    x = torch.where(missing, rng.draw(model.output.distribution(numbers), generator), x)
    if first is not None:
        x[:B] = first[1]
    fit = model.output.log_prob(numbers, x).where(~missing, 0.0).sum(-1)
    return z, x, (fit + normal_log_prob(z, *prior) - normal_log_prob(z, mean, log_scale)).view(k, B)


def _traced(places: list[tuple[Tensor, Tensor]], parents: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The paths that end in each particle, back through its parents: z ``(k, B, T, M)`` and x ``(k,
    B, T, E)``.
    """
    k, B = parents[0].shape
    zs, xs, at = [], [], torch.arange(k, device=parents[0].device)[:, None].expand(k, B)
    for (z, x), parent in zip(reversed(places), reversed(parents), strict=True):
        zs.append(pick(z, at).view(k, B, -1))
        xs.append(pick(x, at).view(k, B, -1))
        at = parent.gather(0, at)
    return torch.stack(zs[::-1], 2), torch.stack(xs[::-1], 2)
