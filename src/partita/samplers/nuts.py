r"""The no-U-turn sampler: a trajectory that doubles until it turns back on itself (Hoffman and
Gelman 2014), and a draw from all of its places by their weight (Betancourt 2017).

.. math:: P(z) \propto e^{-H(z)}, \qquad
          \text{stop where}\quad p_-^\top \rho \le 0 \;\text{ or }\; p_+^\top \rho \le 0,
          \qquad \rho = \sum_{z} p_z - \tfrac12 (p_- + p_+)
          (theory/gradient_samplers.md, eq. 31.9)

All chains of a batch double together, one leapfrog step at a time; those that have turned wait.
Within a doubling every subtree is tested for turns too, with what O(log) of its leaves leave
behind (Phan, Pradhan and Jankowiak 2019), so nothing is recursive.

Letters: C chains, D visible.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import NonNegativeInt, PositiveInt
from partita.core.capability import require
from partita.core.protocols import EnergyModel, Field
from partita.samplers import moments
from partita.samplers import step_size as sizes
from partita.samplers.adaptive import Acceptance
from partita.samplers.gradient import check_start, energy_and_gradient, leap, slope_metric
from partita.samplers.metric import Coordinates, Stretch
from partita.samplers.moments import Moments
from partita.samplers.step_size import StepSize
from partita.samplers.windowed import Windowed

LOST = 1000.0  # nats by which the total energy may rise before a trajectory counts as diverged


class NUTSState(NamedTuple):
    """The chains with their energy and its gradient, the step size of every rung, and the spread
    by which its coordinates are scaled.
    """

    x: Tensor  # (*, C, D)
    energy: Tensor  # (*, C)
    gradient: Tensor  # (*, C, D)
    size: StepSize
    spread: Moments


class NUTSInfo(NamedTuple):
    """What one step did."""

    accepted: Tensor  # (*, C), whether a chain is elsewhere now
    probability: Tensor  # (*, C), mean over the trajectory of the chance that Metropolis would take
    size: Tensor  # (*, 1) or (*, C)
    diverged: Tensor  # (*, C), trajectories that ended because their energy rose without limit
    depth: Tensor  # (*, C), doublings
    leapfrogs: Tensor  # (*, C), gradients that the trajectory is made of

    def numbers(self) -> dict[str, Tensor]:
        """As of other gradient kernels, and the ``depth`` and ``leapfrogs`` of trajectories."""
        like = self.probability
        return {
            "accepted": self.accepted.to(like),
            "acceptance": like,
            "step_size": self.size.expand(like.shape),
            "diverged": self.diverged.to(like),
            "depth": self.depth.to(like),
            "leapfrogs": self.leapfrogs.to(like),
        }


class Point(NamedTuple):
    """A place of a trajectory."""

    x: Tensor  # (*, C, D)
    momentum: Tensor
    energy: Tensor  # (*, C)
    gradient: Tensor

    def where(self, mask: Tensor, other: "Point") -> "Point":
        """This one in chains where the mask ``(*, C)`` is true, the other elsewhere."""
        row = mask[..., None]
        return Point(
            torch.where(row, self.x, other.x),
            torch.where(row, self.momentum, other.momentum),
            torch.where(mask, self.energy, other.energy),
            torch.where(row, self.gradient, other.gradient),
        )

    @property
    def total(self) -> Tensor:
        """H, ``(*, C)``."""
        return self.energy + 0.5 * self.momentum.square().sum(-1)


class Tree(NamedTuple):
    """A trajectory, or one doubling of it."""

    left: Point
    right: Point
    chosen: Point
    log_weight: Tensor  # (*, C), of all places, over that of the first
    rho: Tensor  # (*, C, D), sum of all momenta
    growing: Tensor  # (*, C), neither turned nor diverged


class Count(NamedTuple):
    """What a step adds up over its leaves, ``(*, C)`` each."""

    probability: Tensor
    leaves: Tensor
    diverged: Tensor


@dataclass(frozen=True)
class NUTS(Windowed[NUTSState]):
    """Trajectories that find their own length.

    Arguments:
        step_size: epsilon at the start of the warm-up, or throughout if ``warm_up`` is 0.
        warm_up: Steps in which the step size, by dual averaging, and the scales of coordinates, in
            windows, are adapted; then both stay.
        acceptance: Wanted mean acceptance along a trajectory.
        schedule: Fixed step sizes along a path, as :meth:`tuned` finds them.
        metric: Coordinates in which steps are made, as :meth:`suited_to` finds them.
        max_depth: Doublings at most, so that a trajectory has at most 2^max_depth gradients.
        mass: Scales of coordinates that the warm-up learns: one each (``"diagonal"``), a whole
            covariance (``"dense"``), or none (``"unit"``).

    >>> NUTS(max_depth=6)
    NUTS(step_size=0.2, warm_up=300, acceptance=0.8, schedule=None, max_depth=6, mass='diagonal')
    """

    warm_up: NonNegativeInt = 300
    acceptance: Acceptance = 0.8
    max_depth: PositiveInt = 10
    mass: Literal["diagonal", "dense", "unit"] = "diagonal"

    fresh_size = 0.5

    def learns_spread(self) -> bool:
        return self.metric is None and self.mass != "unit"

    def piloting(self, metric: Coordinates | None = None) -> Self:
        return replace(super().piloting(metric), mass="unit")

    def path_metric(self, model: EnergyModel, x: Tensor) -> Coordinates | None:
        return slope_metric("NUTS", model, x)

    def init(self, model: EnergyModel, x: Tensor, *, generator: torch.Generator) -> NUTSState:
        require("NUTS", model)
        energy, gradient = energy_and_gradient("NUTS", model, x)
        check_start("NUTS", model, energy, gradient)
        spread = moments.start(x, dense=self.mass == "dense")
        return NUTSState(x, energy, gradient, sizes.start(self.step_size, energy), spread)

    def place(
        self,
        model: EnergyModel,
        state: NUTSState,
        x: Tensor,
        field: Field | None = None,
        *,
        generator: torch.Generator,
    ) -> NUTSState:
        energy, gradient = energy_and_gradient("NUTS", model, x)
        return NUTSState(x, energy, gradient, state.size, state.spread)

    @torch.no_grad()
    def step(
        self, model: EnergyModel, state: NUTSState, *, generator: torch.Generator
    ) -> tuple[NUTSState, NUTSInfo]:
        size = self.size_now(model, state, generator)
        momentum = rng.normal(state.x.shape, state.x, generator)
        begin = Point(state.x, momentum, state.energy, state.gradient)
        tree, count, depth = grown(
            model, begin, size[..., None], self._stretch(model, state), self.max_depth, generator
        )
        chosen = tree.chosen
        info = NUTSInfo(
            (chosen.x != state.x).any(-1),
            count.probability / count.leaves.clamp_min(1),
            size,
            count.diverged,
            depth,
            count.leaves,
        )
        moved = NUTSState(
            chosen.x, chosen.energy, chosen.gradient, self.size_after(state, info), state.spread
        )
        moved = self.spread_after(state, moved)
        self.check_moving(model, moved, info)
        return moved, info

    def _stretch(self, model: EnergyModel, state: NUTSState) -> Stretch | None:
        """The metric of a path where there is one, else what the warm-up has learned."""
        if self.metric is not None:
            return self.metric.stretch(model.beta, state.x)
        return None if self.mass == "unit" else state.spread.stretch


def grown(
    model: EnergyModel,
    begin: Point,
    size: Tensor,
    stretch: Stretch | None,
    most: int,
    generator: torch.Generator,
) -> tuple[Tree, Count, Tensor]:
    """Trajectories doubled until they turn, diverge or have doubled ``most`` times; what their
    leaves add up to, and their doublings, ``(*, C)``.
    """
    nought = torch.zeros_like(begin.energy)
    everywhere = torch.ones_like(begin.energy, dtype=torch.bool)
    tree = Tree(begin, begin, begin, nought, begin.momentum, everywhere)
    count, depth = Count(nought, nought, ~everywhere), torch.zeros_like(nought)
    level = begin.total
    for doubling in range(most):
        forward = rng.uniform(nought.shape, nought, generator) < 0.5
        at = tree.right.where(forward, tree.left)
        signed = torch.where(forward, 1.0, -1.0)[..., None].to(size) * size
        new, count = doubled(
            model, at, level, signed, stretch, 2**doubling, tree.growing, count, generator
        )
        depth = depth + tree.growing.to(depth)
        tree = joined(tree, new, forward, generator)
        if not bool(tree.growing.any()):
            break
    return tree, count, depth


def joined(tree: Tree, new: Tree, forward: Tensor, generator: torch.Generator) -> Tree:
    """A trajectory with a doubling that is whole; without it in chains where it is not."""
    taken = tree.growing & new.growing
    u = rng.uniform(tree.log_weight.shape, tree.log_weight, generator)
    chosen = new.chosen.where(taken & (u.log() < new.log_weight - tree.log_weight), tree.chosen)
    # the last leaf of a doubling is its end
    left = new.right.where(taken & ~forward, tree.left)
    right = new.right.where(taken & forward, tree.right)
    rho = torch.where(taken[..., None], tree.rho + new.rho, tree.rho)
    weight = torch.logaddexp(tree.log_weight, new.log_weight)
    return Tree(
        left,
        right,
        chosen,
        torch.where(taken, weight, tree.log_weight),
        rho,
        taken & ~turned(left.momentum, right.momentum, rho),
    )


def doubled(
    model: EnergyModel,
    at: Point,
    level: Tensor,
    size: Tensor,
    stretch: Stretch | None,
    leaves: int,
    growing: Tensor,
    count: Count,
    generator: torch.Generator,
) -> tuple[Tree, Count]:
    """So many leapfrog steps on from ``at``, as a tree whose subtrees have not turned; fewer
    where none goes on.
    """
    first, chosen, alive = at, at, growing
    weight, rho = torch.full_like(level, -torch.inf), torch.zeros_like(at.x)
    kept: dict[int, tuple[Tensor, Tensor]] = {}  # momenta and their sums, by how deep they lie
    for leaf in range(leaves):
        there = Point(*leap("NUTS", model, at.x, at.momentum, at.gradient, size, stretch))
        at = there.where(alive, at)
        rise = torch.nan_to_num(there.total - level, torch.inf, torch.inf, torch.inf)
        lost = alive & (rise > LOST)
        log_w = torch.where(alive, -rise, -torch.inf)
        count = Count(
            count.probability + torch.where(alive, log_w.clamp_max(0).exp(), 0.0),
            count.leaves + alive.to(level),
            count.diverged | lost,
        )
        alive = alive & ~lost
        total = torch.logaddexp(weight, log_w)
        u = rng.uniform(level.shape, level, generator)
        chosen = at.where(alive & (u.log() < log_w - total), chosen)
        weight = torch.where(alive, total, weight)
        rho = torch.where(alive[..., None], rho + at.momentum, rho)
        alive = alive & ~turned_within(leaf, kept, at.momentum, rho)
        if not bool(alive.any()):
            break
    return Tree(first, at, chosen, weight, rho, alive), count


def turned_within(
    leaf: int, kept: dict[int, tuple[Tensor, Tensor]], momentum: Tensor, rho: Tensor
) -> Tensor:
    """Whether a subtree that ends at this leaf has turned, ``(*, C)``; a leaf that begins some is
    kept, in the place of one that is not needed any more.
    """
    deep = (leaf >> 1).bit_count()
    if leaf % 2 == 0:
        kept[deep] = (momentum, rho)
        return torch.zeros_like(momentum[..., 0], dtype=torch.bool)
    ended = ((leaf + 1) & -(leaf + 1)).bit_length() - 1  # subtrees of 2, 4, ... leaves
    found = torch.zeros_like(momentum[..., 0], dtype=torch.bool)
    for i in range(deep, deep - ended, -1):
        begun, before = kept[i]
        found = found | turned(begun, momentum, rho - before + begun)
    return found


def turned(first: Tensor, last: Tensor, rho: Tensor) -> Tensor:
    """Whether a stretch of trajectory with these momenta at its ends, and this sum of all, goes
    back on itself, ``(*, C, D) -> (*, C)``.
    """
    between = rho - 0.5 * (first + last)
    return ((first * between).sum(-1) <= 0) | ((last * between).sum(-1) <= 0)
