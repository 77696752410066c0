r"""Step sizes that are learned in a warm-up and then fixed: dual averaging of the acceptance
(Nesterov 2009, Hoffman and Gelman 2014).

.. math:: \bar e_t = \bar e_{t-1} + \frac{\delta - a_t - \bar e_{t-1}}{t + t_0}, \quad
          \log \epsilon_t = \mu - \frac{\sqrt t}{\gamma} \bar e_t, \quad
          \overline{\log \epsilon}_t = t^{-\kappa} \log \epsilon_t + (1 - t^{-\kappa})
          \overline{\log \epsilon}_{t-1}
          (theory/gradient_samplers.md, eq. 31.5)

All chains of a rung share one step size, so a is their mean acceptance.

Letters: C chains, T temperatures.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from partita.core.arguments import check_real
from partita.errors import invalid

GAMMA, DELAY, DECAY = 0.05, 10.0, 0.75
# inverse temperatures, the step size at each, and the shortest that chains draw where there is one
Schedule = tuple[tuple[float, ...], ...]


class StepSize(NamedTuple):
    """What the adaptation knows, one number for each rung, ``(*, 1)``."""

    log_size: Tensor
    average: Tensor  # of log_size
    error: Tensor  # mean of wanted minus seen acceptance
    center: Tensor  # mu
    steps: Tensor  # (), of adaptation made
    stuck: Tensor  # steps in a row in which no chain moved


def start(size: float | Tensor, like: Tensor) -> StepSize:
    """No experience yet; ``like`` is the energy of the chains, ``(*, C)``."""
    one = torch.as_tensor(size, dtype=like.dtype, device=like.device)
    log_size = one.log().expand(*like.shape[:-1], 1).clone()
    nought = torch.zeros_like(log_size)
    return StepSize(log_size, log_size, nought, log_size, torch.zeros((), dtype=torch.long), nought)


def adapted(size: StepSize, acceptance: Tensor, wanted: float) -> StepSize:
    """One step of dual averaging, from the mean acceptance ``(*, 1)``."""
    t = int(size.steps) + 1
    error = torch.lerp(size.error, wanted - acceptance, 1 / (t + DELAY))
    log_size = size.center - math.sqrt(t) / GAMMA * error
    return size._replace(
        log_size=log_size,
        average=torch.lerp(size.average, log_size, t**-DECAY),
        error=error,
        steps=size.steps + 1,
    )


def reopened(size: StepSize, warm_up: int) -> StepSize:
    """The target has changed, so the second half of the warm-up begins again."""
    return size._replace(steps=size.steps.clamp_max(warm_up // 2))


def check_schedule(owner: str, parameter: str, schedule: Schedule) -> None:
    """As many step sizes above 0 as inverse temperatures, once or twice."""
    columns = (
        isinstance(schedule, tuple | list)
        and len(schedule) in (2, 3)
        and all(isinstance(part, tuple | list) for part in schedule)
    )
    if not columns or len({len(part) for part in schedule}) != 1 or not schedule[0]:
        allowed = "be inverse temperatures and as many step sizes"
        raise invalid(owner, parameter, allowed, repr(schedule))
    for beta, *lengths in zip(*schedule, strict=True):
        check_real(owner, parameter, beta, 0)
        for size in lengths:
            check_real(owner, parameter, size, 0, open_low=True)


def scheduled(schedule: Schedule, beta: Tensor) -> list[Tensor]:
    """The step sizes at ``beta``, the longest and, where there is one, the shortest: linear between
    the temperatures of the schedule.
    """
    betas, *columns = (beta.new_tensor(column) for column in schedule)
    above = torch.searchsorted(betas, beta.contiguous()).clamp(1, len(betas) - 1)
    share = ((beta - betas[above - 1]) / (betas[above] - betas[above - 1])).clamp(0, 1)
    return [torch.lerp(sizes[above - 1], sizes[above], share) for sizes in columns]
