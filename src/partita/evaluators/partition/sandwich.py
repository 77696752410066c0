r"""log Z between forward and reverse annealing, with Bennett's ratio of the two as the value.

.. math:: \log \hat Z_{\mathrm{AIS}} \lesssim \log Z \lesssim \log \hat Z_{\mathrm{reverse}}
          (theory/scoring.md, eq. 5.7)

The interval reaches from the lower end of the forward side to the upper end of the reverse side, so
a gap between them, the mark of annealing that was too fast, widens it. Chains begun at rows, at
modes that were sought and at the ends of other paths are witnesses: where one of them is heavier
than all that the forward side saw, the interval reaches to it.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.core import capability
from partita.core.protocols import EnergyModel, Sampler
from partita.core.quantity import VERDICTS, Quantity, half_width, worst
from partita.diagnostics.weights import (
    ADDED_TIGHT,
    summarize_weights,
    unseen,
    verdict_on_sandwich,
    verdict_on_unseen,
)
from partita.evaluators.partition.annealing import (
    PILOT_TEMPERATURES,
    Annealing,
    Path,
    anneal,
    even_temperatures,
    pilot_run,
    placed_by,
    resample,
    resolve_kernel,
    temperatures_for,
)
from partita.evaluators.partition.bridge import acceptance_ratio
from partita.evaluators.partition.modes import (
    local_mass,
    mixture_at,
    settle,
    sought,
    weighed,
)
from partita.evaluators.partition.replicas import agree, confirmed, ladders_along, over_both
from partita.evaluators.partition.reverse_ais import FromBothEnds
from partita.evaluators.partition.rounding import prepared, reach_to_rounding
from partita.evaluators.partition.tails import reach_to_tails
from partita.evaluators.partition.truncation import CutReference
from partita.evaluators.partition.witnesses import HARDER, without_rows
from partita.models.energy.guided import Guided
from partita.models.energy.trajectory import Trajectory

COMPONENTS = 32  # of the mixture, doubled with every round
ROUNDS = 3  # of mixtures, each of which knows what the one before had missed
LONGEST = 40.0  # thermodynamic length up to which a later mixture's path is taken
WITNESSES = 96  # that go down all temperatures
LOCAL_TEMPERATURES = 1000  # from a state's region to a product at it
# of the log weights that temperatures aim at; ladders are heard where it is too much
VARIANCE = 0.2
# nats by which the states that one path misses are heavier than those that another does
OUT_OF_REACH = 20.0
# nats by which an unbiased estimate of Z is too high with a probability of at most 5 %
CHANCE = 3.0
TRAINED = "the weights it had"


class Sides(NamedTuple):
    """Log weights along one path, all in the forward sense and with the log Z that it begins
    with.
    """

    forward: Tensor  # (C,)
    reverse: Tensor  # (C,), from ends of the forward side
    witnesses: Tensor  # (m,)
    betas: Tensor

    @property
    def beyond(self) -> Tensor:
        """Which witnesses are heavier than all of the forward side."""
        return self.witnesses > self.forward.max()


@dataclass(frozen=True)
class Sandwich(FromBothEnds):
    """log Z from both sides. Arguments as for :class:`FromBothEnds`; each side uses them.

    With ``start="annealed"`` short runs try two references, the model's own and a mixture at its
    modes, and the better is taken. Rows show where modes are: those that a fitted model remembers,
    or ``rows``. Without any, modes are only sought, replica exchange must agree, and the verdict is
    at best ``loose``.
    """

    def __call__(
        self, model: EnergyModel, *, rows: Tensor | None = None, generator: torch.Generator
    ) -> Quantity:
        model = prepared("Sandwich", model, rows)
        kernel = resolve_kernel("Sandwich", self.kernel, model, generator=generator)
        known = model.anchor_rows(self.chains)
        if self.start != "annealed":
            self._check_start(model)
            return reach_to_rounding(self._from_start(model, kernel, generator), model)
        starts = {} if known is None else {"rows": settle(model, kernel, known, generator)}
        starts["sought"] = sought(model, kernel, generator)
        kernel = kernel.suited_to(model, torch.cat(list(starts.values())))
        paths = [path_along(model, "base rates", kernel, generator)]
        cut_off = isinstance(model.reference(), CutReference)  # a mixture would reach beyond it
        guidable = "joint" not in needs_of(kernel) and not cut_off
        paths += (
            [self._guided(model, torch.cat(list(starts.values())), 1, generator)]
            if guidable
            else []
        )
        ends = {
            f"from {path.begins}": ends_of(path.pilot, model, kernel, generator) for path in paths
        }
        starts |= ends
        x, found = torch.cat(list(starts.values())), []
        path = better(paths, x, generator)
        for attempt in range(ROUNDS):
            suspects = heaviest(path, x, generator)
            sides = self._sides(path, suspects, generator)
            found.append(
                self._judged(sides, path, paths[0], suspects, x, known is not None, generator)
            )
            if found[-1].trusted or attempt + 1 == ROUNDS or not guidable:
                break
            path = self._guided(
                model, torch.cat([suspects[sides.beyond], x[::2]]), 2 ** (attempt + 1), generator
            )
            if path.length > LONGEST:
                break
        q = heard(
            min(found, key=lambda each: (VERDICTS.index(each.verdict), each.width)), paths, found
        )
        details = {
            **q.details,
            "rounds": len(found),
            "witnesses": {name: len(states) for name, states in starts.items()},
        }
        reached = torch.cat(list(ends.values()))
        q = reach_to_tails("Sandwich", replace(q, details=details), model, reached)
        q = reach_to_rounding(q, model)
        return q if known is not None else without_rows(q, self.chains)

    def _judged(
        self,
        sides: Sides,
        path: Path,
        own: Path,
        suspects: Tensor,
        x: Tensor,
        known: bool,
        generator: torch.Generator,
    ) -> Quantity:
        """Both sides and what witnesses add. Where that is much, or no rows are known, ladders from
        ``x`` are heard, and single regions.
        """
        q = self._quantity(sides, unseen(sides.forward, sides.witnesses))
        q = replace(q, details={**q.details, "reference": path.begins})
        if known and q.verdict == "tight":
            return q
        other, hardest = ladders_along(
            path,
            sides.betas,
            x,
            self.level,
            trained=trained_path(own, generator),
            generator=generator,
        )
        q = replace(
            q,
            details={
                **q.details,
                "ladders": other,
                "hardest": hardest,
                "heaviest": float(sides.witnesses.max()),
            },
        )
        if other.trusted and not agree(q, other):
            return over_both(q, other)
        if other.trusted:
            return confirmed(
                q, other, self._reach(sides, own, suspects, hardest + HARDER, generator)
            )
        if q.details["added"] > ADDED_TIGHT:
            again = self._quantity(
                sides, self._reach(sides, own, suspects, float(sides.forward.max()), generator)
            )
            q = replace(again, details={**q.details, **again.details})
        return q if known else replace(q, verdict="do not publish")

    def _reach(
        self, sides: Sides, own: Path, suspects: Tensor, known: float, generator: torch.Generator
    ) -> float:
        """log of the most that witnesses heavier than ``known`` can stand for, by what forward
        annealing missed or region by region.
        """
        harder = sides.witnesses > known
        if not bool(harder.any()):
            return -math.inf
        local = local_mass(
            own.model, own.kernel, suspects[harder], LOCAL_TEMPERATURES, generator=generator
        )
        return min(unseen(sides.forward, sides.witnesses), float(torch.logsumexp(local, 0)))

    def _path(self, model: EnergyModel, begins: str, x: Tensor, generator: torch.Generator) -> Path:
        """A path with a kernel of its own, whose steps suit chains at ``x``."""
        kernel = resolve_kernel("Sandwich", self.kernel, model, generator=generator)
        return path_along(model, begins, kernel.suited_to(model, x), generator)

    def _guided(self, model: EnergyModel, x: Tensor, more: int, generator: torch.Generator) -> Path:
        mixture = mixture_at(model, x, more * COMPONENTS, generator=generator)
        first = self._path(Guided(model, mixture), "", x, generator).pilot
        guided = Guided(model, weighed(mixture, first.x, first.log_w))
        return self._path(guided, f"a mixture of {mixture.size}", x, generator)

    def _sides(self, path: Path, x: Tensor, generator: torch.Generator) -> Sides:
        """Up from the reference, and down from where that ended and from ``x``."""
        model, kernel, log_z0 = path.model, path.kernel, float(path.model.reference().log_z)
        betas = (
            placed_by(path.pilot, self.temperatures, VARIANCE)
            if self.adaptive
            else even_temperatures(self.temperatures)
        )
        up = self._climb(model, kernel, betas, generator)
        starts = torch.cat([ends_of(up, model, kernel, generator), x])
        down = log_z0 - anneal(model, kernel, betas.flip(0), starts, generator=generator).log_w
        return Sides(log_z0 + up.log_w, down[: self.chains], down[self.chains :], betas)

    def _from_start(
        self, model: EnergyModel, kernel: Sampler, generator: torch.Generator
    ) -> Quantity:
        """Along the model's own path, and down from exact draws or from rows alone."""
        betas = temperatures_for(
            model, kernel, self.temperatures, adaptive=self.adaptive, generator=generator
        )
        up, log_z0 = self._climb(model, kernel, betas, generator), float(model.reference().log_z)
        x = self._begin(model, kernel, None if self.start == "exact" else up, generator)
        down = log_z0 - anneal(model, kernel, betas.flip(0), x, generator=generator).log_w
        sides = Sides(log_z0 + up.log_w, down, down, betas)
        q = self._quantity(sides, unseen(sides.forward, down))
        q = replace(q, details={**q.details, "reference": "base rates", "start": self.start})
        return reach_to_tails("Sandwich", q, model, up.x)

    def _quantity(self, sides: Sides, reach: float) -> Quantity:
        """Bennett's ratio as the value, and an interval that reaches over both sides and to what
        neither saw.
        """
        ratio = acceptance_ratio(sides.forward, -sides.reverse)
        up, down = summarize_weights(sides.forward), summarize_weights(-sides.reverse)
        gap, half = -down.log_mean - up.log_mean, half_width(ratio.se, self.level)
        low = min(ratio.value - half, up.log_mean - half_width(up.se, self.level))
        high = max(
            ratio.value + half,
            up.log_mean,
            -down.log_mean + half_width(math.hypot(down.se, up.se), self.level),
        )
        reached = float(np.logaddexp(high, reach))
        return Quantity(
            ratio.value,
            low,
            reached,
            level=self.level,
            kind="estimate",
            method="sandwich of AIS and reverse AIS",
            verdict=worst(verdict_on_sandwich(up, down, gap), verdict_on_unseen(reached - high)),
            details={
                "forward": up.log_mean,
                "reverse": -down.log_mean,
                "gap": gap,
                "overlap": ratio.overlap,
                "ess": up.ess,
                "ess_reverse": down.ess,
                "khat": up.khat,
                "khat_reverse": down.khat,
                "chains": up.n,
                "temperatures": len(sides.betas),
                "start": "annealed",
                "se": ratio.se,
                "beyond": int(sides.beyond.sum()),
                "added": reached - high,
            },
        )


