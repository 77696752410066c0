"""How many steps and validations fit into a time: measured once before the first step, on copies
that are thrown away, and saved with the run.

A fit depends on these numbers alone, however fast the machine is then, and takes no others when it
is resumed. Three callers have a time to keep:

* a fit by ``minutes`` has as many steps as fit into them (:func:`fix_length`);
* any fit has at most so many validations as take a fifth of its time (:func:`fix_length`);
* a comparison cuts the defaults of a fit to a deadline (:func:`affordable`).

A machine may slow down afterwards: a fit with a deadline (:mod:`partita.runtime.deadline`) stops
there, whatever its plan was (:func:`out_of_time`).
"""

import copy
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from partita.core import rng
from partita.core.protocols import Capability, Model, Update
from partita.errors import Diverged, invalid
from partita.evaluators import AIS, Enumeration, Sandwich, evaluate
from partita.models import DPMixture
from partita.objectives import EM
from partita.objectives.partition_chain import PartitionChain
from partita.runtime import deadline, memory_limit, processes
from partita.runtime.files import JsonObject
from partita.tables import Rows
from partita.training.distributed import StepReduction
from partita.training.guard import Watch
from partita.training.history import Record
from partita.training.session import HELD_OUT, Session, start_session
from partita.training.settings import LENGTHS, OF_OPTIMIZERS, Learner, Settings, resolve_settings
from partita.training.validation import Evaluator, quick_evaluator

WARM_UP_SECONDS = (4.0, 30.0)  # of short and of long fits by minutes
# of the time between them; machines are not as fast for minutes as for seconds
WARM_UP_SHARE = 0.02
LEAST_STEPS = 10  # that are taken in any case,
LEAST_SECONDS = 1.0  # or as many as this takes
OUT_OF_TIME = "out of time"  # why such a fit ended

VALIDATION_SHARE = 0.2  # of the time of a fit, but for one validation
FREE_SECONDS = 10.0  # that all validations of a fit may take in any case
ONE_VALIDATION = 0.5  # of the time to a deadline, at most; where one takes longer there is none
TIMING = 3  # what a stream of random numbers is for
TIMING_SECONDS = 0.4  # of steps that are thrown away
# of the time that is left: a first step that takes no more is followed by another, which is not as
# slow
TIMING_SHARE = 0.25
TRIALS = (10, 30)  # temperatures of annealings that are timed
LEAST_GROWTH = 0.05  # of their time, however alike they seem on a busy machine
PATIENCE = 5  # validations without a better score before a fit by gradients stops
# of the parameters in a fit: gradients, two moments, averages, the best, the first, what is timed
# and thrown away
COPIES = 9


def fix_length(session: Session, validation: Rows | None, *, given: bool) -> None:
    """Fix the number of steps of a fit by ``minutes``, and lower the number of validations to
    those that take a fifth of its time; without ``minutes``, a ``given`` number is kept.
    """
    settings, team = session.settings, session.team
    if settings.minutes is None and (given or settings.validate_every is not None):
        return
    cost = 0.0 if validation is None else _cost_before_fit(session, validation)
    if settings.minutes is not None:
        count = _affordable_count(VALIDATION_SHARE * 60 * settings.minutes, cost, settings)
        count, set_aside = team.broadcast((count, count * cost))
        session.set_total(_steps_within(session, settings.minutes, set_aside))
    elif team.broadcast(settings.validations * cost <= FREE_SECONDS):
        return
    else:
        steps = session.total * _timed_and_undone(session, _seconds_per_step)
        seconds = max(FREE_SECONDS, steps * VALIDATION_SHARE / (1 - VALIDATION_SHARE))
        count = team.broadcast(_affordable_count(seconds, cost, settings))
    session.settings = replace(settings, validations=count)


def _affordable_count(seconds: float, cost: float, settings: Settings) -> int:
    """How many validations fit into a time; one in any case."""
    return max(1, min(settings.validations, int(seconds / max(cost, 1e-9))))


def _cost_before_fit(session: Session, validation: Rows) -> float:
    """Seconds of one validation of the initial model; 0 where there is nothing to score before the
    first sweep, or where it is exact, and so cheap beside a fit without ``minutes``.
    """
    model = session.bare
    exact = Capability.LOG_PROB in model.capabilities
    exact = exact or isinstance(quick_evaluator(model), Enumeration)
    if Capability.POSTERIOR_DRAWS in model.capabilities:
        return 0.0
    if exact and session.settings.minutes is None:
        return 0.0
    cost = _seconds_to_validate(session, validation)
    count = session.settings.validations
    # short annealings may mislead on a busy machine: a whole one has the last word
    if session.team.broadcast(cost <= FREE_SECONDS < count * cost):
        cost = min(cost, _seconds_when_ready(_validator(session, validation)))
    return cost


