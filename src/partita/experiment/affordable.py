"""What a fit may take that has to end by a time: all that its recipe says where there is time for
it, else as much as there is time for.

The time is that of :mod:`partita.runtime.deadline`. Starts, steps and validations are settled here,
before the fit begins, and saved with it: it depends on them alone, however fast the machine is
then, and takes no others when it is resumed.
"""

import copy
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from partita.core import rng
from partita.core.protocols import Capability, Model
from partita.errors import invalid
from partita.evaluators import evaluate
from partita.runtime import deadline, memory_limit
from partita.tables import Rows
from partita.training.budget import LEAST_SECONDS, LEAST_STEPS
from partita.training.recipes import OF_OPTIMIZERS, resolve_settings
from partita.training.session import Session
from partita.training.settings import Settings
from partita.training.start import start_session
from partita.training.validation import quick_evaluator

TIMING = 3  # what a stream of random numbers is for
TIMING_SECONDS = 0.4  # of steps that are thrown away
# of the time that is left: a first step that takes no more is followed by another, which is not as
# slow
TIMING_SHARE = 0.25
PATIENCE = 5  # validations without a better score before a fit by gradients stops
VALIDATION_TIME = 0.2  # of a fit that is cut to its time, at most, but for one validation
ONE_VALIDATION = 0.5  # of the time, at most; where one takes longer there is none
TRIALS = (10, 30)  # temperatures of annealings that are timed
LEAST_GROWTH = 0.05  # of their time, however alike they seem on a busy machine
# of the parameters in a fit: gradients, two moments, averages, the best, what is timed and thrown
# away
COPIES = 8
LENGTHS = ("epochs", "steps", "minutes")


class Plan(NamedTuple):
    """A model and how it is fitted.

    Arguments:
        options: Of the fit.
        remarks: What is to be said about them, one sentence each.
        cuts: What was cut short by the clock before the fit began, one sentence each.
        validated: Whether the fit looks at held-out rows, which it does unless one look alone would
            take too long.
    """

    model: Model
    objective: Any
    options: dict[str, Any]
    remarks: Sequence[str]
    cuts: Sequence[str] = ()
    validated: bool = True


class Cost(NamedTuple):
    """Seconds that the parts of a fit take."""

    start: float
    step: float
    look: float  # at the held-out rows


@memory_limit.named("fit")
def affordable(
    model: Model,
    objective: Any,
    rows: Rows,
    validation: Rows | None,
    options: dict[str, Any],
    seed: int = 0,
) -> Plan:
    """The plan of a new fit: as the recipe and the options say if that ends in time, else cut to
    it.

    Gradients stop early; closed-form updates know themselves when they are done, and are spared the
    options of optimizers.
    """
    memory_limit.check_room(
        "fit", model.title(), COPIES * _bytes(model), "Ask for fewer hidden units or layers."
    )
    options, remarks = _taken(objective, options)
    if deadline.left() == math.inf or any(options.get(name) is not None for name in LENGTHS):
        return Plan(model, objective, options, remarks)
    settings = resolve_settings(model, objective, len(rows), options)
    cost, total = _measured(model, objective, rows, validation, settings, seed)
    seconds = deadline.left() - cost.start
    shorter = _fewer_starts(objective, seconds, cost)
    seconds -= _seconds_of_starts(shorter, cost)
    if total * cost.step + settings.validations * cost.look <= seconds:
        return Plan(model, shorter, options, remarks)
    least = _least_steps(objective, seconds, cost)
    if cost.look > max(LEAST_SECONDS, ONE_VALIDATION * seconds):
        deadline.cut("no validation: one alone would take more than half of the time.")
        return Plan(
            model,
            shorter,
            {**options, "steps": max(least, int(seconds / cost.step))},
            remarks,
            validated=False,
        )
    looks = (
        max(1, min(settings.validations, int(VALIDATION_TIME * seconds / cost.look)))
        if cost.look
        else settings.validations
    )
    steps = max(least, int((seconds - looks * cost.look) / cost.step))
    return Plan(model, shorter, {**options, "steps": steps, "validations": looks}, remarks)


