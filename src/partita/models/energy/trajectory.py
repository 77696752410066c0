r"""A path to a model along the weights that it had while it was trained.

.. math:: F_u(x) = F\big(x;\, (1 - s)\,\theta_k + s\,\theta_{k+1}\big), \qquad u K = k + s
          (theory/scoring.md, eq. 5.33)

Training goes from easy to hard: a model learns its modes one after the other, so states follow
them where a falling temperature would have to find them all at once. Before the first weights the
path is their own, from the reference; at 1 it is the model, whatever its weights are now.

Letters: K weights on the way and the model's own, D visible, T rungs, C chains.
"""

import copy
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor, nn

from partita.core.protocols import Data, EnergyModel, Neighbors, Reference, Settings

AT_HAND = 64  # places on the path whose weights are kept

AnyModule = TypeVar("AnyModule", bound=nn.Module)


class Trajectory(EnergyModel):
    """A view of a model whose path goes through ``weights``, earliest first."""

    base: EnergyModel

    def __init__(self, base: EnergyModel, weights: Sequence[Mapping[str, Tensor]]) -> None:
        super().__init__()
        object.__setattr__(self, "base", base)  # not a submodule: a view owns no parameters
        self.support, self.capabilities = base.support, base.capabilities
        self.differentiable = base.differentiable
        own = {name: p.detach() for name, p in base.named_parameters()}
        on_the_way = [{name: value.to(own[name]) for name, value in w.items()} for w in weights]
        self.knots = [*on_the_way, own]
        self._at_hand: OrderedDict[float, EnergyModel] = OrderedDict()

    def at(self, u: float) -> EnergyModel:
        """The model at one place on the path."""
        if u not in self._at_hand:
            self._at_hand[u] = self._made_at(u)
            if len(self._at_hand) > AT_HAND:
                self._at_hand.popitem(last=False)
        return self._at_hand[u]

    def _made_at(self, u: float) -> EnergyModel:
        if u >= 1:
            return self.base
        place = u * len(self.knots)
        k, s = int(place), place - int(place)
        if k == 0:
            return reweighted(self.base, self.knots[0]).annealed(s)
        start, end = self.knots[k - 1], self.knots[k]
        return reweighted(self.base, {name: torch.lerp(start[name], end[name], s) for name in end})

    def free_energy(self, x: Tensor) -> Tensor:
        return self.base.free_energy(x)

    def energy_along(self, field: Any, beta: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(beta.shape, field.x.shape[:-1])
        rows = field.x.expand(*shape, field.x.shape[-1]).reshape(
            beta.numel(), -1, field.x.shape[-1]
        )
        found = [
            self.at(u).free_energy(x) for u, x in zip(beta.flatten().tolist(), rows, strict=True)
        ]
        return torch.stack(found).reshape(shape)

    def neighbors(self, ladder: Tensor, betas: Tensor) -> Neighbors:
        """As of any model, from one pass through each rung's weights."""
        last, found = len(betas) - 1, []
        for t, u in enumerate(betas.tolist()):
            below, above = max(t - 1, 0), min(t + 1, last)
            # the states of the rung below go up to this one, those of the rung above come down
            found.append(self.at(u).free_energy(ladder[[t, below, above]]))
        own, from_below, from_above = torch.stack(found, 1)
        return Neighbors(own, own[:-1] - from_below[1:], own[1:] - from_above[:-1])

    def rungs(self, betas: Tensor) -> list[EnergyModel]:
        return [self.at(u) for u in betas.flatten().tolist()]

    def annealed(self, beta: Tensor | float) -> EnergyModel:
        return self.at(float(beta))

    def given_component(
        self, x: Tensor, beta: Tensor | None = None, *, generator: Generator
    ) -> EnergyModel:
        return self.base if beta is None else self.annealed(beta)

    def reference(self) -> Reference:
        return self.base.reference()

    def landmarks(self, n: int) -> Tensor | None:
        return self.base.landmarks(n)

    def anchor_rows(self, n: int) -> Tensor | None:
        return self.base.anchor_rows(n)

    def initialize(self, data: Data, *, generator: Generator) -> None:
        self.base.initialize(data, generator=generator)

    def settings(self) -> Settings:
        return self.base.settings()

    def title(self) -> str:
        return self.base.title()

    @property
    def like(self) -> Tensor:
        return self.base.like


def reweighted(module: AnyModule, weights: Mapping[str, Tensor]) -> AnyModule:
    """A view of a module with other weights, by their full names.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> other = reweighted(layer, {"weight": torch.ones(1, 2)})
    >>> other(torch.ones(2)).item(), other.weight is layer.weight
    (2.0, False)
    """
    view = copy.copy(module)
    own = {name: weights.get(name, p) for name, p in module.named_parameters(recurse=False)}
    parts = {
        name: reweighted(
            part,
            {
                full.removeprefix(f"{name}."): value
                for full, value in weights.items()
                if full.startswith(f"{name}.")
            },
        )
        for name, part in module.named_children()
    }
    object.__setattr__(view, "_parameters", {**module._parameters, **own})
    object.__setattr__(view, "_modules", {**module._modules, **parts})
    return view