def _steps_within(session: Session, minutes: float, set_aside: float) -> int:
    """How many steps fit into ``minutes`` less the warm-up and the seconds set aside."""
    started = deadline.now()
    seconds = 60 * minutes - set_aside
    per_step = _timed_and_undone(session, lambda session: _warm_up(session, minutes, seconds))
    spent = deadline.now() - started
    return session.team.broadcast(max(LEAST_STEPS, int((seconds - spent) / per_step)))


def _warm_up(session: Session, minutes: float, seconds: float) -> float:
    """Seconds per step, over as long a time as the fit is worth."""
    for _ in range(5):
        _step_to_time(session)
    short, long = WARM_UP_SECONDS
    limit = min(6 * minutes, max(short, min(long, WARM_UP_SHARE * seconds)))
    begun, steps = deadline.now(), 0
    while steps == 0 or session.team.broadcast(deadline.now() - begun < limit):
        _step_to_time(session)
        steps += 1
    return (deadline.now() - begun) / steps


def _step_to_time(session: Session) -> None:
    """A step of which only the time counts: where it diverges the weights become finite again, and
    the guard of the fit itself deals with it.
    """
    try:
        session.advance()
    except Diverged:
        session.leave_finite()


def _timed_and_undone(session: Session, timed: Callable[[Session], float]) -> float:
    """The result of a function that takes steps, after which the session is as it was before."""
    before, state = copy.deepcopy(session.position()), session.state
    try:
        return timed(session)
    finally:
        session.state = state  # whose modules and shapes the copy is put into
        session.return_to(before)
        session.watch, session.reduction = Watch(), StepReduction(session.team)
        if session.optimizer is not None:
            session.optimizer.state.clear()


def out_of_time(session: Session, seconds: float) -> bool:
    """Whether the deadline has passed for a fit of so many seconds, and it has taken the steps that
    are taken in any case.
    """
    return (
        deadline.left() < 0
        and session.step >= _fewest(session.objective)
        and (session.step >= LEAST_STEPS or seconds >= LEAST_SECONDS)
    )


def timeout_record(session: Session) -> Record:
    """The record of a fit that ran out of time."""
    return {
        "step": session.step,
        "event": "the time was up: steps took longer than when their number was fixed.",
        "done": f"stopped after {session.step:,} of {session.total:,} steps",
    }


def _fewest(objective: Learner) -> int:
    """Steps without which an objective has no result."""
    return objective.fewest if isinstance(objective, Update) else 1


class FitPlan(NamedTuple):
    """A model and how it is fitted.

    Arguments:
        options: Of the fit.
        remarks: Notes on the options, one sentence each.
        cuts: What was cut short by the clock before the fit began, one sentence each.
        validated: Whether the fit is validated, which it is unless one validation alone would take
            too long.
    """

    model: Model
    objective: Learner
    options: JsonObject
    remarks: Sequence[str]
    cuts: Sequence[str] = ()
    validated: bool = True


class Cost(NamedTuple):
    """Seconds that the parts of a fit take."""

    start: float
    step: float
    validation: float


@memory_limit.named("fit")
def affordable(
    model: Model,
    objective: Learner,
    rows: Rows,
    validation: Rows | None,
    options: JsonObject,
    seed: int = 0,
) -> FitPlan:
    """The plan of a new fit: the defaults and the options if they end before the deadline, else cut
    to it.

    Gradients stop early; closed-form updates know themselves when they are done, and are spared the
    options of optimizers.
    """
    size = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    remedy = "Ask for fewer hidden units or layers."
    memory_limit.check_room("fit", model.title(), COPIES * size, remedy)
    options, remarks = _options_of(objective, options)
    if deadline.left() == math.inf or any(options.get(name) is not None for name in LENGTHS):
        return FitPlan(model, objective, options, remarks)
    settings = resolve_settings(model, objective, len(rows), options)
    cost, total = _measured(model, objective, rows, validation, settings, seed)
    seconds = deadline.left() - cost.start
    if isinstance(objective, EM):
        objective = _fewer_starts(objective, seconds, cost)
        seconds -= objective.beforehand * cost.step + (objective.restarts - 1) * cost.start
    plan = FitPlan(model, objective, options, remarks)
    if total * cost.step + settings.validations * cost.validation <= seconds:
        return plan
    least = _least_steps(objective, seconds, cost)
    if cost.validation > max(LEAST_SECONDS, ONE_VALIDATION * seconds):
        deadline.record_cut("no validation: one alone would take more than half of the time.")
        steps = max(least, int(seconds / cost.step))
        return plan._replace(options={**options, "steps": steps}, validated=False)
    count = _affordable_count(VALIDATION_SHARE * seconds, cost.validation, settings)
    steps = max(least, int((seconds - count * cost.validation) / cost.step))
    return plan._replace(options={**options, "steps": steps, "validations": count})


def _options_of(objective: Learner, options: JsonObject) -> tuple[JsonObject, list[str]]:
    """The options that go with an objective, and a remark on those that do not."""
    if not isinstance(objective, Update):
        return {"patience": PATIENCE, **options}, []
    idle = [name for name in options if name in OF_OPTIMIZERS and options[name] is not None]
    if not idle:
        return options, []
    name = type(objective).__name__
    remark = f"fitted without {', '.join(idle)}: {name} takes closed-form updates."
    return {name: value for name, value in options.items() if name not in idle}, [remark]


