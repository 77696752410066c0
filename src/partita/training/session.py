"""Everything that changes while a model is fitted, as one value that can be saved and taken up
again bit for bit.

Of several processes each takes its share of every batch and of the chains, with randomness of its
own; the weights stay alike.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from partita.core import rng
from partita.core.checks import check_parameters
from partita.core.protocols import Batch, Data
from partita.objectives.base import unwrapped
from partita.runtime import processes
from partita.runtime.untrusted import check_like
from partita.training import checkpoint, distributed, guard
from partita.training.optimizers import (
    AVERAGE_EVERY,
    WeightAverage,
    learning_rate_at,
    penalty,
    take_up,
)
from partita.training.settings import Settings

# what a stream of random numbers is for: rng.keyed(key, purpose, ...)
ORDER, HELD_OUT, VALIDATION, CAUTIONS, REDEALT = range(5)

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
SEEN = {"watch": dict, "watched": list}

Terms = dict[str, Tensor]
DESCENTS = ("lbfgs", "natural")  # optimizers that may reach a minimum and then know it


@dataclass
class Best:
    """The best validation so far and the weights that gave it."""

    score: float = float("-inf")
    step: int = 0
    misses: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Session:
    """A fit at some step: model, optimizer, objective's state, averages, randomness."""

    model: Any  # wrapped by Fabric; gradients flow through its forward
    data: Data
    objective: Any
    state: Any
    optimizer: Any  # None where the objective is an Update, which takes its own steps
    average: WeightAverage
    settings: Settings
    total: int  # steps
    key: int  # seeds the order of the rows and the validations
    generator: torch.Generator
    fabric: Any
    team: processes.Team = processes.ALONE
    step: int = 0
    loss: float = float("inf")  # of the last step, penalty included
    progress: float = float("inf")  # by how much the last step lowered it
    # the largest in absolute value where the last step began, at which the loss was taken too
    gradient: float = float("inf")
    best: Best = field(default_factory=Best)
    warnings: list[str] = field(default_factory=list)
    rate_scale: float = 1.0  # of the learning rate, halved whenever the fit goes back
    settled: str = ""  # why a deterministic fit has nothing left to do
    watch: guard.Watch = field(default_factory=guard.Watch)
    message: distributed.Message = field(default_factory=distributed.Message)
    # steps after which what was taken up has shown that it fits: an epoch, in which every part has
    # its turn
    trial: int = 0
    _tried: int = 0  # the step up to which that is
    _order: tuple[int, Tensor] | None = None

    @property
    def bare(self) -> Any:
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

    def advance(self) -> dict[str, float]:
        """One update; returns the losses and the objective's numbers."""
        loss, record = self._update_step() if self.optimizer is None else self._gradient_step()
        self.progress, self.loss = self.loss - loss, loss
        self.step += 1
        if self.step % AVERAGE_EVERY == 0:
            remedy = guard.remedy(self.settings) if self.optimizer is not None else guard.COLUMNS
            check_parameters("fit", self.bare.title(), self.bare.named_parameters(), remedy)
        self.average.update(self.bare, self.step)
        if self.optimizer is not None and self.step % self.steps_per_epoch == 0:
            self.state = self.objective.epoch(
                self.bare, self.data, self.state, generator=self.generator
            )
        return record

    def _gradient_step(self) -> tuple[float, dict[str, float]]:
        """One step of the optimizer on a batch: its loss, penalty included, and the numbers to
        record.
        """
        batch, record, following, gradient = self._batch(), {}, self.state, None
        width = self.data.width if getattr(self.objective, "in_nats", True) else math.inf

        def closure() -> Tensor:
            nonlocal record, following, width, gradient
            self.optimizer.zero_grad()
            own = distributed.own_gradients(
                self.team, self.fabric, self.model, getattr(self.state, "module", None)
            )
            with own, self.message.begun(self.team, self.bare):
                losses, following, info = self.objective.losses(
                    self.model, batch, self.state, generator=self.generator
                )
                extra = penalty(self.bare, self.settings)
                loss = torch.stack([*losses.values(), *([] if extra is None else [extra])]).sum()
                loss = loss if self.team.size == 1 else self._portion(batch) * loss
                self.fabric.backward(loss)
            loss, record = self._exchange(loss, losses, info, batch, width)
            width = math.inf  # later calls are trials of a line search
            self._precondition(following, batch)
            if self.settings.clip:
                torch.nn.utils.clip_grad_norm_(
                    self.bare.parameters(), self.settings.clip * self.data.width
                )
            gradient = (
                largest_gradient(self.bare)
                if gradient is None and self.settings.optimizer in DESCENTS
                else gradient
            )
            return loss

        self._set_learning_rate()
        loss = float(self.optimizer.step(closure).detach())
        self.state, self.gradient = following, math.inf if gradient is None else gradient
        return loss, record

    def _exchange(
        self, loss: Tensor, losses: Terms, info: Terms, batch: Batch, width: float
    ) -> tuple[Tensor, dict[str, float]]:
        """Average gradients and numbers over processes: the loss and what to record; raises where a
        term is not finite or ran away.
        """
        terms = [x.detach() for x in (*losses.values(), *info.values())]
        if self.team.size > 1:
            terms = [self._portion(batch) * x for x in terms]
            loss, *terms = self.message.exchanged(
                self.team, self.optimizer, self.bare, loss.detach(), *terms
            )
        record = guard.check_losses(
            dict(zip(losses, terms, strict=False)), self.step, width, self.settings, self.watch.far
        )
        self.watch.far = self.watch.far + 1 if guard.ran_away(record, width) else 0
        return loss, record | {
            name: float(x) for name, x in zip(info, terms[len(losses) :], strict=True)
        }

    def _portion(self, batch: Batch) -> float:
        """This process's rows of a step against an even share, so that the average over processes
        is that over rows.
        """
        return self.team.size * len(batch.x) / len(self._index())

    def _precondition(self, following: Any, batch: Batch) -> None:
        """The objective's change of coordinates; the natural gradient, which needs none, is told
        where it is instead.
        """
        if self.settings.optimizer != "natural":
            self.objective.precondition(self.bare, following)
            return
        from partita.training.natural import observe

        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)  # inside Fabric's wrapper
        observe(
            optimizer,
            self.bare,
            self.objective,
            following,
            batch,
            self.settings,
            generator=self.generator,
        )

    @torch.no_grad()
    def _update_step(self) -> tuple[float, dict[str, float]]:
        """One closed-form update over the data: the loss it reports and the numbers to record."""
        self.state, info = self.objective.update(
            self.bare, self.data, self.state, generator=self.generator
        )
        record = {name: float(value) for name, value in info.items()}
        guard.check_finite(record, self.step)
        return record["loss"], record

    def leave_finite(self) -> None:
        """Leave finite weights in a model that diverged: the best validated, else the averaged,
        else the first ones.
        """
        own = self.bare.state_dict()
        checkpoint.load_weights(self.bare, {**own, **(self.best.weights or self.average.values)})

    def trying(self) -> AbstractContextManager[None]:
        """Inside it, a step that fails by what was taken up says so: chains, and what an optimizer
        remembers, have sizes of their own.
        """
        return checkpoint.of_this_fit() if self.step < self._tried else nullcontext()

    def tree(self) -> dict[str, Any]:
        """All of it as nested values; of several processes each must ask."""
        return {
            **self.position(),
            "watch": self.watch.tree(),
            "watched": self.team.gather(self.watch.chains),
        }

    def position(self) -> dict[str, Any]:
        """All but what was seen on the way, as nested values: what a fit can go back to."""
        best = self.best
        own = {
            "generator": checkpoint.generator_state(self.generator),
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
            "best": {
                "score": best.score,
                "step": best.step,
                "misses": best.misses,
                "weights": best.weights,
            },
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """Take up where :meth:`tree` left off."""
        checkpoint.expect(tree, Path("last.safetensors"), *self.tree())
        check_like(tree, POSITION | SEEN, "last.safetensors", whole=True)
        self.trial = max(2, self.steps_per_epoch)
        with checkpoint.of_this_fit():
            chains = tree["watched"]
            self.watch = guard.Watch.taken_up(
                tree["watch"], chains[self.team.rank] if len(chains) == self.team.size else None
            )
            for place in (self.watch.good, tree):  # where it may go back to is of this fit too
                if place is not None:
                    check_like(place, POSITION, "last.safetensors", whole=True)
                    self.return_to(place)

    def return_to(self, tree: dict[str, Any]) -> None:
        """Go where :meth:`position` was, with all that was seen since."""
        checkpoint.load_weights(self.bare, tree["model"])
        self.step, self.total, self.key = tree["step"], tree["total"], tree["key"]
        self._tried = self.step + self.trial
        self.loss, self.progress = tree["loss"]
        self.average.updates = tree["average"]["updates"]
        self.average.window = self.settings.average * self.total
        self.average.values = checkpoint.rebuild(
            self.average.values, tree["average"]["values"], sizes=True
        )
        if self.optimizer is not None:
            take_up(self.optimizer, tree["optimizer"])
        self._restore_own(tree["processes"])
        if hasattr(self.objective, "check"):
            self.objective.check(self.bare, self.data, self.state)
        self.best, self.warnings = Best(**tree["best"]), list(tree["warnings"])
        if self.best.weights:
            self.best.weights = checkpoint.rebuild(
                dict(self.bare.named_parameters()), self.best.weights, sizes=True
            )
        self.rate_scale, self.settled = tree["rate_scale"], tree["settled"]

    def _restore_own(self, parts: list[dict[str, Any]]) -> None:
        """Randomness and the objective's state; those of another number of processes are dealt out
        anew.
        """
        states = [part["objective"] for part in parts]
        if len(parts) == self.team.size:
            self.generator.set_state(parts[self.team.rank]["generator"])
            self.state = checkpoint.rebuild(self.state, states[self.team.rank])
            return
        self.generator.manual_seed(
            rng.keyed(self.key, REDEALT, self.step, self.team.rank).initial_seed()
        )
        self.state = checkpoint.rebuild(
            self.state, distributed.redealt(checkpoint.plain(self.state), states, self.team)
        )

    def _batch(self) -> Batch:
        """The rows of this step, in the model's dtype."""
        index = self._index()
        batch = self.data.batch(index[self.team.share(len(index))], generator=self.generator)
        like = self.bare.like
        return batch._replace(
            x=batch.x.to(like), weight=None if batch.weight is None else batch.weight.to(like)
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

    def _set_learning_rate(self) -> None:
        rate = self.rate_scale * learning_rate_at(self.step, self.total, self.settings)
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def largest_gradient(model: torch.nn.Module) -> float:
    """Of all weights, in absolute value."""
    return max(
        float(p.grad.abs().max())
        for p in model.parameters()
        if p.grad is not None and p.grad.numel()
    )
