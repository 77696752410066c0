r"""Tempering: one chain per temperature, neighbors exchanged by the Metropolis rule.

.. math:: \log a = F_i(x_i) + F_j(x_j) - F_i(x_j) - F_j(x_i)          (theory/sampling.md, eq. 4.3)
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import check_real, check_tensor
from partita.core.capability import require
from partita.core.protocols import (
    ChainState,
    EnergyModel,
    Field,
    Neighbors,
    Sampler,
    StepInfo,
    check_kernel,
)
from partita.errors import Unsupported, invalid


class LadderState(NamedTuple):
    """All rungs, the last at beta = 1; ``parity`` says which neighbors are exchanged next."""

    ladder: Tensor  # (T, C, D)
    parity: Tensor  # ()
    # what the kernel remembers of every rung, such as step sizes; empty where it remembers nothing
    kernel: ChainState | tuple[()] = ()
    field: Field | None = None  # at the ladder, if it is known

    @property
    def x(self) -> Tensor:
        """The chains of the model itself, ``(C, D)``."""
        return self.ladder[-1]


class LadderInfo(NamedTuple):
    """What the kernel did on every rung, the share of accepted exchanges, the rung from which each
    rung's state came, the energies before it came, and the field afterward, which saves the next
    step of the same model a product.
    """

    kernel: StepInfo
    swapped: Tensor  # ()
    origin: Tensor  # (T, C)
    energies: Neighbors
    field: Field | None

    def numbers(self) -> dict[str, Tensor]:
        """``swapped``, and the kernel's numbers on the model's own rung."""
        own = {name: value[-1] for name, value in self.kernel.numbers().items()}
        return {"swapped": self.swapped, **own}


@dataclass(frozen=True)
class Tempering(Sampler[LadderState]):
    """Replica exchange around any kernel on x.

    Arguments:
        kernel: Moves every rung.
        betas: Inverse temperatures, rising, from 0 or more to exactly 1.
    """

    kernel: Sampler
    betas: tuple[float, ...] = field(
        default_factory=lambda: tuple(torch.linspace(0, 1, 11).tolist())
    )

    kernel_on = "ladder"

    def __post_init__(self) -> None:
        given: object = self.betas
        if isinstance(given, Tensor):
            check_tensor("Tempering", "betas", given)
        if isinstance(given, Tensor | np.ndarray | np.generic):
            given = given.tolist()
        listed = given if isinstance(given, tuple | list) else ()
        betas = tuple(check_real("Tempering", "betas", beta) for beta in listed)
        object.__setattr__(self, "betas", betas)
        rising = all(a < b for a, b in pairwise(betas))
        if len(betas) < 2 or not rising or betas[0] < 0 or betas[-1] != 1:
            raise invalid("Tempering", "betas", "rise from 0 or more to exactly 1", list(betas))
        check_kernel("Tempering", "kernel", self.kernel)
        if self.kernel.kernel_on != "x":
            got = f"{self.kernel}, which moves a {self.kernel.kernel_on}"
            raise invalid("Tempering", "kernel", "move x, such as Gibbs()", got)

    def init(self, model: EnergyModel, x: Tensor, *, generator: torch.Generator) -> LadderState:
        require("Tempering", model)
        ladder = x.expand(len(self.betas), *x.shape).clone()
        first, *others = model.rungs(self._betas(x))
        if others and self.kernel.remembers:
            raise Unsupported(
                f"Tempering along the weights that {model.title()} had needs a kernel that "
                f"remembers x alone, and {type(self.kernel).__name__} remembers more. Use Gibbs() "
                "instead."
            )
        inner = self.kernel.init(first, ladder, generator=generator)
        return LadderState(ladder, torch.zeros((), dtype=torch.long), self._remembered(inner))

    @torch.no_grad()
    def step(
        self, model: EnergyModel, state: LadderState, *, generator: torch.Generator
    ) -> tuple[LadderState, LadderInfo]:
        betas = self._betas(state.ladder)
        models = model.rungs(betas)
        ladder, field = self._renewed(model, state, generator)
        moved = [
            self._moved(rungs, state.kernel, x, field, generator)
            for rungs, x in zip(models, ladder.chunk(len(models)), strict=True)
        ]
        inner, info = moved[-1]
        x = torch.cat([each.x for each, _ in moved])
        ladder, swapped, origin, energies = exchange(model, x, betas, int(state.parity), generator)
        following = LadderState(ladder, 1 - state.parity, self._remembered(inner))
        field = exchanged(energies.field, ladder, origin)
        return following, LadderInfo(info, swapped, origin, energies, field)

    def place(
        self,
        model: EnergyModel,
        state: LadderState,
        x: Tensor,
        field: Field | None = None,
        *,
        generator: torch.Generator,
    ) -> LadderState:
        """The ladder with its top rung at ``x``; the others stay where they are, or start at ``x``
        too where the number of chains differs.
        """
        if state.ladder.shape[1:] == x.shape:
            return state._replace(ladder=torch.cat([state.ladder[:-1], x[None]]))
        return state._replace(ladder=x.expand(len(self.betas), *x.shape).clone())

    def reopen(self, state: LadderState) -> LadderState:
        return state._replace(kernel=self.kernel.reopen(state.kernel))

    def _moved(
        self,
        rungs: EnergyModel,
        remembered: ChainState | tuple[()],
        x: Tensor,
        field: Field | None,
        generator: torch.Generator,
    ) -> tuple[ChainState, StepInfo]:
        placed = self.kernel.place(rungs, remembered, x, field, generator=generator)
        return self.kernel.step(rungs, placed, generator=generator)

    def _renewed(
        self, model: EnergyModel, state: LadderState, generator: torch.Generator
    ) -> tuple[Tensor, Field | None]:
        """The ladder with fresh draws of the reference where it has a rung there, for what arrives
        at it forgets where it was; and the field, if it is known.
        """
        ladder, field = state.ladder, state.field
        if self.betas[0] > 0 or not model.begins_exactly:
            return ladder, field
        fresh = model.reference().draw(ladder.shape[1], generator=generator).to(ladder)[None]
        ladder = torch.cat([fresh, ladder[1:]])
        if field is None or field.input is None:
            return ladder, None
        begun = model.field(fresh).input
        assert begun is not None
        return ladder, Field(ladder, torch.cat([begun, field.input[1:]]))

    def _remembered(self, inner: ChainState) -> ChainState | tuple[()]:
        return inner if self.kernel.remembers else ()

    def _betas(self, like: Tensor) -> Tensor:
        return like.new_tensor(self.betas)


def exchange(
    model: EnergyModel, ladder: Tensor, betas: Tensor, parity: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Neighbors]:
    """Offer an exchange to every second pair of neighbors; the ladder, the share accepted, the rung
    each state came from, ``(T, C)``, and the energies that decided.
    """
    # two rungs are offered theirs every time
    low = torch.arange(parity % (len(betas) - 1), len(betas) - 1, 2, device=ladder.device)
    energies = model.neighbors(ladder, betas)
    log_accept = energies.up[low] + energies.down[low]
    accept = rng.uniform(log_accept.shape, log_accept, generator).log() < log_accept
    origin = torch.arange(len(betas), device=ladder.device)[:, None].repeat(1, ladder.shape[1])
    origin[low] += accept.long()
    origin[low + 1] -= accept.long()
    swapped = ladder.gather(0, origin[..., None].expand_as(ladder))
    return swapped, accept.to(log_accept.dtype).mean(), origin, energies


def exchanged(field: Field | None, ladder: Tensor, origin: Tensor) -> Field | None:
    """The field of states that came from other rungs and make up the ladder now."""
    if field is None or field.input is None:
        return None
    return Field(ladder, field.input.gather(0, origin[..., None].expand_as(field.input)))
