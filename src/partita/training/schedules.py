r"""When a fit is scored on validation rows: closely at first, where a small set may soon be learned
by heart, then less often.

.. math:: t_i = \lfloor T \, (i / V)^2 \rfloor, \qquad i = 1, \dots, V

Letters: T steps in all, V validations, t the steps after which they come. The health of the fit is
checked as often, evenly spread: a good state to go back to must not be the one just before a
divergence.
"""

from typing import NamedTuple

from partita.training.session import Session


class ValidationSchedule(NamedTuple):
    """The steps of all validations, the number of steps, and the mean distance between two
    validations, by which patience is counted.
    """

    steps: frozenset[int]
    total: int
    gap: int

    def scores(self, step: int) -> bool:
        """Whether validation rows are scored after a step."""
        return step in self.steps

    def checks_health(self, step: int) -> bool:
        """Whether the guard checks the fit after a step."""
        return step % self.gap == 0 or step == self.total

    def missed(self, step: int, best: int) -> int:
        """How many validations, had they been spread evenly, would have followed the best one."""
        return (step - best) // self.gap


def schedule_of(session: Session) -> ValidationSchedule:
    """As many validations as the settings say, the last at the last step; or one every so many
    epochs.

    A fit of 400 steps with four validations has them after 25, 100, 225 and 400.
    """
    total, count = session.total, session.settings.validations
    if session.settings.validate_every is not None:
        gap = session.settings.validate_every * session.steps_per_epoch
        return ValidationSchedule(frozenset([*range(gap, total, gap), total]), total, gap)
    steps = frozenset(max(1, total * i * i // count**2) for i in range(1, count + 1))
    return ValidationSchedule(steps, total, max(1, total // count))
