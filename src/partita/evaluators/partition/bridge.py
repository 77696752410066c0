r"""Bennett's acceptance ratio: the best combination of draws from both ends of a step (Bennett 1976).

.. math:: \sum_i \frac{1}{1 + \frac{n_f}{n_r} e^{\Delta - w_i}} = \sum_j \frac{1}{1 + \frac{n_r}{n_f} e^{-\Delta - w'_j}},
          \qquad \Delta = \log (Z_1 / Z_0)          (theory/scoring.md, eq. 5.6)

Between two annealings (the sandwich) w and w' are their log weights; between neighbouring rungs of a ladder in equilibrium they
are energy differences at the draws.

Letters: C chains, T temperatures, n draws.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from scipy.optimize import brentq
from scipy.special import stdtrit
from torch import Tensor

from partita.core import capability, processes
from partita.core.checks import check_count
from partita.core.protocols import EnergyModel, Sampler
from partita.core.quantity import Quantity, Verdict, worst
from partita.diagnostics.chains import RHAT_LOOSE, ChainReport, summarise_chains
from partita.evaluators.partition.annealing import check_annealing, from_reference, resolve_kernel, temperatures_for
from partita.evaluators.partition.between import Between
from partita.evaluators.partition.modes import settle

OVERLAP_TIGHT, OVERLAP_LOOSE = 0.10, 0.02  # share of draws that neighbouring rungs have in common
RHAT_PUBLISH = 1.2
DRIFT_TIGHT, DRIFT_LOOSE = 2.0, 3.0  # standard errors between the first half of the draws and the second
SE_TIGHT, SE_LOOSE = 0.5, 1.0  # nats; the error is linear in the chains' influence, which holds only where it is small
STEPS_ON_A_RUNG = 10  # of the kernel, on the way to where the ladders begin


class Ratio(NamedTuple):
    """log(Z1 / Z0) with its standard error and the overlap of the two ends, between 0 and 1."""

    value: float
    se: float
    overlap: float


def acceptance_ratio(forward: Tensor, reverse: Tensor) -> Ratio:
    """Bennett's estimate from log weights of draws at the lower end ``(n,)`` and, with opposite sign, at the upper ``(m,)``."""
    w, v = forward.double().cpu(), reverse.double().cpu()
    shift = math.log(len(w) / len(v))

    def balance(delta: float) -> float:
        return float(torch.sigmoid(w - delta - shift).sum() - torch.sigmoid(v + delta + shift).sum())

    centre = float(torch.cat([w, -v]).median())
    reach = float(torch.cat([w, -v]).std()) + abs(shift) + 1.0
    while balance(centre - reach) < 0 or balance(centre + reach) > 0:
        reach *= 2
    delta: float = brentq(balance, centre - reach, centre + reach, xtol=1e-10)  # type: ignore[assignment]
    f, r = torch.sigmoid(w - delta - shift), torch.sigmoid(v + delta + shift)
    variance = _relative_variance(f) / len(f) + _relative_variance(r) / len(r)
    return Ratio(delta, math.sqrt(variance), float(2 * torch.minimum(f.mean(), r.mean())))


def _relative_variance(values: Tensor) -> float:
    return float(values.var(correction=0) / values.mean().square().clamp_min(1e-300))


class Seen(NamedTuple):
    """What C ladders show in n steps: energy differences of each rung to the one above and below, and what must have mixed."""

    up: Tensor  # (T - 1, C, n)
    down: Tensor  # (T - 1, C, n)
    energies: Tensor  # (T, C, n)


@dataclass(frozen=True)
class Bridge:
    """log Z from a tempered ladder in equilibrium, Bennett's ratio between each two neighbours.

    Arguments:
        temperatures: Rungs of the ladder.
        chains: Independent ladders C; their spread gives the interval.
        draws: States of each ladder that are used.
        burn_in: Steps before them.
        kernel: Moves each rung; chosen by the capability table if not given.
        level: Of the interval.
    """

    temperatures: int = 24
    chains: int = 32
    draws: int = 400
    burn_in: int = 200
    kernel: Sampler | None = None
    level: float = 0.95

    def __post_init__(self) -> None:
        check_annealing("Bridge", self.temperatures, self.chains, self.level)
        check_count("Bridge", "draws", self.draws, 4)
        check_count("Bridge", "burn_in", self.burn_in, 0)

    def __call__(self, model: EnergyModel, *, generator: torch.Generator) -> Quantity:
        q = ladder_quantity(self.look(model, generator=generator), float(model.reference().log_z), self.level)
        return q if model.anchor_rows(1) is not None else replace(q, verdict=worst(q.verdict, "loose"))

    def ratio(self, a: EnergyModel, b: EnergyModel, *, generator: torch.Generator) -> Quantity:
        """log Z_a - log Z_b of two models on one support, along the path (1 - beta) F_b + beta F_a between them."""
        return self(Between(b, a), generator=generator)

    def _starts(self, model: EnergyModel, kernel: Sampler, betas: Tensor, generator: torch.Generator) -> Tensor:
        """Where the rungs begin, ``(T, C, D)``: annealed up from the reference; every second ladder down from a training row, if known."""
        up = climb(model, kernel, betas, from_reference(model, self.chains, generator), generator)
        rows = model.anchor_rows(self.chains)
        if rows is None:
            return up
        down = climb(model, kernel, betas.flip(0), rows, generator).flip(0)
        return torch.where((torch.arange(self.chains) % 2 == 0)[:, None].to(up.device), up, down)

    @torch.no_grad()
    def look(self, model: EnergyModel, *, generator: torch.Generator) -> Seen:
        """Run the ladders and keep what they show; processes that work together share them out."""
        kernel = resolve_kernel("Bridge", self.kernel, model, generator=generator)
        betas = torch.unique(temperatures_for(model, kernel, self.temperatures, generator=generator))
        ladder = capability.load("Tempering")(kernel, tuple(betas.tolist()))
        starts = self._starts(model, kernel, betas, generator)
        shown = processes.shared_out(self.chains, lambda part, own: self._shown(model, ladder, betas, starts[:, part], own), generator)
        return Seen(*(torch.cat(parts, 1) for parts in zip(*shown, strict=True)))

    def _shown(self, model: EnergyModel, ladder: Any, betas: Tensor, starts: Tensor, generator: torch.Generator) -> Seen:
        """What the ladders of one process show."""
        state: Any = ladder.init(model, starts[-1], generator=generator)._replace(ladder=starts)
        up, down, energies = [], [], []
        for step in range(self.burn_in + self.draws):
            state, _ = ladder.step(model, state, generator=generator)
            if step >= self.burn_in:
                above, below, own = neighbour_differences(model, state.ladder, betas)
                up.append(above)
                down.append(below)
                energies.append(torch.cat([above, own[None].double()]))
        return Seen(torch.stack(up, -1), torch.stack(down, -1), torch.stack(energies, -1))


