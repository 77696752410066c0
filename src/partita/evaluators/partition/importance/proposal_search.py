"""The way to a proposal with few evaluations: tempered rounds, modes, rounds at the density
itself, and a search for places where it is still too thin.

Letters: n draws, D coordinates, K components.
"""

import math
from dataclasses import replace

import torch
from torch import Generator, Tensor

from partita.core import rng
from partita.evaluators.partition.importance.adaptive_proposal import (
    DF,
    SCALES,
    Population,
    Proposal,
    defended,
    flattened,
    of_everything,
    refitted,
)
from partita.evaluators.partition.importance.ascent import climbed
from partita.evaluators.partition.importance.counted_density import CountedDensity
from partita.evaluators.partition.importance.mode_search import (
    Modes,
    bounded,
    modes_near,
    walked,
)
from partita.evaluators.partition.importance.student_mixture import StudentMixture, around, joined

# draws of the first round for each coordinate, at least and at most; growth of a round
EACH, LEAST_EACH, MOST_EACH, GROWTH = 40, 500, 4000, 1.25
FIRST, BLIND = 3, 2  # rounds that the first draws count for; how much larger without slopes
PILOTS, ROUNDS, AFTERWARDS = 20, 20, 2  # tempered rounds; rounds; rounds after a thin place
TEMPERED, EFFECTIVE = 0.25, 4.0  # effective draws: of all, while tempered; for each coordinate
# ascents of each kind, in deviations of the reference; of these in all at least
STARTS, CLOSER, LEAST_STARTS = 64, (0.5, 0.2), 120
HEAVIEST = 40  # draws from which ascents begin
THIN, THIN_STEPS, SOUGHT = 8, 25, 6  # ascents to thin places, their steps, how often they are run
KERNELS, KERNEL_SHARE, KERNEL_SCALE = 48, 0.4, 0.25  # while rounds are tempered
PROBES, PROBE, PROBE_DF = 60, 0.5, 3.0  # draws about a thin place, in deviations of the mass
EVEN = 0.3  # share of the weight of modes that is dealt out evenly
COVERED = 1.0  # nats by which the mixture may be thin at a mode that needs no component
LIGHT = 15.0  # nats below the heaviest at which modes are no start of a fit
NEAR = 4  # proposals of the last rounds among which the best is chosen
STALE, GAIN = 4, 0.9  # rounds without gain, and what counts as one
PILOT_SHARE, MODE_SHARE, SEARCH_SHARE = 0.15, 0.35, 0.5  # of the evaluations, at most


