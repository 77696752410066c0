r"""Ladders of replica exchange on their way from the reference to the model, and what they show of
each step between neighboring rungs.

Letters: C ladders, T rungs, D visible, n steps.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.protocols import EnergyModel, Sampler
from partita.diagnostics.round_trips import RoundTrips
from partita.evaluators.partition.annealing import from_reference
from partita.evaluators.partition.modes import settle
from partita.runtime import processes

KEPT = 16  # states of each ladder's top rung, evenly over the steps of one stretch
STEPS_ON_A_RUNG = 10  # of the kernel, on the way to where the ladders begin


class Seen(NamedTuple):
    """What C ladders show in n steps: energy differences to the rung above and below, what must
    have mixed, and how states traveled.
    """

    up: Tensor  # (T - 1, C, n)
    down: Tensor  # (T - 1, C, n)
    energies: Tensor  # (T + 1, C, n), of every rung, and of the top one by the reference
    trips: Tensor  # (T, C), round trips of each replica
    from_modes: Tensor  # (1, C), whether a ladder was annealed down from a mode
    top: Tensor  # (m, C, D), some states at beta = 1

    def reached(self, n: int, generator: torch.Generator) -> Tensor:
        """States at beta = 1 of ladders that began at the reference."""
        x = self.top[:, ~self.from_modes[0].to(self.top.device)].flatten(0, 1)
        return x[rng.permutation(len(x), generator)[:n]]


class Stretch(NamedTuple):
    """Some steps of all ladders."""

    up: Tensor  # (T - 1, C, n)
    down: Tensor  # (T - 1, C, n)
    energies: Tensor  # (T + 1, C, n)
    top: Tensor  # (m, C, D)
    trips: Tensor  # (T, C), made up to its end


class Ladders:
    """Ladders that can go on where they were. Every second one was annealed down from a mode, the
    others up from the reference.

    Processes that work together share them out; each keeps the states of its own, and what they
    show is known to all.

    Arguments:
        betas: Of the rungs, rising from 0 to 1.
        modes: States in modes, of which each ladder from a mode takes its own, ``(C, D)``.
    """

    def __init__(
        self,
        model: EnergyModel,
        kernel: Sampler,
        betas: Tensor,
        modes: Tensor,
        generator: torch.Generator,
    ) -> None:
        self.model, self.betas, self.chains = model, betas, len(modes)
        self.ladder: Any = capability.part_named("Tempering")(kernel, tuple(betas.tolist()))
        up = climb(model, kernel, betas, from_reference(model, self.chains, generator), generator)
        down = climb(model, kernel, betas.flip(0), modes, generator).flip(0)
        self.from_modes = (torch.arange(self.chains) % 2 == 1)[None]
        self.starts = torch.where(self.from_modes[0, :, None].to(up.device), down, up)
        self.state: Any = None
        self.trips: RoundTrips | None = None
        self.stretches: list[Stretch] = []

    def go_on(self, steps: int, generator: torch.Generator) -> None:
        """Move all ladders by some steps and keep what they show."""
        shown = processes.shared_out(
            self.chains, lambda part, own: self._stretch(part, steps, own), generator
        )
        self.stretches.append(Stretch(*(torch.cat(parts, 1) for parts in zip(*shown, strict=True))))

    def seen(self, burn_in: int) -> Seen:
        """What was shown after the first ``burn_in`` steps; round trips count from the
        beginning.
        """
        up, down, energies = (
            torch.cat(parts, -1)[..., burn_in:]
            for parts in list(zip(*self.stretches, strict=True))[:3]
        )
        top = torch.cat([part.top for part in self.stretches])
        late = math.ceil(len(top) * burn_in / (burn_in + up.shape[-1]))
        return Seen(
            up,
            down,
            energies,
            self.stretches[-1].trips,
            self.from_modes,
            top[min(late, len(top) - 1) :],
        )

    @torch.no_grad()
    def _stretch(self, part: slice, steps: int, generator: torch.Generator) -> Stretch:
        if self.state is None or self.trips is None:
            starts = self.starts[:, part]
            self.state = self.ladder.init(self.model, starts[-1], generator=generator)._replace(
                ladder=starts
            )
            self.trips = RoundTrips.begin(*starts.shape[:2], device=starts.device)
        up, down, energies, top, apart = [], [], [], [], math.ceil(steps / KEPT)
        for step in range(steps):
            self.state, info = self.ladder.step(self.model, self.state, generator=generator)
            self.trips = self.trips.after(info.origin)
            self.state = self.state._replace(field=info.field)
            own, above, below = (each.double() for each in info.energies[:3])
            up.append(above)
            down.append(below)
            # the last sees what the model does not, but the reference
            energies.append(torch.cat([above, own[-1:], below[-1:]]))
            top += [self.state.ladder[-1]] if step % apart == 0 else []
        return Stretch(
            torch.stack(up, -1),
            torch.stack(down, -1),
            torch.stack(energies, -1),
            torch.stack(top),
            self.trips.made.cpu(),
        )


def climb(
    model: EnergyModel, kernel: Sampler, betas: Tensor, x: Tensor, generator: torch.Generator
) -> Tensor:
    """Chains that go from rung to rung, with some steps on each; where they were, ``(T, C, D)``."""
    places = []
    for beta in betas.tolist():
        x = settle(model.annealed(beta), kernel, x, generator, STEPS_ON_A_RUNG)
        places.append(x)
    return torch.stack(places)