def _taken(objective: Any, options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The options that go with an objective, and a remark about those that do not."""
    if not hasattr(objective, "update"):
        return {"patience": PATIENCE, **options}, []
    idle = [name for name in options if name in OF_OPTIMIZERS and options[name] is not None]
    remark = (
        f"fitted without {', '.join(idle)}: {type(objective).__name__} takes closed-form updates."
    )
    return {name: value for name, value in options.items() if name not in idle}, [
        remark
    ] if idle else []


def _bytes(model: Model) -> int:
    """That a model's parameters and buffers take."""
    return sum(value.numel() * value.element_size() for value in model.state_dict().values())


def _least_steps(objective: Any, seconds: float, cost: Cost) -> int:
    """Steps that are taken in any case; a sampler that would have no time for those of which its
    score needs draws takes none.
    """
    fewest = getattr(objective, "fewest", 1)
    if fewest > 1 and fewest * cost.step > max(seconds, LEAST_SECONDS):
        allowed = (
            f"be enough for {fewest} sweeps of {type(objective).__name__}, for of fewer draws "
            "nothing tells how far off a score is"
        )
        raise invalid(
            "fit",
            "the time",
            allowed,
            f"{max(0.0, seconds):.1f} seconds, and each takes {cost.step:.1f}",
            "Give more minutes.",
        )
    return max(fewest, min(LEAST_STEPS, int(LEAST_SECONDS / cost.step)))


def _seconds_of_starts(objective: Any, cost: Cost) -> float:
    """Of those that are tried beside the first, and of the updates of all."""
    return (
        objective.beforehand * cost.step + (objective.restarts - 1) * cost.start
        if hasattr(objective, "beforehand")
        else 0.0
    )


def _fewer_starts(objective: Any, seconds: float, cost: Cost) -> Any:
    """An objective that tries several starts first, with as many as there is time for."""
    if not hasattr(objective, "within"):
        return objective
    shorter = objective.within(seconds / (cost.step + cost.start / objective.trial))
    if shorter != objective:
        deadline.cut(
            f"{shorter.restarts} of {objective.restarts} starts tried: there was no time for more."
        )
    return shorter


def _measured(
    model: Model, objective: Any, rows: Rows, validation: Rows | None, settings: Settings, seed: int
) -> tuple[Cost, int]:
    """What a fit costs and how many steps its recipe has, by a copy that is thrown away."""
    alone = objective.within(0) if hasattr(objective, "within") else objective
    started = deadline.now()
    session = start_session(
        copy.deepcopy(model), rows, alone, settings, generator=rng.keyed(seed, TIMING)
    )
    start = deadline.now() - started
    return Cost(
        start, _seconds_per_step(session), _seconds_to_validate(session, validation)
    ), session.total


def _seconds_per_step(session: Session) -> float:
    """The mean of some, without the first, which may have had to get ready; on a busy machine few
    steps take most of the time.
    """
    times: list[float] = []
    while sum(times) < TIMING_SECONDS or (
        len(times) < 2 and sum(times) < TIMING_SHARE * deadline.left()
    ):
        begun = deadline.now()
        session.advance()
        times.append(deadline.now() - begun)
    return statistics.fmean(times[1:] or times)


def _seconds_to_validate(session: Session, validation: Rows | None) -> float:
    """Of one validation, by short ones where it is an annealing; none without rows for it.

    Draws of a posterior grow in number, and take as much longer when all are kept.
    """
    if validation is None:
        return 0.0
    model, evaluator = session.bare, quick_evaluator(session.bare)
    x = validation.tensor(rng.keyed(0)).to(model.like)

    def look(evaluator: Any) -> None:
        evaluate(model, x, evaluator=evaluator, generator=rng.keyed(session.key))

    if getattr(evaluator, "temperatures", None):
        cost = annealing_cost(
            lambda temperatures: look(replace(evaluator, temperatures=temperatures, adaptive=False))
        )
        # a pilot run takes up to as long again
        return (1 + evaluator.adaptive) * (cost.start + evaluator.temperatures * cost.each)
    growth = (
        session.objective.keep / len(model.sweeps)
        if Capability.POSTERIOR_DRAWS in model.capabilities
        else 1.0
    )
    return growth * _seconds_when_ready(lambda: look(evaluator))


class AnnealingCost(NamedTuple):
    """Seconds of an annealing: of all that its temperatures have in common, and of each of them."""

    start: float
    each: float


def annealing_cost(anneal: Callable[[int], Any]) -> AnnealingCost:
    """By two short ones, or by one where that takes so long that there is no time for another."""
    short, longer = TRIALS
    first = _seconds_when_ready(lambda: anneal(short))
    if first > TIMING_SHARE * deadline.left():
        return AnnealingCost(0.0, first / short)
    begun = deadline.now()
    anneal(longer)
    each = max(LEAST_GROWTH * first, deadline.now() - begun - first) / (longer - short)
    return AnnealingCost(max(0.0, first - short * each), each)


def _seconds_when_ready(work: Callable[[], Any]) -> float:
    """Of a second call where the first was short, and so perhaps long for what it had to import."""
    seconds = 0.0
    for _ in range(2):
        begun = deadline.now()
        work()
        seconds = deadline.now() - begun
        if seconds > LEAST_SECONDS:
            break
    return seconds