class Search:
    """A proposal and what it has learned so far.

    Arguments:
        density: What is to be covered.
        rows: States that are known to be likely, if any.
        pointed: States of modes that others found, if any.
        budget: Evaluations of the whole run.
        generator: Source of randomness.
    """

    def __init__(
        self,
        density: CountedDensity,
        rows: Tensor | None,
        pointed: Tensor | None,
        budget: int,
        generator: Generator,
    ) -> None:
        self.density, self.generator = density, generator
        self.rows, self.pointed = rows, pointed
        self.budget, self.lone, self.gamma = budget, 0, 0.0
        self.size = max(LEAST_EACH, min(MOST_EACH // 2, EACH * density.width))
        self.size *= 1 if density.differentiable else BLIND
        self.size = max(50, min(self.size, budget // 20))
        reference = density.model.reference()
        drawn = reference.draw(256, generator=generator).double()
        self.scale = drawn.std(0).clamp_min(1e-12)
        self.base = Proposal(reference, drawn.mean(0), SCALES, 1.0, None)
        self.proposal, self.population = self.base, Population(drawn)
        self.modes: Modes | None = None
        self.mixture: StudentMixture | None = None

    def run(self, needed: float) -> None:
        """Find a proposal; ``needed`` draws make the number precise enough where weights vary as
        much as their mean.
        """
        self._round(FIRST * self.size)
        for _ in range(PILOTS):
            if self.density.count > PILOT_SHARE * self.budget or self._fit(TEMPERED) == 1.0:
                break
            self._round(self.size)
        if self.density.differentiable:
            starts, most = self._starts(), round(MODE_SHARE * self.budget)
            least = len(starts) - 3 * STARTS + LEAST_STARTS
            self.modes, self.lone = modes_near(self.density, starts, self.scale, least, most)
        self._learn(ROUNDS, needed)
        for _ in range(SOUGHT):
            if self._spent() or not self._thin_places(needed):
                break
            self._learn(AFTERWARDS, needed)
        proposals = [self.proposal, *self.population.proposals[-NEAR:]]
        self.proposal = min(proposals, key=self._second_moment)

    def ascents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Places near ``x`` ``(n, D)`` where f / q is largest, and log f / q there."""
        proposal = self.proposal

        def value(at: Tensor) -> Tensor:
            return self.density(at) - proposal.log_density(at)

        def climb(at: Tensor) -> tuple[Tensor, Tensor]:
            log_f, slope = self.density.slope(at)
            leaf = at.detach().requires_grad_()
            with torch.enable_grad():
                log_q = proposal.log_density(leaf)
                (own,) = torch.autograd.grad(log_q.sum(), leaf)
            return log_f - log_q.detach(), slope - own

        spread = self._spread()
        if not self.density.differentiable:
            return walked(value, x, spread, self.generator)
        scale = spread.square().sum(-1).sqrt()
        return climbed(climb, x, scale, THIN_STEPS)

    def excess(self, x: Tensor, most: float) -> float:
        """log of the mass about places ``(n, D)`` where log f / q is larger than ``most``, with two
        standard errors, by draws about them.
        """
        spread = self._spread().square().sum(-1).sqrt()
        bends = [self.density.curvature(at) if self.density.differentiable else None for at in x]
        shapes = torch.stack([bounded(bend, PROBE * spread) for bend in bends])
        probe = around(x, shapes, PROBE_DF)
        at = probe.draw_from(torch.arange(len(x)).repeat(PROBES), self.generator)
        log_f = self.density(at)
        beyond = log_f - self.proposal.log_density(at) > most
        log_w = torch.where(beyond, log_f - probe.log_density(at), -math.inf)
        if not bool(beyond.any()):
            return -math.inf
        mean = float(torch.logsumexp(log_w, 0)) - math.log(len(at))
        w = torch.softmax(log_w, 0)
        return mean + math.log1p(2 * float(w.square().sum().sqrt()))

    def heaviest(self, n: int) -> Tensor:
        """Draws of all rounds whose weight under the proposal is largest, ``(n, D)``."""
        alive = self.population.log_f > -math.inf
        x, log_f = self.population.x[alive], self.population.log_f[alive]
        lack = log_f - self.proposal.log_density(x)
        return x[lack.topk(min(n, len(x))).indices]

    def _starts(self) -> Tensor:
        """States from which ascents begin: components, the heaviest draws, and the reference."""
        c, reference = self.base.center, self.base.reference
        log_w = self.population.log_w
        heavy = self.population.x[log_w.topk(min(HEAVIEST, len(log_w))).indices]
        kinds = [reference.draw(STARTS, generator=self.generator).double()]
        for share in CLOSER:
            drawn = reference.draw(STARTS, generator=self.generator).double()
            kinds.append(c + share * (drawn - c))
        mixed = torch.stack(kinds, 1).flatten(0, 1)
        first = [] if self.mixture is None else [self.mixture.mean]
        rows = [] if self.rows is None else [self.rows[: STARTS // 4]]
        rows += [] if self.pointed is None else [self.pointed[:STARTS].double()]
        _, w = flattened(log_w, HEAVIEST)
        seen = self.population.x[rng.systematic(w.log(), self.generator, HEAVIEST)]
        return torch.cat([*rows, *first, heavy[::3], seen, mixed])

    def _learn(self, rounds: int, needed: float) -> None:
        """Rounds of fits and draws, while they pay."""
        best, since = math.inf, 0
        if self.modes is not None or self.rows is not None:
            w = torch.softmax(self.population.log_w, 0)
            self.proposal = defended(self._start(w), self.modes, -math.inf, self._narrow())
            self._round(self.size)
        for _ in range(rounds):
            self.gamma = self._fit(0.0)
            share = self._round(self.size)
            need = needed * (1 / max(share, 1e-9) - 1)
            since = 0 if need < GAIN * best else since + 1
            best = min(best, need)
            paid = since >= STALE or need < len(self.population.x)
            if self._spent() or (self.gamma == 1.0 and paid):
                break
            self.size = min(round(GROWTH * self.size), MOST_EACH)
        self.gamma = self._fit(0.0)

    def _spent(self) -> bool:
        return self.density.count + self.size > SEARCH_SHARE * self.budget

    def _fit(self, share: float) -> float:
        """Fit the mixture to all draws, flattened so far that a share of them carries the weight;
        gives gamma.
        """
        population, D = self.population, self.density.width
        least = max(EFFECTIVE * D, 0.1 * self.size, 40, share * len(population.x))
        gamma, w = flattened(population.log_w, least)
        start = self._start(w)
        self.mixture = refitted(start, population.x, w, population.log_mix, self.generator)
        base = self._narrow() if gamma == 1.0 else self.base
        mixture = self.mixture
        if share > 0:
            mixture = joined([mixture, self._kernels(w)], [1 - KERNEL_SHARE, KERNEL_SHARE])
        self.proposal = defended(mixture, self.modes, population.log_z, base)
        return gamma

    def _kernels(self, w: Tensor) -> StudentMixture:
        """A component at each of some draws: a small mode that a fit passes by keeps some."""
        x = self.population.x
        chosen = x[rng.systematic(w.log(), self.generator, KERNELS)]
        lower = KERNEL_SCALE * of_everything(x, w).lower
        return around(chosen, (lower @ lower.mT).expand(KERNELS, -1, -1), DF)

    def _narrow(self) -> Proposal:
        return replace(self.base, scales=(1.0,))

    def _round(self, n: int) -> float:
        """Draw from the proposal and keep it; gives the share of the draws that carries the
        weight.
        """
        x = self.proposal.draw(n, self.generator)
        log_f = self.density(x)
        self.population.add(self.proposal, x, log_f)
        w = torch.softmax(log_f - self.population.log_q[-n:, -1], 0)
        return 1 / (n * float(w.square().sum())) if bool((log_f > -math.inf).any()) else 0.0

    def _start(self, w: Tensor) -> StudentMixture:
        """What a fit begins with: what was fitted before, modes, rows, and one component for
        everything.
        """
        parts = [] if self.mixture is None else [self.mixture]
        if self.modes is not None:
            parts += self._modes_to_add()
        if self.rows is not None and self.mixture is None:
            even = torch.full_like(self.rows[:, 0], 1 / len(self.rows))
            parts.append(of_everything(self.rows, even))
        if self.mixture is None or self.gamma < 1.0:
            parts.append(of_everything(self.population.x, w))
        return joined(parts, [1.0] * len(parts))

    def _modes_to_add(self) -> list[StudentMixture]:
        """Components at modes that may count and that the mixture does not cover."""
        assert self.modes is not None
        mass = self.modes.log_mass
        kept, share = mass > mass.max() - LIGHT, torch.softmax(mass, 0)
        if self.mixture is not None:
            covered = self.mixture.log_density(self.modes.x) + self.population.log_z
            kept = kept & (self.modes.log_f - covered > COVERED)
        if not bool(kept.any()):
            return []
        known = around(self.modes.x, self.modes.covariance, DF)
        even = torch.full_like(share, 1 / len(share))
        return [replace(known, log_weights=torch.lerp(share, even, EVEN).log()).of(kept)]

    def _spread(self) -> Tensor:
        """A factor of the covariance of the mass as far as it is known, ``(D, D)``."""
        _, w = flattened(self.population.log_w, EFFECTIVE * self.density.width)
        return of_everything(self.population.x, w).lower[0]

    def _thin_places(self, needed: float) -> bool:
        """Look for places where the proposal is too thin; what is found becomes a mode."""
        log_z = self.population.log_z
        x, top = self.ascents(self.heaviest(THIN))
        matters = math.log(needed) - math.log(3.0) + math.log(0.01)
        thin = (top - log_z > max(matters, 2.0)).nonzero()[:, 0].tolist()
        for i in thin:
            log_f = self.density(x[i][None])
            if self.modes is not None and self.modes.like(x[i], log_f[0]) is not None:
                continue
            bend = self.density.curvature(x[i]) if self.density.differentiable else None
            spread = self._spread().square().sum(-1).sqrt()
            found = Modes(x[i][None], log_f, bounded(bend, 0.5 * spread)[None])
            self.modes = found if self.modes is None else self.modes.and_also(found)
        return bool(thin)

    def _second_moment(self, proposal: Proposal) -> float:
        """log of the weights' second moment under a proposal, by all draws."""
        alive = self.population.log_f > -math.inf
        log_w, x = self.population.log_w[alive], self.population.x[alive]
        ratio = self.population.log_f[alive] - proposal.log_density(x)
        return float(torch.logsumexp(torch.log_softmax(log_w, 0) + ratio, 0))
