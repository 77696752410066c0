"""Step sizes for chains that begin in modes: a pilot from the reference may never have seen a
narrow one, and its steps are then too long to leave or to cross it.

Letters: N states, D visible.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from partita.core.protocols import EnergyModel, Sampler
from partita.errors import Diverged

STEPS = 25  # of adaptation at each temperature
SHORTER = 2.0  # times by which steps must be too long for shorter ones to be taken
KEY = 1409


@torch.no_grad()
def suited_to(kernel: Sampler, model: EnergyModel, x: Tensor) -> Sampler:
    """The kernel with steps no longer than states ``x`` allow, ``(N, D)``, on their way down from
    the model; itself where it has no tuned steps or they suit.
    """
    schedule: tuple[tuple[float, ...], tuple[float, ...]] | None = getattr(kernel, "schedule", None)
    if schedule is None or not len(x):
        return kernel
    generator = torch.Generator(x.device).manual_seed(KEY)
    adaptive: Any = replace(kernel, schedule=None, warm_up=STEPS)  # type: ignore[type-var]
    betas, sizes = schedule
    size, shorter = sizes[-1], list(sizes)
    try:
        for i in reversed(range(len(betas))):
            target = model.annealed(betas[i])
            adaptive = replace(adaptive, step_size=size)
            state = adaptive.init(target, x, generator=generator)
            for _ in range(STEPS):
                state, _ = adaptive.step(target, state, generator=generator)
            x = state.x
            size = float(state.size.average.exp().mean())
            if SHORTER * size < sizes[i]:
                shorter[i] = size
    except Diverged:  # what cannot be tuned is named where the chains run
        return kernel
    return replace(kernel, schedule=(betas, tuple(shorter)))  # type: ignore[type-var]
