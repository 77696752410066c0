"""Minutes into steps: a short warm-up on throw-away copies is timed, and the number of steps is fixed from it."""

import copy
import time
from collections.abc import Callable

from partita.core import processes
from partita.training.session import Session

WARM_UP_SECONDS = (4.0, 30.0)  # of short and of long fits
WARM_UP_SHARE = 0.02  # of the time between them; machines are not as fast for minutes as for seconds
LEAST_STEPS = 10


def steps_within(minutes: float, make_session: Callable[[int], Session], set_aside: float = 0.0) -> int:
    """How many steps fit into ``minutes`` less the warm-up and the seconds set aside; the run then depends on that number alone."""
    started = time.monotonic()
    seconds = 60 * minutes - set_aside
    session, team = make_session(1 << 40), processes.current()
    before = copy.deepcopy(session.tree())
    for _ in range(5):
        session.advance()
    warm = time.monotonic()
    short, long = WARM_UP_SECONDS
    limit = min(6 * minutes, max(short, min(long, WARM_UP_SHARE * seconds)))
    timed = 0
    while timed == 0 or team.told(time.monotonic() - warm < limit):
        session.advance()
        timed += 1
    per_step = (time.monotonic() - warm) / timed
    session.restore(before)
    if session.optimiser is not None:
        session.optimiser.state.clear()
    return team.told(max(LEAST_STEPS, int((seconds - (time.monotonic() - started)) / per_step)))
