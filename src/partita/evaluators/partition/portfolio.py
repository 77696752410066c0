r"""One way to log Z: the cheapest method that certifies its number, with witnesses of other kinds.

.. math:: \hat\ell_1 - h_1 \le \hat\ell_2 + h_2 \qquad \text{for every other method } 1
          (theory/evidence.md, eq. 60.4)

Finite sums and integrals over few coordinates come first. Beyond them annealing from both ends,
with replica exchange beside it, certifies a number (2). Independent draws and nested sampling err
low where they miss a mode, never high but for chance: one that lies higher contradicts, one that
lies lower has missed something that annealing has not.

Letters: h half of an interval.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from partita.core import capability
from partita.core.checks import check_level
from partita.core.protocols import EnergyModel, PartitionEvaluator
from partita.core.quantity import VERDICTS, Quantity
from partita.errors import Diverged, OutOfBudget, Unsupported
from partita.evaluators.partition.replicas import agree
from partita.models.energy.target import Target
from partita.runtime import deadline

EXACT = ("Enumeration", "Quadrature")  # which need no witness where they are trusted
CERTIFYING = "Sandwich"
# tried in this order; of functions a cheap witness comes first, which also brings draws
ON_FUNCTIONS = ("ImportanceSampling", CERTIFYING, "NestedSampling")
ON_MODELS = (CERTIFYING, "NestedSampling")
WIDEST = 30  # coordinates up to which a mixture is fitted to the mass
# evaluations of a function that annealing takes, by whether it has slopes
ANNEALING = {True: 2_000_000, False: 4_000_000}


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
        tried: dict[str, Quantity] = {}
        failed: dict[str, Exception] = {}
        for name, method in methods(model, self.level):
            try:
                check_time(name, model)
                tried[name] = method(model, generator=generator)
            except (Diverged, Unsupported, OutOfBudget) as error:
                failed[name] = error
                continue
            if tried[name].trusted and name in (*EXACT, CERTIFYING):
                break
        if not tried:
            raise _failure(list(failed.values()))
        q, reasons = judged(tried), {name: str(error) for name, error in failed.items()}
        return replace(q, details={**q.details, "tried": tried, "failed": reasons})


def methods(model: EnergyModel, level: float) -> Iterator[tuple[str, PartitionEvaluator]]:
    """The methods that run on a model, cheapest first."""
    for name in (*EXACT, *(ON_FUNCTIONS if isinstance(model, Target) else ON_MODELS)):
        if capability.reason_against(name, model) is not None:
            continue
        if name == "ImportanceSampling" and model.support.width > WIDEST:
            continue
        yield name, capability.part_named(name)(**({} if name in EXACT else {"level": level}))


def check_time(name: str, model: EnergyModel) -> None:
    """Raise where annealing a function would take longer than there is time for."""
    if not isinstance(model, Target) or name != CERTIFYING:
        return
    needed = ANNEALING[model.differentiable] * model.log_density.seconds_each
    if deadline.now() + needed > model.budget.moment:
        raise OutOfBudget(
            f"Annealing would take about {needed / 60:.2g} minutes, more than are left. Write the "
            "function for a batch of rows, in torch, or give more minutes."
        )


def judged(tried: dict[str, Quantity]) -> Quantity:
    """What all methods leave of the one that certifies; where none does, an interval over all, not
    to be published, unless two others agree inside of what annealing allows.
    """
    best = next((q for name in (*EXACT, CERTIFYING) if (q := tried.get(name)) and q.trusted), None)
    others = [q for q in tried.values() if q.trusted and q is not best]
    if best is not None:
        higher = [q for q in others if q.low > best.high]
        return _over([best, *higher]) if higher else best
    annealed = tried.get(CERTIFYING)
    if annealed is not None and len(others) > 1 and agree(others[0], others[1]):
        inner = min(others, key=lambda q: q.width)
        if annealed.low <= inner.value <= annealed.high:
            return replace(inner, verdict="loose")
    return _over(list(tried.values()))


def _over(found: list[Quantity]) -> Quantity:
    """The best of several that contradict or fail, with an interval over all."""
    best = min(found, key=lambda q: (VERDICTS.index(q.verdict), q.width))
    low, high = min(q.low for q in found), max(q.high for q in found)
    return replace(best, kind="estimate", low=low, high=high, verdict="do not publish")


def _failure(reasons: list[Exception]) -> Exception:
    """The reason of the method that got furthest."""
    last = str(reasons[-1])
    return OutOfBudget(last) if isinstance(reasons[-1], OutOfBudget) else Diverged(last)
