r"""The distribution of one step: log masses or densities from numbers that a network gives, and
draws from them.

.. math:: p(x) = \sum_k \pi_k\, N(x;\, m_k, s_k^2) \text{ for real values}; \quad \mathrm{softmax},
          \; \sigma \text{ for discrete ones}
    (theory/sequences.md, eq. 24.3)

Letters: K states or components, l logits, pi weights, m means, s deviations, T temperature.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from partita.core import rng
from partita.core.checks import check_real
from partita.errors import invalid

# of standardized values: a density cannot grow without bound at a value that repeats
LEAST_LOG_SCALE = -7.0


def categorical_log_prob(logits: Tensor, x: Tensor) -> Tensor:
    """log softmax(l) at whole numbers x, ``(*, K), (*) -> (*)``."""
    return -functional.cross_entropy(
        logits.flatten(0, -2), x.long().flatten(), reduction="none"
    ).view_as(x)


def bernoulli_log_prob(logits: Tensor, x: Tensor) -> Tensor:
    """x log sigma(l) + (1 - x) log sigma(-l), ``(*)``."""
    return -functional.binary_cross_entropy_with_logits(logits, x, reduction="none")


def mixture_log_prob(numbers: Tensor, x: Tensor) -> Tensor:
    """log of a mixture of normals, ``(*, 3 K), (*) -> (*)``: weights, means and log deviations side
    by side.
    """
    log_weight, mean, log_scale = mixture_parts(numbers)
    z = (x.unsqueeze(-1) - mean) * torch.exp(-log_scale)
    return torch.logsumexp(
        log_weight - log_scale - 0.5 * z.square() - 0.5 * math.log(2 * math.pi), -1
    )


def mixture_parts(numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log weights, means, log deviations, each ``(*, K)``."""
    weight, mean, log_scale = numbers.chunk(3, -1)
    return weight.log_softmax(-1), mean, log_scale.clamp_min(LEAST_LOG_SCALE)


def check_sharpness(owner: str, temperature: float, top_p: float, discrete: bool) -> None:
    """A temperature above 0, and a share of the mass in (0, 1] that only states that can be ranked
    may be cut to.
    """
    check_real(owner, "temperature", temperature, 0, open_low=True)
    check_real(owner, "top_p", top_p, 0, 1, open_low=True)
    if not discrete and top_p < 1:
        raise invalid(
            owner,
            "top_p",
            "be 1 for real values, whose densities have no list to cut",
            top_p,
            "Lower the temperature instead.",
        )


def draw_categorical(
    logits: Tensor, temperature: float, top_p: float, generator: torch.Generator
) -> Tensor:
    """One state for each row of logits, ``(*, K) -> (*)``, from p^(1/T), cut to the likeliest
    states that hold ``top_p`` of it.
    """
    p = torch.softmax(logits.double() / temperature, -1)
    if top_p < 1:
        ranked, order = p.sort(-1, descending=True)
        ranked = ranked.where(ranked.cumsum(-1) - ranked < top_p, 0.0)
        p = torch.zeros_like(p).scatter(-1, order, ranked)
    edges = p.cumsum(-1)
    u = rng.uniform((*p.shape[:-1], 1), p, generator) * edges[..., -1:]
    found = torch.searchsorted(edges, u, right=True).squeeze(-1)
    return found.clamp_max(p.shape[-1] - 1).to(logits.dtype)


def draw_bernoulli(
    logits: Tensor, temperature: float, top_p: float, generator: torch.Generator
) -> Tensor:
    """Zeros and ones, ``(*) -> (*)``, as two states."""
    return draw_categorical(
        torch.stack([torch.zeros_like(logits), logits], -1), temperature, top_p, generator
    )


def draw_mixture(numbers: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """One value for each mixture, ``(*, 3 K) -> (*)``; a temperature sharpens the weights and
    multiplies variances.
    """
    log_weight, mean, log_scale = mixture_parts(numbers)
    k = draw_categorical(log_weight, temperature, 1.0, generator).long().unsqueeze(-1)
    mean, scale = (part.gather(-1, k).squeeze(-1) for part in (mean, log_scale.exp()))
    return mean + temperature**0.5 * scale * rng.normal(mean.shape, mean, generator)
