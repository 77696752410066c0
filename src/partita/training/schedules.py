r"""When a fit is scored on held-out rows: closely at first, where a small set may soon be learned
by heart, then less often.

.. math:: t_i = \lfloor T \, (i / V)^2 \rfloor, \qquad i = 1, \dots, V

Letters: T steps in all, V validations, t the steps after which they come. The health of the fit is
looked at as often, evenly spread: a good state to go back to must not be the one just before a
divergence.
"""

from typing import NamedTuple

from partita.training.session import Session


class ValidationSchedule(NamedTuple):
    """The steps of all validations, the number of steps, and the mean distance between two looks,
    by which patience is counted.
    """

    steps: frozenset[int]
    total: int
    gap: int

    def score(self, step: int) -> bool:
        """Whether held-out rows are scored after a step."""
        return step in self.steps

    def health(self, step: int) -> bool:
        """Whether the guard looks after a step."""
        return step % self.gap == 0 or step == self.total

    def missed(self, step: int, best: int) -> int:
        """How many looks, had they been spread evenly, would have come after the best one up to
        now.
        """
        return (step - best) // self.gap


def planned(session: Session) -> ValidationSchedule:
    """As many as the settings say, the last at the last step; every so many epochs where that was
    asked for.

    A fit of 400 steps with four validations has them after 25, 100, 225 and 400.
    """
    total, count = session.total, session.settings.validations
    if session.settings.validate_every is not None:
        gap = session.settings.validate_every * session.steps_per_epoch
        return ValidationSchedule(frozenset([*range(gap, total, gap), total]), total, gap)
    return ValidationSchedule(
        frozenset(max(1, total * i * i // count**2) for i in range(1, count + 1)),
        total,
        max(1, total // count),
    )
