"""Randomness is handed in: every draw of partita goes through here, from an explicit generator.

On a CPU ``torch.rand`` compared with the probability is about three times faster than
``torch.bernoulli``; bits from a vectorized generator that is seeded anew for every call
(:mod:`partita.core.xoshiro`) are five times faster again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Normal

from partita.runtime.seeds import Shuffled
from partita.runtime.seeds import keyed as keyed
from partita.runtime.seeds import seed as seed

# things whose order is listed: more would cost memory that grows with a table
MOST_LISTED = 1 << 18


def uniform(shape: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    """U[0, 1) with the device and dtype of ``like``."""
    return torch.rand(shape, generator=generator, device=like.device, dtype=like.dtype)


def normal(shape: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    """N(0, 1) with the device and dtype of ``like``."""
    return torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype)


def bernoulli(p: Tensor, generator: torch.Generator) -> Tensor:
    """Zeros and ones, one with probability ``p``, in the dtype of ``p``."""
    if p.dtype is torch.float32 and p.device.type == "cpu":
        return _bernoulli_on_cpu(p, generator)
    return (uniform(p.shape, p, generator) < p).to(p.dtype)


def _bernoulli_on_cpu(p: Tensor, generator: torch.Generator) -> Tensor:
    """Draws from a vectorized generator whose lanes are seeded by ``generator``."""
    from partita.core.xoshiro import LANES, fill_bernoulli

    p = p.detach().contiguous()
    seeds = torch.empty(2, LANES, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    out = torch.empty_like(p)
    fill_bernoulli(
        p.view(-1).numpy(), out.view(-1).numpy(), seeds.numpy().view("uint32").reshape(4, LANES)
    )
    return out


def categorical(log_weights: Tensor, generator: torch.Generator, n: int) -> Tensor:
    """``n`` indices drawn with replacement in proportion to ``exp(log_weights)``, by inversion in
    float64.
    """
    edges = torch.softmax(log_weights.double(), -1).cumsum(-1)
    u = torch.rand(n, generator=generator, device=edges.device, dtype=torch.float64) * edges[-1]
    return torch.searchsorted(edges, u, right=True).clamp_max(len(edges) - 1)


def categories(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One index for each row of logits, by inversion, ``(*, K) -> (*)``."""
    edges = torch.softmax(logits, -1).cumsum(-1)
    u = uniform((*logits.shape[:-1], 1), logits, generator) * edges[..., -1:]
    return (u >= edges[..., :-1]).sum(-1)


def systematic(log_weights: Tensor, generator: torch.Generator, n: int) -> Tensor:
    """``n`` indices in proportion to ``exp(log_weights)`` from one uniform draw: as even as the
    weights allow.
    """
    edges = torch.softmax(log_weights.double(), -1).cumsum(-1)
    shift = torch.rand((), generator=generator, device=edges.device, dtype=torch.float64)
    u = (torch.arange(n, device=edges.device) + shift) / n * edges[-1]
    return torch.searchsorted(edges, u, right=True).clamp_max(len(edges) - 1)


def permutation(n: int, generator: torch.Generator) -> Tensor:
    """A random order of ``n`` things; of very many it is computed as slices of it are read
    (:mod:`partita.runtime.seeds`).
    """
    if n > MOST_LISTED:
        return cast("Tensor", Shuffled(n, seed(generator), generator.device))
    return torch.randperm(n, generator=generator, device=generator.device)


def draw(
    distribution: Distribution, generator: torch.Generator, shape: Sequence[int] = ()
) -> Tensor:
    """A draw from any ``torch.distributions`` object; factorized Bernoulli, categorical and normal
    take the fast way.
    """
    full = (*shape, *distribution.batch_shape, *distribution.event_shape)
    if isinstance(distribution, Bernoulli):
        return bernoulli(distribution.probs.expand(full), generator)
    if isinstance(distribution, Normal):
        noise = normal(full, distribution.loc, generator)
        return noise.mul_(distribution.scale).add_(distribution.loc)
    if isinstance(distribution, Categorical):
        logits = distribution.logits
        return categories(logits.expand(*full, -1), generator).to(logits.dtype)
    with seeded(generator):
        return distribution.sample(torch.Size(shape))


def child(generator: torch.Generator) -> torch.Generator:
    """A new generator on the same device, seeded from this one."""
    return torch.Generator(device=generator.device).manual_seed(seed(generator))


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Code that insists on torch's global generator runs inside this block as a function of
    ``generator`` alone.
    """
    devices = [generator.device] if generator.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        number = seed(generator)
        # torch.manual_seed also queues a traceback for every absent device
        torch.default_generator.manual_seed(number)
        if devices:
            torch.cuda.manual_seed(number)
        yield