def ladder_quantity(seen: Seen, log_z0: float, level: float) -> Quantity:
    """log Z from what independent ladders show."""
    report = summarise_chains(seen.energies.movedim(0, -1))
    delta, se, overlap = ladder_ratio(seen.up, seen.down)
    drift, (rungs, chains, _) = drift_between_halves(seen.up, seen.down), seen.energies.shape
    value, half = log_z0 + delta, float(stdtrit(chains - 1, 0.5 + level / 2)) * se  # Student's, for the error comes from few ladders
    return Quantity(
        value,
        value - half,
        value + half,
        level=level,
        kind="estimate",
        method="Bennett's ratio on a tempered ladder",
        verdict=_verdict(overlap, report, drift, se),
        details={
            "overlap": overlap,
            "drift": drift,
            "rhat": report.rhat,
            "ess": report.ess_bulk,
            "chains": chains,
            "temperatures": rungs,
            "se": se,
        },
    )


def climb(model: EnergyModel, kernel: Sampler, betas: Tensor, x: Tensor, generator: torch.Generator) -> Tensor:
    """Chains that go from rung to rung, with some steps on each; where they were, ``(T, C, D)``."""
    places = []
    for beta in betas.tolist():
        x = settle(model.annealed(beta), kernel, x, generator, STEPS_ON_A_RUNG)
        places.append(x)
    return torch.stack(places)


def neighbour_differences(model: EnergyModel, ladder: Tensor, betas: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log weights from each rung to its neighbour above and below, ``(T - 1, C)`` each, and F at the top rung ``(C,)``."""
    field, b = model.field(ladder), betas.to(ladder)[:, None]
    own = model.energy_along(field, b)
    above = (own - model.energy_along(field, b.roll(-1, 0)))[:-1]
    below = (own - model.energy_along(field, b.roll(1, 0)))[1:]
    return above.double(), below.double(), own[-1]


def ladder_ratio(up: Tensor, down: Tensor) -> Ratio:
    """Sum of the neighbours' ratios; its error comes from the spread of the C independent ladders' influence on the sum."""
    steps = [acceptance_ratio(u.flatten(), d.flatten()) for u, d in zip(up, down, strict=True)]
    influence = sum(_influence(u, d, step.value) for u, d, step in zip(up, down, steps, strict=True))
    chains = up.shape[1]
    se = math.sqrt(float(torch.as_tensor(influence).square().sum()) * chains / (chains - 1))
    return Ratio(sum(step.value for step in steps), se, min(step.overlap for step in steps))


def drift_between_halves(up: Tensor, down: Tensor) -> float:
    """How far the ratio of the first half of the draws is from that of the second, in standard errors: near one in equilibrium."""
    half = up.shape[-1] // 2
    first, second = ladder_ratio(up[..., :half], down[..., :half]), ladder_ratio(up[..., half:], down[..., half:])
    return abs(second.value - first.value) / max(math.hypot(first.se, second.se), 1e-12)


def _influence(up: Tensor, down: Tensor, delta: float) -> Tensor:
    """How far each chain moves the solution of Bennett's equation, ``(C, n), (C, n) -> (C,)``."""
    f, r = torch.sigmoid(up - delta), torch.sigmoid(down + delta)
    slope = (f * (1 - f)).sum() + (r * (1 - r)).sum()
    return (f.sum(1) - r.sum(1)) / slope.clamp_min(1e-300)


def _verdict(overlap: float, report: ChainReport, drift: float, se: float) -> Verdict:
    """Neighbours must overlap, every rung must have mixed, the two halves of the run must agree, and the error must be small."""
    rhat = math.inf if math.isnan(report.rhat) else report.rhat  # nan: no chain moved
    if overlap >= OVERLAP_TIGHT and rhat < RHAT_LOOSE and drift < DRIFT_TIGHT and se < SE_TIGHT:
        return "tight"
    fair = overlap >= OVERLAP_LOOSE and rhat < RHAT_PUBLISH and drift < DRIFT_LOOSE and se < SE_LOOSE
    return "loose" if fair else "do not publish"
