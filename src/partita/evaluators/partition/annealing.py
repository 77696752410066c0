r"""Annealing between the reference and the model: the engine behind AIS, reverse AIS and the
sandwich.

.. math:: \log w = \sum_t F_{\beta_t}(x_t) - F_{\beta_{t+1}}(x_t), \qquad x_{t+1} \sim
          T_{\beta_{t+1}}(\cdot \mid x_t)
          (theory/scoring.md, eq. 5.2)

Each step computes the model's field at x once; the weight and the next conditional both come from
it.

Letters: C chains, T temperatures, D visible.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.arguments import (
    check_count,
    check_flag,
    check_generator,
    check_level,
    check_parameters,
)
from partita.core.protocols import EnergyModel, Sampler, check_kernel
from partita.core.quantity import Quantity
from partita.diagnostics.weights import summarize_weights
from partita.errors import Diverged, Unsupported
from partita.runtime import processes

PILOT_TEMPERATURES = 200
PILOT_CHAINS = 64
# of them at most, and the deviation of one increment after which there is another
PILOTS, TOO_WIDE = 4, 3.0
LEAST_TEMPERATURES, MOST_TEMPERATURES = 200, 40_000
TARGET_VARIANCE = 0.1  # of the log weights, if every step mixed perfectly
EXTINCT = -700.0  # log of the weight of a start without descendants, below the heaviest chain
UNIFORM_SHARE = 0.2  # of the schedule, so that no stretch is left without temperatures


class Annealing(NamedTuple):
    """Where the chains ended and what they weigh."""

    x: Tensor  # (C, D)
    log_w: Tensor  # (C,), float64
    spread: Tensor  # (T - 1,), deviation over chains of each increment
    betas: Tensor  # (T,)
    # (C,), the start from which each chain descends; its own number unless chains were resampled on
    # the way
    founders: Tensor
    lineage: Tensor  # (C,), log weight of each chain's whole way, as if none were resampled

    @property
    def by_founder(self) -> Tensor:
        """log of the weight of all that descend from each start, ``(C,)``: independent, as the
        starts are.
        """
        top = self.log_w.max()
        total = torch.zeros_like(self.log_w).index_add(0, self.founders, (self.log_w - top).exp())
        return top + total.log().clamp_min(EXTINCT)


class Path(NamedTuple):
    """A way from a distribution that is known to the model, with a short run along it."""

    begins: str
    model: EnergyModel
    kernel: Sampler
    pilot: Annealing

    @property
    def bound(self) -> float:
        """What the pilot found, a lower bound on log Z but for chance."""
        return float(self.model.reference().log_z) + summarize_weights(self.pilot.log_w).log_mean

    @property
    def length(self) -> float:
        """Thermodynamic length."""
        return float(self.pilot.spread.sum())


@dataclass(frozen=True)
class AnnealingEvaluator(ABC):
    """What every evaluator by annealing takes.

    Arguments:
        temperatures: Number of inverse temperatures, 0 and 1 included; as many as a pilot finds
            needed if not given.
        chains: Independent annealings C.
        kernel: Leaves each temperature invariant; chosen by the capability table if not given.
        adaptive: Place temperatures by a pilot run; evenly if False.
        level: Of the interval.
    """

    temperatures: int | None = None
    chains: int = 128
    kernel: Sampler | None = None
    adaptive: bool = True
    level: float = 0.95

    def __post_init__(self) -> None:
        check_annealing(type(self).__name__, self.temperatures, self.chains, self.level)
        check_flag(type(self).__name__, "adaptive", self.adaptive)

    @abstractmethod
    def __call__(self, model: EnergyModel, *, generator: torch.Generator) -> Quantity:
        """log Z."""

    def _prepare(self, model: EnergyModel, generator: torch.Generator) -> tuple[Sampler, Tensor]:
        """The kernel, and the temperatures from 0 to 1."""
        kernel = resolve_kernel(type(self).__name__, self.kernel, model, generator=generator)
        return kernel, temperatures_for(
            model, kernel, self.temperatures, adaptive=self.adaptive, generator=generator
        )

    def _climb(
        self, model: EnergyModel, kernel: Sampler, betas: Tensor, generator: torch.Generator
    ) -> Annealing:
        """From exact draws of the reference to the model."""
        return anneal(
            model, kernel, betas, from_reference(model, self.chains, generator), generator=generator
        )


def anneal(
    model: EnergyModel,
    kernel: Sampler,
    betas: Tensor,
    x: Tensor,
    *,
    resample_below: float = 0.0,
    generator: torch.Generator,
) -> Annealing:
    """Move ``x`` along ``betas`` (rising or falling), weighing as it goes; processes that work
    together share out the chains.
    """

    def here(part: slice, own: torch.Generator) -> Annealing:
        run = anneal_here(
            model, kernel, betas, x[part], resample_below=resample_below, generator=own
        )
        return run._replace(founders=run.founders + part.start)

    parts = processes.shared_out(len(x), here, generator)
    if len(parts) == 1:
        return parts[0]
    # a chain alone has none
    spread = torch.stack([part.spread.square() for part in parts]).nanmean(0).sqrt()
    x, log_w, founders, lineage = (
        torch.cat([getattr(part, name) for part in parts])
        for name in ("x", "log_w", "founders", "lineage")
    )
    return Annealing(x, log_w, spread, betas, founders, lineage)


@torch.no_grad()
def anneal_here(
    model: EnergyModel,
    kernel: Sampler,
    betas: Tensor,
    x: Tensor,
    *,
    resample_below: float = 0.0,
    generator: torch.Generator,
) -> Annealing:
    """The chains that fall to this process; or all, where each has a reference of its own.

    Where less than the share ``resample_below`` of them carries the weight, they are resampled by
    it and go on with equal weights.
    """
    state: Any = kernel.init(model, x, generator=generator)
    log_w = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    lineage = log_w
    founders = torch.arange(len(x), device=x.device)
    spreads = []
    for pair in torch.stack([betas[:-1], betas[1:]], 1).to(x):
        x, field = state.x, model.field(state.x)
        here, there = model.energy_along(field, pair[:, None]).double()
        spreads.append((here - there).std())
        log_w = log_w + here - there
        lineage = lineage + here - there
        if torch.softmax(log_w, 0).square().sum() * resample_below * len(x) > 1:
            chosen = rng.systematic(log_w, generator, len(x))
            log_w = (torch.logsumexp(log_w, 0) - math.log(len(x))).expand_as(log_w)
            x, founders, lineage = x[chosen], founders[chosen], lineage[chosen]
            field = model.field(x)
        target = model.annealed(pair[1])
        state, _ = kernel.step(
            target,
            kernel.place(target, state, x, field, generator=generator),
            generator=generator,
        )
    if not torch.isfinite(log_w).all():
        raise Diverged(
            f"annealing {model.title()}: a log weight is not finite; the parameters are too large "
            "or not numbers."
        )
    return Annealing(state.x, log_w, torch.stack(spreads), betas, founders, lineage)


def from_reference(model: EnergyModel, chains: int, generator: torch.Generator) -> Tensor:
    """Exact draws from the reference in the model's dtype."""
    return model.reference().draw(chains, generator=generator)


