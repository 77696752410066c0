"""Minutes into steps: a short warm-up on throw-away copies is timed, and the number of steps is
fixed from it.

A machine may slow down afterwards: a fit that has a time to end by
(:mod:`partita.runtime.deadline`) stops there, whatever its plan was.
"""

import copy
from collections.abc import Callable

from partita.runtime import deadline, processes
from partita.training.history import Record
from partita.training.session import Session

WARM_UP_SECONDS = (4.0, 30.0)  # of short and of long fits
# of the time between them; machines are not as fast for minutes as for seconds
WARM_UP_SHARE = 0.02
LEAST_STEPS = 10  # that are taken in any case,
LEAST_SECONDS = 1.0  # or as many as this takes
OUT_OF_TIME = "out of time"  # why such a fit ended


def steps_within(
    minutes: float, make_session: Callable[[int], Session], set_aside: float = 0.0
) -> int:
    """How many steps fit into ``minutes`` less the warm-up and the seconds set aside; the run then
    depends on that number alone.
    """
    started = deadline.now()
    seconds = 60 * minutes - set_aside
    session, team = make_session(1 << 40), processes.current()
    before = copy.deepcopy(session.tree())
    for _ in range(5):
        session.advance()
    warm = deadline.now()
    short, long = WARM_UP_SECONDS
    limit = min(6 * minutes, max(short, min(long, WARM_UP_SHARE * seconds)))
    timed = 0
    while timed == 0 or team.told(deadline.now() - warm < limit):
        session.advance()
        timed += 1
    per_step = (deadline.now() - warm) / timed
    session.restore(before)
    if session.optimizer is not None:
        session.optimizer.state.clear()
    return team.told(max(LEAST_STEPS, int((seconds - (deadline.now() - started)) / per_step)))


def out_of_time(session: Session, seconds: float) -> bool:
    """Whether the time to end by has come for a fit of so many seconds, and it has taken the steps
    that are taken in any case.
    """
    fewest = getattr(session.objective, "fewest", 1)
    return (
        deadline.left() < 0
        and session.step >= fewest
        and (session.step >= LEAST_STEPS or seconds >= LEAST_SECONDS)
    )


def ending(session: Session) -> Record:
    """What is recorded of a fit that ran out of time."""
    done = f"stopped after {session.step:,} of {session.total:,} steps"
    return {
        "step": session.step,
        "event": "the time was up: steps took longer than when their number was fixed.",
        "done": done,
    }
