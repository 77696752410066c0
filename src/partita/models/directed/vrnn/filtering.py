r"""A particle filter along a sequence: k draws of the latent variables, resampled where most of
them have become unlikely.

.. math:: \hat p(x) = \prod_{r} \frac1k \sum_{i=1}^k \prod_{t \in r} w_t^{(i)}, \qquad E[\hat p(x)]
          = p(x)
          (theory/latent_variables.md, eq. 41.14)

r are the stretches between resamplings; with none there is one stretch, and the estimate is that of
importance sampling.

Letters: B rows, T steps, E numbers in a step, k particles for each row, n = k B, M latent
dimensions.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Generator, Tensor

from partita.core import rng
from partita.models.directed.latent import draw_normal

if TYPE_CHECKING:
    from partita.models.directed.vrnn.model import VRNN


class Filtered(NamedTuple):
    """What the filter leaves."""

    log_p: Tensor  # (B,): log of the estimate of p(x)
    log_w: Tensor  # (k, B): since the last resampling
    state: Tensor  # (k B, ...): memories after the last step


def filtered(
    model: "VRNN",
    steps: Tensor,
    there: Tensor,
    k: int,
    threshold: float,
    every: int = 1,
    kept: Tensor | None = None,
    *,
    generator: Generator,
) -> Filtered:
    """Follow the rows with k particles each; those of a row are resampled where their effective
    number falls below threshold k.

    Rows are looked at before every step, or every few: what lies between is computed at once, which
    is faster. The first particle holds to ``kept`` latent values (B, T, M), if given; where they
    are a draw of the posterior, E[1 / estimate] = 1 / p(x).
    """
    state, log_w, log_p = None, steps.new_zeros(k, len(steps)), steps.new_zeros(len(steps))
    for t in range(0, steps.shape[1], every):
        if state is not None:
            state, log_w, log_p = _resampled(
                state, log_w, log_p, there[:, t], threshold, kept is not None, generator
            )
        now, real = steps[:, t : t + every], there[:, t : t + every]
        path = model.follow(
            now,
            k,
            state=state,
            first=None if kept is None else kept[:, t : t + every],
            generator=generator,
        )
        terms, state = model.terms_along(path, now, real), path.state
        log_w = log_w + terms.log_weights()
    assert state is not None  # there is at least one step
    return Filtered(log_p + torch.logsumexp(log_w, 0) - math.log(k), log_w, state)


def _resampled(
    state: Tensor,
    log_w: Tensor,
    log_p: Tensor,
    there: Tensor,
    threshold: float,
    first_stays: bool,
    generator: Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows with few effective particles draw them anew in proportion to their weights, whose mean
    moves into the estimate.

    Beside a particle that stays, the others are drawn one by one: at even distances they would have
    to make room for it.
    """
    k, known = len(log_w), log_w.detach()
    poor = there & (effective_number(known) < threshold * k)
    if not bool(poor.any()):
        return state, log_w, log_p
    draw = independent if first_stays else systematic_particles
    parent = parents(poor, draw(known, k, generator), first_stays)
    log_p = log_p + torch.where(poor, torch.logsumexp(log_w, 0) - math.log(k), 0.0)
    return pick(state, parent), log_w.where(~poor, 0.0), log_p


def parents(poor: Tensor, drawn: Tensor, first_stays: bool) -> Tensor:
    """The particle that each one follows, ``(k, B)``: a drawn one in poor rows, else itself."""
    if first_stays:
        drawn[0] = 0
    return torch.where(poor, drawn, torch.arange(len(drawn), device=drawn.device)[:, None])


def effective_number(log_w: Tensor) -> Tensor:
    """How many particles of each row carry its weight, ``(k, B) -> (B,)``."""
    return torch.exp(2 * torch.logsumexp(log_w, 0) - torch.logsumexp(2 * log_w, 0))


def systematic_particles(log_w: Tensor, n: int, generator: Generator) -> Tensor:
    """``n`` particles of each row at even distances along their weights, ``(k, B) -> (n, B)``: each
    n w times on average, with less noise.
    """
    places = torch.arange(n, device=log_w.device, dtype=log_w.dtype)
    return at_places(log_w, (places + rng.uniform((log_w.shape[1], 1), log_w, generator)) / n)


def independent(log_w: Tensor, n: int, generator: Generator) -> Tensor:
    """``n`` particles of each row, drawn one by one in proportion to their weights, ``(k, B) -> (n,
    B)``.
    """
    return at_places(log_w, rng.uniform((log_w.shape[1], n), log_w, generator))


def at_places(log_w: Tensor, places: Tensor) -> Tensor:
    """The particles at these shares, from 0 to 1, of the weights laid end to end, ``(k, B), (B, n)
    -> (n, B)``.
    """
    ends = torch.softmax(log_w.mT.double(), -1).cumsum(-1)
    return (
        torch.searchsorted(ends, places.double() * ends[:, -1:], right=True)
        .clamp_max(len(log_w) - 1)
        .mT
    )


def pick(state: Tensor, parent: Tensor) -> Tensor:
    """The particles numbered ``parent`` (j, B) of every row, ``(k B, ...) -> (j B, ...)``."""
    B = parent.shape[1]
    index = (parent * B + torch.arange(B, device=parent.device)).flatten()
    return state[index]


def chosen_state(found: Filtered, generator: Generator) -> Tensor:
    """The memory of one particle of each row, drawn in proportion to its weight, ``(B, ...)``."""
    return pick(found.state, independent(found.log_w, 1, generator))


def go_on(
    model: "VRNN", state: Tensor, steps: int, *, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Draw what follows, ``(n, steps, E)`` and the latent values behind it ``(n, steps, M)``, from
    memories ``(n, ...)``.
    """
    xs = [state.new_zeros(len(state), 0, model.output.support.width)]
    zs = [state.new_zeros(len(state), 0, model.latent)]
    for _ in range(steps):
        x, z, state = one_step(model, state, generator)
        xs.append(x[:, None])
        zs.append(z[:, None])
    return torch.cat(xs, 1), torch.cat(zs, 1)


def one_step(model: "VRNN", state: Tensor, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """x_t and z_t drawn from the model, and the memory after them."""
    parts = model.parts
    h = parts.h(state)
    z = draw_normal(*parts.prior_of(h), generator)
    felt = parts.phi_z(z)
    x = rng.draw(model.output.distribution(parts.numbers_of(felt, h)), generator)
    return x, z, parts.advance(parts.phi_x(model.output.encode(x)), felt, state)