def resample(x: Tensor, log_w: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """``n`` rows drawn in proportion to their weights."""
    return x[rng.systematic(log_w, generator, n)]


def temperatures_for(
    model: EnergyModel,
    kernel: Sampler,
    temperatures: int | None,
    *,
    adaptive: bool = True,
    generator: torch.Generator,
) -> Tensor:
    """Temperatures at equal thermodynamic length, dense where the energy fluctuates, as many as
    given or needed.
    """
    if not adaptive:
        return even_temperatures(temperatures)
    return placed_by(pilot_run(model, kernel, generator), temperatures)


def even_temperatures(temperatures: int | None) -> Tensor:
    """Evenly spaced from 0 to 1."""
    return torch.linspace(0, 1, temperatures or LEAST_TEMPERATURES, dtype=torch.float64)


def pilot_run(model: EnergyModel, kernel: Sampler, generator: torch.Generator) -> Annealing:
    """A short annealing, which shows where the energy fluctuates and what it reaches; again with
    finer steps where one was too wide.
    """
    run = None
    for _ in range(PILOTS):
        betas = (
            even_temperatures(PILOT_TEMPERATURES)
            if run is None
            else placed_by(run, PILOT_TEMPERATURES)
        )
        run = anneal(
            model,
            kernel,
            betas,
            from_reference(model, PILOT_CHAINS, generator),
            generator=generator,
        )
        if float(run.spread.max()) < TOO_WIDE:
            break
    assert run is not None
    return run


def placed_by(
    pilot: Annealing, temperatures: int | None, variance: float = TARGET_VARIANCE
) -> Tensor:
    """Temperatures by a pilot run.

    The deviations of its increments sum to the length Lambda, and T perfect steps would leave the
    log weights a variance of Lambda^2 / T. Its draws only place temperatures and are thrown away,
    so the estimate stays unbiased.
    """
    spread, betas = pilot.spread.cpu(), pilot.betas.cpu()
    if temperatures is None:
        temperatures = int(
            min(MOST_TEMPERATURES, max(LEAST_TEMPERATURES, float(spread.sum()) ** 2 / variance))
        )
    density = (
        spread / spread.sum().clamp_min(1e-300) * (1 - UNIFORM_SHARE) + UNIFORM_SHARE * betas.diff()
    )
    length = torch.cat([torch.zeros(1, dtype=torch.float64), density.cumsum(0)])
    return _interpolate(
        torch.linspace(0, 1, temperatures, dtype=torch.float64), length / length[-1], betas
    )


def resolve_kernel(
    owner: str, kernel: Sampler | None, model: EnergyModel, *, generator: torch.Generator
) -> Sampler:
    """The kernel given, or the default of the capability table, with its step sizes tuned along the
    path, and to rows that are known, and then fixed.

    A kernel that went on adapting would not leave its targets invariant; a ladder, or a kernel that
    is biased, cannot be annealed.
    """
    capability.require(owner, model)
    check_generator(owner, generator)
    check_parameters(
        owner, model.title(), model.named_parameters(), "Fit it again with a lower learning_rate."
    )
    chosen: Sampler = capability.default("sampler", model) if kernel is None else kernel
    check_kernel(owner, "kernel", chosen)
    if chosen.kernel_on != "x":
        raise Unsupported(
            f"{owner} needs a kernel on x, but {type(chosen).__name__} moves a whole ladder. Use "
            "its inner kernel instead."
        )
    if not chosen.invariant:
        name = type(chosen).__name__
        raise Unsupported(
            f"{owner} needs a kernel that leaves its target invariant, and {name} does not. Use "
            "MALA() instead."
        )
    if not chosen.independent:
        raise Unsupported(
            f"{owner} needs chains that never see one another, for each has a weight of its own, "
            f"and those of {type(chosen).__name__} do. Use RandomWalk() instead."
        )
    kernel = chosen.tuned(model, generator=generator)
    rows = model.anchor_rows(PILOT_CHAINS)
    return kernel if rows is None or kernel is chosen else kernel.suited_to(model, rows)


def check_annealing(owner: str, temperatures: int | None, chains: int, level: float) -> None:
    """The settings that every annealing evaluator shares."""
    if temperatures is not None:
        check_count(owner, "temperatures", temperatures, 2)
    check_count(owner, "chains", chains, 2)
    check_level(owner, level)


def _interpolate(at: Tensor, x: Tensor, y: Tensor) -> Tensor:
    index = torch.searchsorted(x, at).clamp(1, len(x) - 1)
    x0, x1, y0, y1 = x[index - 1], x[index], y[index - 1], y[index]
    values = y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    values[0], values[-1] = 0.0, 1.0
    return values.clamp(0, 1)