def path_along(
    model: EnergyModel, begins: str, kernel: Sampler, generator: torch.Generator
) -> Path:
    """A path with a pilot's run along it."""
    return Path(begins, model, kernel, pilot_run(model, kernel, generator))


def trained_path(own: Path, generator: torch.Generator) -> Path | None:
    """The path along the weights that the model had, where they were kept and its kernel can
    follow them.
    """
    model, kernel = own.model, own.kernel
    if not model.trajectory or kernel.remembers:
        return None
    return path_along(Trajectory(model, model.trajectory), TRAINED, kernel, generator)


def needs_of(kernel: Sampler) -> tuple[str, ...]:
    """What a kernel needs of a model, as the capability table says; nothing of one that is not in
    it.
    """
    part = capability.PARTS.get(type(kernel).__name__)
    return () if part is None else part.needs


def ends_of(
    run: Annealing, model: EnergyModel, kernel: Sampler, generator: torch.Generator
) -> Tensor:
    """The ends of an annealing, resampled by weight and settled."""
    return settle(model, kernel, resample(run.x, run.log_w, len(run.x), generator), generator)


def better(paths: list[Path], x: Tensor, generator: torch.Generator) -> Path:
    """The shortest of those whose pilots reached as much as any, but for chance, and that come near
    ``x`` as any does.
    """
    best = max(path.bound for path in paths)
    paths = [path for path in paths if path.bound > best - CHANCE]
    if len(paths) == 1:
        return paths[0]
    missed = [
        float(weighed_down(path, x, generator).max() - path.pilot.log_w.max()) for path in paths
    ]
    near = [
        path for path, nats in zip(paths, missed, strict=True) if nats < min(missed) + OUT_OF_REACH
    ]
    return min(near, key=lambda path: path.length)


def weighed_down(path: Path, x: Tensor, generator: torch.Generator) -> Tensor:
    """Log weights of chains from ``x`` in a short run down the path, in the forward sense,
    ``(N,)``: exaggerated, but in order.
    """
    betas = placed_by(path.pilot, PILOT_TEMPERATURES)
    return -anneal(path.model, path.kernel, betas.flip(0), x, generator=generator).log_w


def heaviest(path: Path, x: Tensor, generator: torch.Generator) -> Tensor:
    """The states whose chains come out heaviest in a short run down the path."""
    return (
        x
        if len(x) <= WITNESSES
        else x[weighed_down(path, x, generator).argsort(descending=True)[:WITNESSES]]
    )


def heard(q: Quantity, paths: list[Path], found: list[Quantity]) -> Quantity:
    """The quantity after all runs were heard: one that reached more than its interval, beyond
    chance, takes its verdict away.
    """
    most = max([path.bound for path in paths] + [other.details["forward"] for other in found])
    details = {**q.details, "pilots": {path.begins: round(path.bound, 3) for path in paths}}
    if most - CHANCE <= q.high:
        return replace(q, details=details)
    return replace(q, high=most, verdict="do not publish", details=details)