def _least_steps(objective: Learner, seconds: float, cost: Cost) -> int:
    """Steps that are taken in any case; refuses a sampler that has no time for the draws that its
    score needs.
    """
    fewest = _fewest(objective)
    if fewest > 1 and fewest * cost.step > max(seconds, LEAST_SECONDS):
        allowed = (
            f"be enough for {fewest} sweeps of {type(objective).__name__}, for of fewer draws "
            "nothing tells how far off a score is"
        )
        got = f"{max(0.0, seconds):.1f} seconds, and each takes {cost.step:.1f}"
        raise invalid("fit", "the time", allowed, got, "Give more minutes.")
    return max(fewest, min(LEAST_STEPS, int(LEAST_SECONDS / cost.step)))


def _fewer_starts(objective: EM, seconds: float, cost: Cost) -> EM:
    """An objective that tries several starts first, with as many as there is time for."""
    shorter = objective.within(seconds / (cost.step + cost.start / objective.trial))
    if shorter != objective:
        deadline.record_cut(
            f"{shorter.restarts} of {objective.restarts} starts tried: there was no time for more."
        )
    return shorter


def _measured(
    model: Model,
    objective: Learner,
    rows: Rows,
    validation: Rows | None,
    settings: Settings,
    seed: int,
) -> tuple[Cost, int]:
    """What a fit costs and how many steps its defaults have, by a copy that is thrown away."""
    alone = objective.within(0) if isinstance(objective, EM) else objective
    started = deadline.now()
    session = start_session(
        copy.deepcopy(model), rows, alone, settings, generator=rng.keyed(seed, TIMING)
    )
    start, step = deadline.now() - started, _seconds_per_step(session)
    scoring = 0.0 if validation is None else _seconds_to_validate(session, validation)
    return Cost(start, step, scoring), session.total


def _seconds_per_step(session: Session) -> float:
    """The mean of some steps without the first, which may have had to get ready; on a busy machine
    few steps take most of the time.
    """
    times: list[float] = []
    while session.team.broadcast(
        sum(times) < TIMING_SECONDS
        or (len(times) < 2 and sum(times) < TIMING_SHARE * deadline.left())
    ):
        begun = deadline.now()
        _step_to_time(session)
        times.append(deadline.now() - begun)
    return statistics.fmean(times[1:] or times)


def _validator(session: Session, validation: Rows) -> Callable[..., None]:
    """A validation to time, with the evaluator of the fit or another."""
    model = session.bare
    x = validation.tensor(rng.keyed(session.key, HELD_OUT)).to(model.like)

    def validate(evaluator: Evaluator | None = None) -> None:
        evaluator = evaluator or quick_evaluator(model)
        evaluate(model, x, evaluator=evaluator, generator=rng.keyed(session.key))

    return validate


def _seconds_to_validate(session: Session, validation: Rows) -> float:
    """Of one validation, by short ones where it is an annealing.

    Draws of a posterior grow in number, and take as much longer when all are kept.
    """
    validate, evaluator = _validator(session, validation), quick_evaluator(session.bare)
    if isinstance(evaluator, AIS | Sandwich) and evaluator.temperatures:
        cost = annealing_cost(
            lambda temperatures: validate(
                replace(evaluator, temperatures=temperatures, adaptive=False)
            )
        )
        # a pilot run takes up to as long again
        return (1 + evaluator.adaptive) * (cost.start + evaluator.temperatures * cost.each)
    seconds = _seconds_when_ready(validate)
    if isinstance(session.objective, PartitionChain) and isinstance(session.bare, DPMixture):
        seconds *= session.objective.keep / len(session.bare.sweeps)
    return seconds


class AnnealingCost(NamedTuple):
    """Seconds of an annealing: of all that its temperatures have in common, and of each of them."""

    start: float
    each: float


def annealing_cost(anneal: Callable[[int], object]) -> AnnealingCost:
    """Measured by two short annealings, or by one where that takes so long that there is no time
    for another.
    """
    short, longer = TRIALS
    first = _seconds_when_ready(lambda: anneal(short))
    if processes.current().broadcast(first > TIMING_SHARE * deadline.left()):
        return AnnealingCost(0.0, first / short)
    begun = deadline.now()
    anneal(longer)
    each = max(LEAST_GROWTH * first, deadline.now() - begun - first) / (longer - short)
    return AnnealingCost(max(0.0, first - short * each), each)


def _seconds_when_ready(work: Callable[[], object]) -> float:
    """Of a second call where the first was short, and so perhaps long for what it had to import."""
    seconds = 0.0
    for _ in range(2):
        begun = deadline.now()
        work()
        seconds = deadline.now() - begun
        if processes.current().broadcast(seconds > LEAST_SECONDS):
            break
    return seconds
