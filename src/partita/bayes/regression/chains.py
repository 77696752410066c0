r"""Hamiltonian chains for a posterior with a known mode, in a metric that follows their own
covariance while they warm up.

.. math:: \dot w = B^\top p, \qquad \dot p = B\, \nabla \log p(w \mid \mathcal D)
          (theory/bayes.md, eq. 8.21)

In coordinates where the posterior is round a path of length T carries a correlation of cos T:
lengths spread evenly over [0, pi] leave none on average, which is what the number of leapfrog steps
is chosen by.

Letters: P weights, B'B metric (the covariance of w), C chains, e step size, T length of a path.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from partita.core import rng
from partita.diagnostics.chains import ChainReport, summarize_chains

# (C, P) -> (C,), (C, P): log posterior and its gradient
Target = Callable[[Tensor], tuple[Tensor, Tensor]]

STARTS, CHAINS = 4, 32  # chains, eight from each start
ROUNDS, WARM_UP = 5, 60  # the metric follows the chains for five rounds of sixty steps
TARGET, RATE = 0.8, 0.3  # acceptance aimed at, and how fast the step follows
FEWEST, MOST = 3, 30  # leapfrog steps of a path
LONGEST = 16  # times the draws requested


class _State(NamedTuple):
    """Where the chains are, and the log posterior and its gradient there."""

    w: Tensor  # (C, P)
    height: Tensor  # (C,)
    slope: Tensor  # (C, P)


@dataclass(frozen=True)
class HamiltonianChains:
    """States of all chains after they warmed up, ``(R, P)``, and what they say of themselves."""

    w: Tensor
    report: ChainReport
    accepted: float


def hamiltonian(
    target: Target, mode: Tensor, covariance: Tensor, draws: int, *, generator: torch.Generator
) -> HamiltonianChains:
    """At least ``draws`` states of 32 chains; they go on, twice as long each time, until their
    verdict is tight.

    Arguments:
        target: Log posterior and its gradient.
        mode: Where the chains begin, spread by ``covariance``.
        covariance: A first guess at the posterior's.
        draws: Fewest states to return.
        generator: Source of the momenta.
    """
    B, size, steps = _root(covariance), len(mode) ** -0.25, -(-draws // CHAINS)
    starts = mode + rng.normal((STARTS, len(mode)), mode, generator) @ B
    w = starts.repeat_interleave(CHAINS // STARTS, 0)
    at = _State(w, *target(w))
    for _ in range(ROUNDS):
        trace, size, _, at = _run(target, at, B, size, WARM_UP, True, generator)
        B = _root(_shrunk_covariance(trace[WARM_UP // 2 :, :, :-1].flatten(0, 1), B))
    trace, size, _, at = _run(target, at, B, size, WARM_UP, True, generator)
    kept = trace[:0]
    while True:
        more, _, accepted, at = _run(target, at, B, size, max(steps, len(kept)), False, generator)
        kept = torch.cat([kept, more])
        found = HamiltonianChains(
            kept[..., :-1].flatten(0, 1), summarize_chains(kept.movedim(0, 1)), accepted
        )
        if found.report.verdict == "tight" or len(kept) >= LONGEST * steps:
            return found


def _run(
    target: Target,
    at: _State,
    B: Tensor,
    size: float,
    steps: int,
    adapt: bool,
    generator: torch.Generator,
) -> tuple[Tensor, float, float, _State]:
    """``steps`` of all chains with their heights ``(steps, C, P + 1)``, the last step size, the
    share accepted, and where they are.
    """
    trace, accepted = [], 0.0
    for _ in range(steps):
        at, moved = _step(target, at, B, size, generator)
        trace.append(torch.cat([at.w, at.height[:, None]], -1))
        accepted += moved / steps
        size *= math.exp(RATE * (moved - TARGET)) if adapt else 1.0
    return torch.stack(trace), size, accepted, at


def _step(
    target: Target, at: _State, B: Tensor, size: float, generator: torch.Generator
) -> tuple[_State, float]:
    """One proposal for every chain by leapfrog steps in the metric B'B; returns the share that
    moved.
    """
    leaps = min(MOST, max(FEWEST, math.ceil(0.5 * math.pi / size)))
    # small ones too: the curvature is not the same everywhere
    e = 2 * size * rng.uniform((len(at.w), 1), at.w, generator)
    momentum = rng.normal(at.w.shape, at.w, generator)
    w, height, slope = at
    p = momentum + 0.5 * e * slope @ B.mT
    for leap in range(leaps):
        w = w + e * p @ B
        height, slope = target(w)
        p = p + (e if leap < leaps - 1 else 0.5 * e) * slope @ B.mT
    gain = height - at.height + 0.5 * (momentum.square() - p.square()).sum(-1)
    moved = torch.log(rng.uniform(gain.shape, gain, generator)) < gain
    after = _State(
        torch.where(moved[:, None], w, at.w),
        torch.where(moved, height, at.height),
        torch.where(moved[:, None], slope, at.slope),
    )
    return after, float(moved.double().mean())


def _shrunk_covariance(w: Tensor, B: Tensor) -> Tensor:
    """The covariance of states, drawn to the metric in use as if that were known from as many
    states as there are weights.
    """
    n, P = w.shape
    return (n * torch.cov(w.mT).reshape(P, P) + P * B.mT @ B) / (n + P)


def _root(covariance: Tensor) -> Tensor:
    """B with B'B = covariance, so that rows of standard normals times B have it."""
    return torch.linalg.cholesky(covariance).mT
