"""Everything that changes while a model is fitted, as one value that can be saved and resumed bit
for bit.

Of several processes each takes its share of every batch and of the chains, with randomness of its
own; the weights stay alike.
"""

import copy
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import check_parameters
from partita.core.protocols import (
    Batch,
    Data,
    EnergyModel,
    Model,
    Objective,
    Update,
    unwrapped,
)
from partita.runtime import memory_limit, processes
from partita.runtime.files import Shape, check_like
from partita.training import checkpoint, distributed, guard
from partita.training.checkpoint import Tree
from partita.training.optimizers import (
    AVERAGE_EVERY,
    WeightAverage,
    learning_rate_at,
    load_optimizer,
    observe_metric,
    penalties,
)
from partita.training.settings import Learner, Settings
from partita.training.tracking import Followers, check_followed, followed, started

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# what a stream of random numbers is for: rng.keyed(key, purpose, ...)
ORDER, HELD_OUT, VALIDATION, DATA_WARNINGS, REDEALT, TRACKING = range(6)

POSITION = {
    "step": int,
    "total": int,
    "key": int,
    "loss": [float],
    "model": dict,
    "average": {"updates": int, "values": dict},
    "best": {"score": float, "step": int, "misses": int, "weights": dict},
    "processes": [dict],
    "warnings": [str],
    "rate_scale": float,
    "settled": str,
}
OF_THIS_FIT = "last.safetensors must hold the state of this fit"
KEPT: Shape = {"step": int, "weights": dict}
SAVED: Shape = {
    **POSITION,
    "watch": dict,
    "watched": list,
    "trajectory": [KEPT],
    "untrained": dict,
}

EARLIEST = 128  # one in so many steps, after which the first weights are kept
UNTIMED = 1 << 40  # steps of a fit by minutes, until they are timed
State: TypeAlias = Any  # an objective's own: chains, queues, running statistics
Terms: TypeAlias = dict[str, Tensor]
Numbers: TypeAlias = dict[str, float]
DESCENTS = ("lbfgs", "natural")  # optimizers that may reach a minimum and then know it


@dataclass
class Best:
    """The best validation so far and the weights that gave it."""

    score: float = float("-inf")
    step: int = 0
    misses: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)


class Kept(NamedTuple):
    """Weights of some step, in half precision: a path may go through any."""

    step: int
    weights: Terms


