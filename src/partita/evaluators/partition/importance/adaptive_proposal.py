r"""A proposal for importance sampling that learns from weighted draws (Cornuet et al. 2012).

.. math:: w_i = f(x_i) \Big/ \sum_r \tfrac{n_r}{N}\, q_r(x_i), \qquad
          q_{r+1} = \arg\min_q\; -\sum_i w_i^\gamma \log q(x_i),
          \qquad \mathrm{ESS}(w^\gamma) \ge n_{\min}
          (theory/scoring.md, eq. 5.30)

All draws of all rounds are kept, each weighed against the mixture of all proposals. Where few of
them carry the weight, gamma < 1 flattens it, so that a round moves part of the way. Components are
added where f / q is largest, and stay where draws held out are then more likely. A share of every
proposal belongs to the reference, to broad Student components and to known modes, so that weights
stay bounded.

Letters: n draws, N of all rounds, D coordinates, K components, S scales of the reference.
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from partita.core import rng
from partita.core.protocols import Reference
from partita.evaluators.partition.importance.mode_search import Modes
from partita.evaluators.partition.importance.student_mixture import (
    StudentMixture,
    around,
    factor,
    fitted,
    joined,
)

DF = 5.0  # of components; those that are tried once the shape is found
DFS = (3.0, 5.0, 10.0, 30.0)
REFERENCE, BROAD, INFLATED, KNOWN = 0.03, 0.02, 0.08, 0.04  # shares that defend a proposal
WIDER = 2.0  # over the root of D, by which inflated components are wider than the fitted ones
SCALES = (0.3, 1.0, 3.0, 10.0)  # of the reference's deviations, at which a search begins
MOST_COMPONENTS, ADDED, FAILURES = 40, 3, 3
EVEN_ENOUGH = 0.1  # nats of the second moment that no component need lower
BETTER = 0.02  # nats by which more components must lower the second moment at draws held out
MOST_THIN = 5.0  # nats of f / q that choose where components are added
EM_ROUNDS, EM_TRIAL = 10, 5
MOST_FITTED = 3000  # draws of one fit
HELD_OUT = 3  # one of so many draws
NEGLIGIBLE = 12.0  # nats below the sum at which a known mode is left out
MOST_KNOWN = 24


@dataclass(frozen=True)
class Proposal:
    """The reference at some scales, and Student components; both with exact draws and density."""

    reference: Reference
    center: Tensor  # (D,)
    scales: tuple[float, ...]
    share: float  # of the draws that the reference gets, at all scales
    students: StudentMixture | None

    def log_density(self, x: Tensor) -> Tensor:
        """log q(x), ``(n, D) -> (n,)``."""
        parts = [self._log_scaled(x, scale) for scale in self.scales]
        if self.students is not None:
            parts.append(self.students.log_density(x))
        return torch.logsumexp(torch.stack(parts) + self._log_shares(x)[:, None], 0)

    def draw(self, n: int, generator: Generator) -> Tensor:
        """``n`` draws; as even over the parts as their shares allow."""
        part = rng.systematic(self._log_shares(self.center), generator, n)
        x: list[Tensor] = []
        for s, scale in enumerate(self.scales):
            drawn = self.reference.draw(max(1, int((part == s).sum())), generator=generator)
            drawn = drawn[: int((part == s).sum())].to(self.center)
            x.append(self.center + scale * (drawn - self.center))
        rest = n - sum(map(len, x))
        if self.students is not None and rest:
            z = rng.systematic(self.students.log_weights, generator, rest)
            x.append(self.students.draw_from(z, generator))
        return torch.cat(x)[rng.permutation(n, generator)]

    def _log_shares(self, like: Tensor) -> Tensor:
        share = 1.0 if self.students is None else self.share
        shares = [share / len(self.scales)] * len(self.scales)
        return like.new_tensor([*shares, *([] if self.students is None else [1 - share])]).log()

    def _log_scaled(self, x: Tensor, scale: float) -> Tensor:
        at = (self.center + (x - self.center) / scale).to(self.reference.log_z)
        log_q = -self.reference.free_energy(at).double() - self.reference.log_z.double()
        return log_q - x.shape[-1] * math.log(scale)


class Population:
    """Weighted draws of all rounds.

    Arguments:
        like: A tensor of D coordinates whose device and dtype draws copy.
    """

    def __init__(self, like: Tensor) -> None:
        self.x, self.log_f = like.new_empty(0, like.shape[-1]), like.new_empty(0)
        self.proposals: list[Proposal] = []
        self.sizes: list[int] = []
        self.log_q = like.new_empty(0, 0)  # (N, R)

    def add(self, proposal: Proposal, x: Tensor, log_f: Tensor) -> None:
        """Take in the draws of one round."""
        seen = [known.log_density(x) for known in self.proposals]
        self.proposals.append(proposal)
        self.sizes.append(len(x))
        self.x, self.log_f = torch.cat([self.x, x]), torch.cat([self.log_f, log_f])
        new = proposal.log_density(self.x)
        older = torch.cat([self.log_q, torch.stack(seen, -1)]) if seen else new[:, None][:, :0]
        self.log_q = torch.cat([older, new[:, None]], -1)

    @property
    def log_mix(self) -> Tensor:
        """Log-density of the mixture of all proposals, ``(N,)``."""
        sizes = torch.tensor(self.sizes).to(self.log_q)
        return torch.logsumexp(self.log_q + (sizes / sizes.sum()).log(), -1)

    @property
    def log_w(self) -> Tensor:
        """Log weights against that mixture, ``(N,)``."""
        return torch.where(self.log_f == -math.inf, self.log_f, self.log_f - self.log_mix)

    @property
    def log_z(self) -> float:
        """What all draws say together; biased, for proposals depend on them."""
        return float(torch.logsumexp(self.log_w, 0)) - math.log(len(self.x))


def flattened(log_w: Tensor, least: float) -> tuple[float, Tensor]:
    """The largest gamma up to one at which the weights' effective number is ``least``, and those
    weights, of sum one.
    """

    def weights(gamma: float) -> Tensor:
        return torch.softmax(torch.where(log_w == -math.inf, log_w, gamma * log_w), 0)

    low, high = 0.0, 1.0
    if 1 / float(weights(1.0).square().sum()) >= least:
        return 1.0, weights(1.0)
    for _ in range(40):
        middle = 0.5 * (low + high)
        enough = 1 / float(weights(middle).square().sum()) >= least
        low, high = (middle, high) if enough else (low, middle)
    return low, weights(low)


def refitted(
    start: StudentMixture, x: Tensor, w: Tensor, log_mix: Tensor, generator: Generator
) -> StudentMixture:
    """The mixture fitted to draws ``(n, D)`` with weights ``(n,)`` against the density ``log_mix``
    from which they came, and grown where it is too thin.
    """
    target = w.log() + log_mix + math.log(len(w))  # log of what is fitted, normalized
    counted = (w > 1e-9 / len(w)).nonzero()[:, 0]
    counted = counted[rng.permutation(len(counted), generator)[:MOST_FITTED]]
    x, w, target = x[counted], _unit(w[counted]), target[counted]
    held = rng.uniform((len(x),), x, generator) * HELD_OUT < 1
    if min(_effective(w[held]), _effective(w[~held])) < 10:
        held = torch.zeros_like(held)
    valid = held if bool(held.any()) else ~held
    train = (x[~held], _unit(w[~held]))

    def lost(mixture: StudentMixture) -> float:
        return _lost(mixture, x[valid], _unit(w[valid]), target[valid])

    mixture = fitted(start.with_df(DF), *train, EM_TRIAL)
    mixture = min((mixture.with_df(df) for df in DFS), key=lost)
    loss, failures = lost(mixture), 0
    while loss > EVEN_ENOUGH and failures < FAILURES and mixture.size < MOST_COMPONENTS:
        grown = _grown(mixture, *train, target[~held], generator)
        new = lost(grown)
        if new < loss - BETTER:
            mixture, loss, failures = grown, new, 0
        else:
            failures += 1
    best = min((mixture.with_df(df) for df in DFS), key=lost)
    return fitted(best, x, w, EM_ROUNDS)


def _grown(
    mixture: StudentMixture, x: Tensor, w: Tensor, target: Tensor, generator: Generator
) -> StudentMixture:
    """The mixture with components more at draws that add most to the variance of weights, after
    EM.
    """
    parts, _ = mixture.distances(x)
    thin = w.log() + (target - torch.logsumexp(parts, -1)).clamp_max(MOST_THIN)
    chosen = rng.categorical(thin, generator, ADDED)
    parent = parts[chosen].argmax(-1)
    extra = StudentMixture(
        mixture.log_weights.new_full((ADDED,), -math.log(ADDED)),
        x[chosen],
        0.5 * mixture.lower[parent],
        mixture.df[parent],
    )
    share = ADDED / (mixture.size + ADDED)
    return fitted(joined([mixture, extra], [1 - share, share]), x, w, EM_TRIAL)


def _lost(mixture: StudentMixture, x: Tensor, w: Tensor, target: Tensor) -> float:
    """log of the second moment of the weights that a proposal of this mixture, defended by wider
    components, would have; less is better.
    """
    log_q = torch.logaddexp(
        math.log(1 - INFLATED) + mixture.log_density(x),
        math.log(INFLATED) + inflated(mixture).log_density(x),
    )
    return float(torch.logsumexp(w.log() + target - log_q, 0))


def _effective(w: Tensor) -> float:
    return float(w.sum().square() / w.square().sum().clamp_min(1e-300)) if len(w) else 0.0


def _unit(w: Tensor) -> Tensor:
    return w / w.sum()


def defended(
    mixture: StudentMixture, modes: Modes | None, log_z: float, base: Proposal
) -> Proposal:
    """A proposal around the mixture, with shares that keep weights bounded."""
    weights = mixture.log_weights.exp()
    mean = weights @ mixture.mean
    away = mixture.mean - mean
    covariance = mixture.lower @ mixture.lower.mT
    total = (weights[:, None, None] * (covariance + away[:, :, None] * away[:, None])).sum(0)
    broad = StudentMixture(
        mixture.log_weights[:1] * 0, mean[None], 2 * factor(total)[None], mixture.df[:1] * 0 + 1
    )
    parts, shares = [mixture, broad, inflated(mixture)], [1.0, BROAD, INFLATED]
    known = None if modes is None else of_modes(modes, log_z)
    if known is not None:
        parts, shares = [*parts, known], [*shares, KNOWN]
    shares[0] = 1 - sum(shares[1:])
    return Proposal(base.reference, base.center, base.scales, REFERENCE, joined(parts, shares))


def inflated(mixture: StudentMixture) -> StudentMixture:
    """The same components, wider and with heavier tails."""
    df = torch.full_like(mixture.df, 3.0)
    wider = 1 + WIDER / math.sqrt(mixture.mean.shape[1])
    return StudentMixture(mixture.log_weights, mixture.mean, wider * mixture.lower, df)


def of_everything(x: Tensor, w: Tensor) -> StudentMixture:
    """One component with the mean and covariance of weighted draws."""
    mean = w @ x
    away = x - mean
    return around(mean[None], ((w[:, None] * away).mT @ away)[None], DF)


def of_modes(modes: Modes, log_z: float) -> StudentMixture | None:
    """Components at known modes that may hold something."""
    mass = modes.log_mass
    kept = (mass > max(log_z, float(mass.max())) - NEGLIGIBLE).nonzero()[:, 0]
    if not len(kept):
        return None
    kept = kept[mass[kept].argsort(descending=True)[:MOST_KNOWN]]
    return around(modes.x[kept], modes.covariance[kept], DF)
