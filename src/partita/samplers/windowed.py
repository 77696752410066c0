"""Kernels whose warm-up learns how far chains spread, beside the step size, in Stan's windows: a
beginning that is passed over, windows that double, and an end in which the step size alone is
adapted.
"""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Protocol, TypeVar

from partita.samplers import moments
from partita.samplers import step_size as sizes
from partita.samplers.adaptive import Adapting, Adaptive
from partita.samplers.moments import Moments

BEGINNING, END, FIRST = 75, 50, 25  # steps of a warm-up of 150 or more, and of its first window
PART_BEGINNING, PART_END = 0.15, 0.1  # of a shorter one


class Spreading(Adapting, Protocol):
    """The state of a kernel that learns the spread of its chains."""

    @property
    def spread(self) -> Moments: ...


Spread = TypeVar("Spread", bound=Spreading)


@dataclass(frozen=True)
class Windowed(Adaptive[Spread]):
    """A kernel whose coordinates are scaled by what windows of its warm-up show."""

    fresh_size: ClassVar[float] = 1.0  # of steps in coordinates that were scaled just now

    def learns_spread(self) -> bool:
        """Whether windows are looked at."""
        return self.metric is None

    def reopen(self, state: Spread) -> Spread:
        size = sizes.reopened(state.size, self.warm_up)
        before = state.spread.before.clamp_max(self.warm_up // 2 - int(size.steps))
        return state._replace(size=size, spread=state.spread._replace(before=before))

    def warming_up(self, state: Spread) -> bool:
        return int(state.spread.before + state.size.steps) < self.warm_up

    def spread_after(self, before: Spread, state: Spread) -> Spread:
        """What is known of the spread after a step; at the end of a window the search for a step
        size begins anew.
        """
        if not self.learns_spread() or not self.warming_up(before):
            return state
        done = int(state.spread.before + state.size.steps)
        begin, ends = windows(self.warm_up)
        if begin < done <= ends[-1]:
            state = state._replace(spread=moments.gathered(state.spread, state.x))
        if done not in ends:
            return state
        known = state.size.average.exp() if int(state.spread.before) else self.fresh_size
        size = sizes.start(known, state.energy)._replace(stuck=state.size.stuck)
        return state._replace(size=size, spread=moments.closed(state.spread, done))


@cache
def windows(warm_up: int) -> tuple[int, tuple[int, ...]]:
    """The step at which the first window begins, and the steps at which each ends.

    >>> windows(1000)
    (75, (100, 150, 250, 450, 950))
    """
    begin, end = BEGINNING, END
    if begin + FIRST + end > warm_up:
        begin, end = int(PART_BEGINNING * warm_up), int(PART_END * warm_up)
    last, ends, width, at = warm_up - end, [], FIRST, begin
    while at < last:
        # the last window takes what is left where another, twice as wide, has no room
        at = at + width if at + 3 * width <= last else last
        ends.append(at)
        width *= 2
    return begin, tuple(ends)