@dataclass
class Session:
    """A fit at some step: model, optimizer, objective's state, averages, randomness."""

    model: Any  # wrapped by Fabric; gradients flow through its forward
    data: Data
    objective: Learner
    state: State
    optimizer: torch.optim.Optimizer | None  # None where the objective takes its own steps
    settings: Settings
    total: int  # steps
    key: int  # seeds the order of the rows and the validations
    generator: torch.Generator
    fabric: "Fabric"
    team: processes.Team = processes.ALONE
    step: int = 0
    loss: float = float("inf")  # of the last step, penalty included
    progress: float = float("inf")  # by how much the last step lowered it
    # the largest in absolute value where the last step began, at which the loss was computed too
    gradient: float = float("inf")
    best: Best = field(default_factory=Best)
    warnings: list[str] = field(default_factory=list)
    rate_scale: float = 1.0  # of the learning rate, halved whenever the fit goes back
    settled: str = ""  # why a deterministic fit has nothing left to do
    trajectory: list[Kept] = field(default_factory=list)  # weights on the way
    followers: Followers | None = None  # chains that carry log Z along
    untrained: Terms = field(default_factory=dict)  # first weights, where losses are in nats
    watch: guard.Watch = field(default_factory=guard.Watch)
    # steps of an epoch, in which every part of a resumed state is used once
    trial: int = 0
    _tried: int = 0  # the step up to which that is
    _order: tuple[int, Tensor] | None = None

    def __post_init__(self) -> None:
        self.average = WeightAverage(self.bare, self.settings.average * self.total)
        self.reduction = distributed.StepReduction(self.team)

    @property
    def bare(self) -> Model:
        """The model without its wrapper."""
        return unwrapped(self.model)

    @property
    def steps_per_epoch(self) -> int:
        """Updates in one pass over the data; a last part that does not fill a batch waits for the
        next shuffle.
        """
        return max(1, len(self.data) // self.settings.batch_size) if self.settings.batch_size else 1

    @property
    def epoch(self) -> int:
        """Passes completed."""
        return self.step // self.steps_per_epoch

    @property
    def _milestones(self) -> frozenset[int]:
        """Steps after which weights are kept."""
        return milestones(self.total, self.settings.trajectory)

    def set_total(self, steps: int) -> None:
        """Fix the number of steps, before the first."""
        self.total = steps
        self.average.window = self.settings.average * steps

    def add_warnings(self, texts: list[str]) -> None:
        """Add the warnings that are new."""
        self.warnings += [text for text in texts if text not in self.warnings]

    def advance(self) -> Numbers:
        """One update; returns the losses and the objective's numbers."""
        objective = self.objective
        if isinstance(objective, Update):
            loss, record = self._update_step(objective)
        else:
            loss, record = self._gradient_step(objective)
        self.progress, self.loss = self.loss - loss, loss
        self.step += 1
        if self.step % AVERAGE_EVERY == 0:
            remedy = self._remedy()
            check_parameters("fit", self.bare.title(), self.bare.named_parameters(), remedy)
        self.average.update(self.bare, self.step)
        if self.step in self._milestones:
            self.trajectory.append(Kept(self.step, in_half(self.average.weights(self.bare))))
        if self.followers is not None:
            self.followers = followed(
                cast("EnergyModel", self.bare), self.followers, self._tracking()
            )
        if isinstance(objective, Objective) and self.step % self.steps_per_epoch == 0:
            self.state = objective.epoch(self.bare, self.data, self.state, generator=self.generator)
        return record

    def follow(self) -> None:
        """Let chains carry log Z along, as many as the settings say."""
        if self.settings.track:
            check_followed(self.bare, self.settings.track)
            self.followers = started(
                cast("EnergyModel", self.bare), self.settings.track, self._tracking()
            )

    def tracked(self) -> Numbers:
        """log Z of the model as it is, where chains carry it along."""
        return {} if self.followers is None else self.followers.numbers()

    def _tracking(self) -> torch.Generator:
        """Randomness of the chains that carry log Z, the same in every process: the fit's own is
        untouched.
        """
        seed = rng.keyed(self.key, TRACKING, self.step).initial_seed()
        return torch.Generator(self.bare.like.device).manual_seed(seed)

    def _gradient_step(self, objective: Objective) -> tuple[float, Numbers]:
        """One step of the optimizer on a batch: its loss, penalty included, and the numbers to
        record.
        """
        optimizer = cast("torch.optim.Optimizer", self.optimizer)
        batch, following = self._batch(), self.state
        record: Numbers = {}
        gradient: float | None = None
        width = self.data.width if objective.in_nats else math.inf

        def closure() -> Tensor:
            nonlocal record, following, width, gradient
            optimizer.zero_grad()
            extras = getattr(self.state, "module", None)
            with (
                distributed.without_backward_sync(self.team, self.fabric, self.model, extras),
                self.reduction.expected(self.bare),
            ):
                losses, following, info = objective.losses(
                    self.model, batch, self.state, generator=self.generator
                )
                terms = [*losses.values(), *penalties(self.bare, self.settings)]
                loss = torch.stack(terms).sum()
                if self.team.size > 1:
                    loss = self._portion(batch) * loss
                self.fabric.backward(loss)
            loss, record = self._reduce(loss, losses, info, batch, width)
            width = math.inf  # later calls are trials of a line search
            self._precondition(objective, following, batch)
            if self.settings.clip:
                torch.nn.utils.clip_grad_norm_(
                    self.bare.parameters(), self.settings.clip * self.data.width
                )
            if gradient is None and self.settings.optimizer in DESCENTS:
                gradient = _largest_gradient(self.bare)
            return loss

        rate = self.rate_scale * learning_rate_at(self.step, self.total, self.settings)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = float(optimizer.step(closure).detach())  # type: ignore[attr-defined]  # a tensor
        self.state = following
        self.gradient = math.inf if gradient is None else gradient
        return loss, record

    def _reduce(
        self, loss: Tensor, losses: Terms, info: Terms, batch: Batch, width: float
    ) -> tuple[Tensor, Numbers]:
        """Average gradients and numbers over processes: the loss and what to record; raises where a
        term is not finite or ran away.
        """
        terms = [x.detach() for x in (*losses.values(), *info.values())]
        if self.team.size > 1:
            optimizer = cast("torch.optim.Optimizer", self.optimizer)
            terms = [self._portion(batch) * x for x in terms]
            loss, *terms = self.reduction.reduce(optimizer, self.bare, loss.detach(), *terms)
        record = guard.check_losses(
            dict(zip(losses, terms, strict=False)),
            self.step,
            width,
            self.settings,
            far=self.watch.far,
            scale=self.rate_scale,
            untrained=lambda: self._untrained_losses(batch),
        )
        self.watch.far = self.watch.far + 1 if guard.ran_away(record, width) else 0
        numbers = zip(info, terms[len(losses) :], strict=True)
        return loss, record | {name: float(x) for name, x in numbers}

    def _untrained_losses(self, batch: Batch) -> Numbers:
        """The losses that the model had on these rows as the fit began, averaged over processes;
        all of them must call it together.
        """
        if not self.untrained:
            return {}
        own = torch.Generator(self.generator.device)
        own.set_state(self.generator.get_state())
        now = {name: value.clone() for name, value in self.bare.state_dict().items()}
        checkpoint.load_weights(self.bare, self.untrained)
        try:
            losses, _, _ = cast("Objective", self.objective).losses(
                self.bare, batch, copy.deepcopy(self.state), generator=own
            )
        finally:
            checkpoint.load_weights(self.bare, now)
        part = {name: float(loss.detach()) for name, loss in losses.items()}
        if self.team.size == 1:
            return part
        parts = self.team.gather({name: self._portion(batch) * x for name, x in part.items()})
        return {name: sum(one[name] for one in parts) / len(parts) for name in part}

    def _remedy(self) -> str:
        """What to change where the weights are no longer finite."""
        if self.optimizer is None:
            return guard.COLUMNS
        return guard.remedy(self.settings, self.step, self.rate_scale)

    def _portion(self, batch: Batch) -> float:
        """This process's rows of a step relative to an even share, so that the average over
        processes is that over rows.
        """
        return self.team.size * len(batch.x) / len(self._index())

    def _precondition(self, objective: Objective, following: State, batch: Batch) -> None:
        """Apply the objective's change of coordinates; the natural gradient, which needs none, is
        given its metric instead.
        """
        if self.settings.optimizer != "natural":
            objective.precondition(self.bare, following)
            return
        observe_metric(
            self.optimizer, self.bare, objective, following, batch, self.settings, self.generator
        )

    @torch.no_grad()
    def _update_step(self, objective: Update) -> tuple[float, Numbers]:
        """One closed-form update over the data: the loss it reports and the numbers to record."""
        self.state, info = objective.update(
            self.bare, self.data, self.state, generator=self.generator
        )
        record = {name: float(value) for name, value in info.items()}
        guard.check_update(record, self.step)
        return record["loss"], record

    def leave_finite(self) -> None:
        """Leave finite weights in a model that diverged: the best validated, else the averaged,
        else the first ones.
        """
        own = self.bare.state_dict()
        checkpoint.load_weights(self.bare, {**own, **(self.best.weights or self.average.values)})

    def trying(self) -> AbstractContextManager[None]:
        """Blame the checkpoint, inside the block, for a first step that fails after a resume:
        chains, and what an optimizer remembers, have sizes of their own.
        """
        return checkpoint.refusing(OF_THIS_FIT) if self.step < self._tried else nullcontext()

    def tree(self) -> Tree:
        """All of it as nested values; all processes must call it together."""
        return {
            **self.position(),
            "watch": self.watch.tree(),
            "watched": self.team.gather(self.watch.chains),
            "untrained": self.untrained,
            "trajectory": [kept._asdict() for kept in self.trajectory],
        }

    def position(self) -> Tree:
        """All but what was observed on the way, as nested values: what a fit can go back to."""
        own = {
            "generator": self.generator.get_state().clone(),
            "objective": checkpoint.plain(self.state),
        }
        return {
            "step": self.step,
            "loss": [self.loss, self.progress],
            "total": self.total,
            "key": self.key,
            "model": dict(self.bare.state_dict()),
            "average": {"updates": self.average.updates, "values": self.average.values},
            "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
            "processes": self.team.gather(own),
            "warnings": self.warnings,
            "rate_scale": self.rate_scale,
            "settled": self.settled,
            "followers": self.followers,
            "best": dict(vars(self.best)),
        }

    def restore(self, tree: Tree) -> None:
        """Resume where :meth:`tree` was made."""
        checkpoint.expect(tree, Path("last.safetensors"), *self.tree())
        check_like(tree, SAVED, "last.safetensors", whole=True)
        self.trial = max(2, self.steps_per_epoch)
        with checkpoint.refusing(OF_THIS_FIT):
            chains = tree["watched"]
            self.watch = guard.Watch.restored(
                tree["watch"], chains[self.team.rank] if len(chains) == self.team.size else None
            )
            like = in_half(dict(self.bare.named_parameters()))
            self.trajectory = [
                Kept(kept["step"], checkpoint.rebuild(like, kept["weights"], sizes=True))
                for kept in tree["trajectory"]
            ]
            for place in (self.watch.good, tree):  # the state to go back to is of this fit too
                if place is not None:
                    check_like(place, POSITION, "last.safetensors", whole=True)
                    self.return_to(place)
            self.untrained = checkpoint.rebuild(self.untrained, tree["untrained"], sizes=True)

    def return_to(self, tree: Tree) -> None:
        """Go back to where :meth:`position` was made, keeping what was observed since."""
        checkpoint.load_weights(self.bare, tree["model"])
        self.step, self.total, self.key = tree["step"], tree["total"], tree["key"]
        self._tried = self.step + self.trial
        self.trajectory = [kept for kept in self.trajectory if kept.step <= self.step]
        self.loss, self.progress = tree["loss"]
        self.average.updates = tree["average"]["updates"]
        self.average.window = self.settings.average * self.total
        self.average.values = checkpoint.rebuild(
            self.average.values, tree["average"]["values"], sizes=True
        )
        if self.optimizer is not None:
            load_optimizer(self.optimizer, tree["optimizer"])
        self._restore_own(tree["processes"])
        if (check := getattr(self.objective, "check", None)) is not None:
            check(self.bare, self.data, self.state)
        self.best, self.warnings = Best(**tree["best"]), list(tree["warnings"])
        if self.best.weights:
            self.best.weights = checkpoint.rebuild(
                dict(self.bare.named_parameters()), self.best.weights, sizes=True
            )
        self.rate_scale, self.settled = tree["rate_scale"], tree["settled"]
        if self.followers is not None:
            self.followers = checkpoint.rebuild(self.followers, tree["followers"], sizes=True)

    def _restore_own(self, parts: list[Tree]) -> None:
        """Restore randomness and the objective's state; those of another number of processes are
        dealt out again.
        """
        states = [part["objective"] for part in parts]
        if len(parts) == self.team.size:
            self.generator.set_state(parts[self.team.rank]["generator"])
            own = states[self.team.rank]
        else:
            seed = rng.keyed(self.key, REDEALT, self.step, self.team.rank).initial_seed()
            self.generator.manual_seed(seed)
            own = distributed.redealt(checkpoint.plain(self.state), states, self.team)
        self.state = checkpoint.rebuild(self.state, own)

    def _batch(self) -> Batch:
        """The rows of this step, in the model's dtype."""
        index = self._index()
        batch = self.data.batch(index[self.team.share(len(index))], generator=self.generator)
        like, weight = self.bare.like, batch.weight
        return batch._replace(
            x=batch.x.to(like), weight=None if weight is None else weight.to(like)
        )

    def _index(self) -> Tensor:
        """Row numbers of this step: a function of (key, epoch, place) alone."""
        size, n = self.settings.batch_size, len(self.data)
        if not size or size >= n:
            return torch.arange(n)
        if self._order is None or self._order[0] != self.epoch:
            self._order = (self.epoch, rng.permutation(n, rng.keyed(self.key, ORDER, self.epoch)))
        place = (self.step % self.steps_per_epoch) * size
        return self._order[1][place : place + size]


@cache
def milestones(total: int, count: int) -> frozenset[int]:
    """Steps evenly spaced in their logarithm, before the last; the first comes after one in
    ``EARLIEST`` of them.

    >>> sorted(milestones(1024, 7))
    [8, 16, 32, 64, 128, 256, 512]
    """
    places = (total * EARLIEST ** (i / count - 1) for i in range(count))
    # processors round powers differently
    return frozenset(math.ceil(round(place, 6)) for place in places) - {total}


def in_half(weights: Terms) -> Terms:
    """The weights in float16, those that are too large for it cut."""
    most = torch.finfo(torch.float16).max
    return {name: p.detach().clamp(-most, most).half() for name, p in weights.items()}


def _largest_gradient(model: torch.nn.Module) -> float:
    """Of all weights, in absolute value."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None and p.grad.numel()]
    return max(float(gradient.abs().max()) for gradient in gradients)


def start_session(
    model: Model,
    rows: Data,
    objective: Learner,
    settings: Settings,
    *,
    fabric: "Fabric | None" = None,
    generator: torch.Generator,
) -> Session:
    """Initialize the model from the data, the objective's state, the optimizer, and the number of
    steps; :mod:`partita.training.budget` turns minutes into steps.
    """
    fabric, team = fabric or distributed.one_process(), processes.current()
    key = team.broadcast(rng.seed(generator))
    if settings.initialize:
        model.initialize(rows, generator=generator)
    objective = distributed.shared(objective, settings, len(rows), team)
    generator = team.generator(generator)
    # the first state of closed-form updates may be the best of many trials, and holds no chains
    closed_form = isinstance(objective, Update)
    with nullcontext() if closed_form else memory_limit.within_machine("fit"):
        state = objective.init(model, rows, generator=generator)
    wrapped, optimizer = model, None
    if not closed_form:
        wrapped, state, optimizer = distributed.wrapped_by(model, state, settings, fabric)
    session = Session(
        wrapped, rows, objective, state, optimizer, settings, UNTIMED, key, generator, fabric, team
    )
    if not closed_form and objective.in_nats:
        session.untrained = {name: x.clone() for name, x in session.bare.state_dict().items()}
    if settings.minutes is None:
        session.set_total(settings.steps or (settings.epochs or 1) * session.steps_per_epoch)
    session.follow()
    return session
