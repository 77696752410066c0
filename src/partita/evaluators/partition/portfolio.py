r"""One way to log Z: the cheapest methods that certify a number together.

.. math:: \hat\ell_1 - h_1 \le \hat\ell_2 + h_2 \qquad \text{for every other method } 1
          (theory/evidence.md, eq. 60.4)

A finite sum, and an integral whose space was searched throughout, need no witness. An integral over
boxes that were not all searched is certified by independent draws that agree with it. Importance
sampling from a fitted mixture is certified once nested sampling draws nothing that the mixture
lacks; annealing from both ends, with replica exchange beside it, certifies a number by itself. All
of them err low where they miss a mode, never high but for chance: a method that lies higher
contradicts, one that lies lower has missed something. What one method finds the next ones are
pointed to.

Letters: h half of an interval; 2 the number that is certified, 1 any other method.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.arguments import check_level
from partita.core.protocols import EnergyModel, PartitionEvaluator
from partita.core.quantity import VERDICTS, Quantity, worst
from partita.core.support import Real
from partita.errors import Diverged, OutOfBudget, Unsupported
from partita.evaluators.partition.importance.witnessed import witnessed
from partita.evaluators.partition.modes import minima_of
from partita.evaluators.partition.quadrature import HALF_LOOSE
from partita.evaluators.partition.replicas import agree
from partita.models.energy.target import Target
from partita.runtime import deadline

INTEGRAL, CERTIFYING = "Quadrature", "Sandwich"
EXACT = ("Enumeration", INTEGRAL)  # which need no witness where they are trusted
PROPOSING, CLIMBING = "ImportanceSampling", "NestedSampling"
DRAWING = (PROPOSING, CLIMBING)  # which are witnesses
# tried in this order, the cheapest first; each once, at the first place where it is of use
ON_FUNCTIONS = (PROPOSING, CLIMBING, CERTIFYING, CLIMBING)
ON_MODELS = (CERTIFYING, CLIMBING)
WIDEST = 30  # coordinates up to which a mixture is fitted to the mass
FEW = 10  # coordinates up to which nested sampling costs less than annealing
# evaluations after which nested sampling ends unfinished: with many coordinates a point that
# forgets where it began takes very many
MOST_CLIMBING = 4_000_000
# evaluations of a function that a method takes, by whether it has slopes
TAKEN = {
    CERTIFYING: {True: 2_000_000, False: 4_000_000},
    CLIMBING: {True: 500_000, False: 500_000},
}
# evaluations that a search for modes takes, by how many times fewer points it looks at beside those
# that it knows; the first that there is time for is made
SEARCHES = {1: 1_700_000, 8: 450_000}
UNSOUGHT = 100_000  # evaluations of importance sampling where there was no time to seek modes
SHARED = 64  # draws of a method that the next ones are pointed to


@dataclass(frozen=True)
class Portfolio:
    """log Z by the cheapest of all methods that certifies it.

    ``details["tried"]`` has the Quantity of every method, ``details["failed"]`` why others gave
    none.

    Arguments:
        level: Of the interval.
    """

    level: float = 0.95

    def __post_init__(self) -> None:
        check_level("Portfolio", self.level)

    def __call__(
        self, model: EnergyModel, *, rows: Tensor | None = None, generator: torch.Generator
    ) -> Quantity:
        model = model.remembering(rows, "Portfolio")
        if isinstance(model, Target):
            deadline.say("Looking for modes")
            model = pointed_far_and_wide(model, generator)
        tried: dict[str, Quantity] = {}
        failed: dict[str, Exception] = {}
        for name, method in methods(model, self.level, tried):
            deadline.say(
                ", ".join([*(f"{known}: {q.value:.3f}" for known, q in tried.items()), name])
            )
            try:
                check_time(name, model)
                tried[name] = method(model, generator=generator)
                if name == CLIMBING and PROPOSING in tried:
                    tried[PROPOSING] = witnessed(tried[PROPOSING], tried[name], model)
            except (Diverged, Unsupported, OutOfBudget) as error:
                failed[name] = error
                continue
            if judged(tried).trusted:
                break
            draws = tried[name].details.get("draws")
            if isinstance(model, Target) and draws is not None:
                some = draws[rng.permutation(len(draws), generator)[:SHARED]]
                model = model.pointing_to(some.to(model.like))
        if not tried:
            raise _failure(model, list(failed.values()))
        reasons = {name: str(error) for name, error in failed.items()}
        return _with_draws(judged(tried), tried, reasons)


def methods(
    model: EnergyModel, level: float, tried: Mapping[str, Quantity]
) -> Iterator[tuple[str, PartitionEvaluator]]:
    """The methods that run on a model, cheapest first, after what was ``tried`` until then."""
    asked: set[str] = set()
    for name in (*EXACT, *(ON_FUNCTIONS if isinstance(model, Target) else ON_MODELS)):
        if name in asked or capability.reason_against(name, model) is not None:
            continue
        if name == PROPOSING and model.support.width > WIDEST:
            continue
        if name == CLIMBING and not (_climbs_soon(model) and _needed(asked, model, tried)):
            continue
        asked.add(name)
        settings = {} if name in EXACT else {"level": level}
        settings |= {"evaluations": MOST_CLIMBING} if name == CLIMBING else {}
        if name == PROPOSING and model.landmarks(1) is None:
            settings["evaluations"] = UNSOUGHT
        yield name, capability.part_named(name)(**settings)


def _needed(asked: set[str], model: EnergyModel, tried: Mapping[str, Quantity]) -> bool:
    """Whether nested sampling is next: after annealing, or before it as the witness of a mixture
    that fits a density on few coordinates.
    """
    proposed = tried.get(PROPOSING)
    fits = proposed is not None and proposed.details["of_known_modes"] != "do not publish"
    return CERTIFYING in asked or (fits and model.support.width <= FEW)


def _climbs_soon(model: EnergyModel) -> bool:
    """Whether nested sampling is worth its time: on a function, which has a budget of its own, and
    on few real coordinates where no deadline is near.
    """
    few = isinstance(model.support, Real) and model.support.width <= WIDEST
    return isinstance(model, Target) or (few and deadline.left() == math.inf)


def pointed_far_and_wide(target: Target, generator: torch.Generator) -> Target:
    """A view that points to minima downhill from far and wide, where there is time to seek them."""
    if not isinstance(target.support, Real):
        return target
    calls, each = target.log_density.calls, target.log_density.seconds_each
    evaluations, seconds = target.budget.evaluations - calls, target.budget.moment - deadline.now()
    for fewer, needed in SEARCHES.items():
        if needed <= evaluations and needed * each <= seconds:
            return target.pointing_to(minima_of(target, generator, fewer=fewer))
    return target


def check_time(name: str, model: EnergyModel) -> None:
    """Raise where a method would take longer on a function than there is time for."""
    if not isinstance(model, Target) or name not in TAKEN:
        return
    needed = TAKEN[name][model.differentiable] * model.log_density.seconds_each
    if deadline.now() + needed > model.budget.moment:
        minutes = f"{max(1, needed / 60):,.0f}"
        raise OutOfBudget(
            f"{name} would take about {minutes} minutes, more than are left. Write the function "
            "for a batch of rows, in torch, or give more minutes."
        )


def judged(tried: dict[str, Quantity]) -> Quantity:
    """What all methods leave of the number that they certify; where they do not, an interval over
    all, not to be published.
    """
    for q in _certified(tried):
        if q.trusted and all(other.low <= q.high for other in tried.values()):
            return q
    return _over(list(tried.values()))


def _certified(tried: dict[str, Quantity]) -> Iterator[Quantity]:
    """Numbers that are certified unless another method lies higher."""
    others = [q for name, q in tried.items() if name in DRAWING and q.trusted]
    annealed, integral = tried.get(CERTIFYING), tried.get(INTEGRAL)
    yield from (tried[name] for name in EXACT if name in tried and tried[name].trusted)
    if integral is not None and 0 <= integral.value - integral.low <= HALF_LOOSE:
        # nothing is surer than a sum over boxes; how much lies outside of them draws must say
        near = [
            q
            for q in (annealed, *others)
            if q and q.trusted and abs(integral.value - q.value) <= q.width
        ]
        if near:
            sure = 2 * integral.value - integral.low
            high = max(sure, min(q.high for q in near))
            yield replace(integral, high=high, level=near[0].level, verdict="loose")
    proposed, climbed = tried.get(PROPOSING), tried.get(CLIMBING)
    if proposed and climbed and "witnesses" in proposed.details and agree(proposed, climbed):
        yield replace(proposed, verdict=worst(proposed.verdict, climbed.verdict))
    if annealed is not None and annealed.trusted:
        yield annealed
    if annealed is not None and len(others) > 1 and agree(others[0], others[1]):
        inner = min(others, key=lambda q: q.width)
        if annealed.low <= inner.value <= annealed.high:
            yield replace(inner, verdict="loose")


def _with_draws(q: Quantity, tried: dict[str, Quantity], failed: dict[str, str]) -> Quantity:
    """The answer with what was tried, and draws of a method that agrees with it."""
    details = {**q.details, "tried": tried, "failed": failed}
    for one in tried.values():
        if "draws" in one.details and q.low - q.width <= one.value <= q.high + q.width:
            details.setdefault("draws", one.details["draws"])
    return replace(q, details=details)


def _over(found: list[Quantity]) -> Quantity:
    """The best of several that contradict or fail, with an interval over all."""
    best = min(found, key=lambda q: (VERDICTS.index(q.verdict), q.width))
    low, high = min(q.low for q in found), max(q.high for q in found)
    return replace(best, kind="estimate", low=low, high=high, verdict="do not publish")


def _failure(model: EnergyModel, reasons: list[Exception]) -> Exception:
    """The last reason why there is no number."""
    if reasons:
        return reasons[-1]
    return Unsupported(capability.reason_against(CERTIFYING, model) or "no method runs on it")
