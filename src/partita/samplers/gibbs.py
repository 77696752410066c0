r"""Gibbs sampling: both layers in turn where they factorize, else one coordinate after the other,
for all chains at once.

.. math:: h \sim p(h \mid x),\; x \sim p(x \mid h) \qquad\text{or}\qquad
          p(x_i = v \mid x_{\setminus i}) \propto e^{-F(x_{i \to v})}
          (theory/sampling.md, eq. 4.1, 4.2)
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import PositiveInt
from partita.core.capability import require
from partita.core.protocols import Capability, Chains, EnergyModel, Field, Sampler
from partita.samplers.sweep import Order, draw_order, pair_sweeps


class SiteChanges(NamedTuple):
    """The chains before and after a step, from which diagnoses are computed on demand."""

    before: Tensor  # (*, C, D)
    after: Tensor

    def numbers(self) -> dict[str, Tensor]:
        """``moved``: the fraction of coordinates that changed, ``(*, C)``."""
        return {"moved": (self.before != self.after).float().mean(-1)}


class SiteSampler(Sampler[Chains]):
    """A kernel on discrete coordinates, which remembers x alone."""

    def place(
        self,
        model: EnergyModel,
        state: Chains,
        x: Tensor,
        field: Field | None = None,
        *,
        generator: torch.Generator,
    ) -> Chains:
        return Chains(x, field)


@dataclass(frozen=True)
class Gibbs(SiteSampler):
    """A kernel on x that leaves every model with tractable conditionals invariant.

    Arguments:
        sweeps: Passes over all coordinates in one step.
        order: Of the coordinates, where they are drawn one by one: ``"random"``, drawn anew for
            every pass; ``"sequential"``; or ``"colors"``, all coordinates of one color of the
            model's graph before the next: the checkerboard of a lattice.
    """

    sweeps: PositiveInt = 1
    order: Order = "random"

    def init(self, model: EnergyModel, x: Tensor, *, generator: torch.Generator) -> Chains:
        require("Gibbs", model)
        return Chains(x)

    @torch.no_grad()
    def step(
        self, model: EnergyModel, state: Chains, *, generator: torch.Generator
    ) -> tuple[Chains, SiteChanges]:
        x, field = state
        model = model.given_component(x, generator=generator)
        if Capability.PAIRS in model.capabilities:
            x = pair_sweeps(model, x, self.sweeps, self.order, generator)
            return Chains(x), SiteChanges(state.x, x)
        for _ in range(self.sweeps):
            if Capability.CONDITIONALS in model.capabilities:
                x = block_sweep(model, x, field, generator)
            else:
                x = site_sweep(model, x, generator, self.order)
            field = None
        return Chains(x), SiteChanges(state.x, x)


def block_sweep(model: Any, x: Tensor, field: Field | None, generator: torch.Generator) -> Tensor:
    """All hidden units given x, then all visible ones given h; two matrix products, one if the
    field is known.
    """
    h = rng.draw(model.hidden_given_visible(x, field=field), generator)
    return rng.draw(model.visible_given_hidden(h), generator)


def site_sweep(
    model: EnergyModel, x: Tensor, generator: torch.Generator, order: Order = "random"
) -> Tensor:
    """One coordinate after the other, each from its exact conditional; a random order makes the
    sweep reversible.
    """
    x = x.clone()
    values = model.support.values().to(x)
    u = rng.uniform((x.shape[-1], *x.shape[:-1], 1), x, generator)
    for i in draw_order(order, x.shape[-1], None, generator).tolist():
        edges = torch.softmax(-model.site_energies(x, i, values), 0).movedim(0, -1).cumsum(-1)
        x[..., i] = values[(u[i] > edges[..., :-1]).sum(-1)]
    return x
