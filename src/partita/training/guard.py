"""Watches a fit: numbers that are not finite, losses that run away, stuck chains, dead hidden
units, posteriors that collapsed.

What is found goes into the records of the fit; with ``guard="rollback"`` it goes back to its last
healthy state, with half the learning rate.
"""

import copy
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from partita.core import rng
from partita.core.protocols import Model
from partita.errors import Diverged
from partita.runtime.files import Shape, check_like
from partita.training.checkpoint import Tree
from partita.training.history import Record
from partita.training.settings import Settings

if TYPE_CHECKING:
    from partita.training.session import Session

COLUMNS = "Look for huge or constant columns."
# updates after which chains that stood still are stuck; after fewer they may be unlucky
LEAST_MOVES = 20
MOST_RETURNS = 8  # from divergences, each with half the learning rate
MOST_MENDS = 2  # from warnings that were not there before; they may also belong to the data
PROBED = 256  # rows at which hidden units are checked, where there are no chains
STUCK = (
    f"no chain has moved in {LEAST_MOVES} updates or more; lower learning_rate, or temper: "
    "PCD(Tempering(Gibbs()))."
)
DEAD = (
    "more than half of the hidden units are always on or always off; lower learning_rate or use "
    "fewer of them."
)
WENT_BACK = "went back"  # how the sentence about it begins; the last one tells of the whole rate
LOOK = 5  # what a stream of random numbers is for; training/session.py has the others
# of a saved watch, always there
COUNTED: Shape = {
    **dict.fromkeys(("returns", "mends", "looks", "marked", "far"), int),
    "ill": [str],
    "reported": [str],
}
EVENT = {"step": int, "event": str, "done": str}
OPTIONAL: Shape = {"event": EVENT, "good": dict, "chains": Tensor}
EARLY = 0.25  # share of a fit before which a model need not be healthy
# a loss this far from zero, per coordinate, is no longer a learning signal,
RUNAWAY_NATS_PER_COLUMN = 20.0
# unless the model had so much of it on the same rows before it learned: then the rows are far out
WORSE_THAN_UNTRAINED = 10.0
# such losses in a row where gradients are clipped: a few rows far out make single batches large
FORGIVEN = 25
FAR_OUT = (
    f"the loss stayed above {RUNAWAY_NATS_PER_COLUMN:g} nats a column to the end: rows lie far "
    "from all that the model expects. Standardize large columns, take their logarithm, or fit "
    "longer."
)


def check_losses(
    losses: dict[str, Tensor],
    step: int,
    width: float,
    settings: Settings,
    *,
    far: int = 0,
    scale: float = 1.0,
    untrained: Callable[[], Mapping[str, float]] = dict,
) -> dict[str, float]:
    """The losses as numbers; raises :class:`Diverged` naming the term that is not finite or ran
    away.

    A large loss has not run away where it was about as large before the model learned: rows that
    are far out make it so. ``untrained`` tells the losses of then on these rows. Where gradients
    are clipped, one is also forgiven unless the ``far`` ones just before it were large too.
    """
    values = {name: float(loss.detach()) for name, loss in losses.items()}
    limit = RUNAWAY_NATS_PER_COLUMN * width if far >= FORGIVEN or not settings.clip else math.inf
    for name, value in values.items():
        if math.isfinite(value) and abs(value) <= limit:
            continue
        if limit < value <= WORSE_THAN_UNTRAINED * untrained().get(name, 0.0) < math.inf:
            continue
        raise Diverged(
            f"fit: the loss of {name!r} must stay finite and small; got {value:.4g} at step "
            f"{step}. {remedy(settings, step, scale)}"
        )
    return values


def ran_away(values: dict[str, float], width: float) -> bool:
    """Whether a loss is too large to learn from.

    >>> ran_away({"model": 50.0}, width=2), ran_away({"model": 30.0}, width=2)
    (True, False)
    """
    return any(abs(value) > RUNAWAY_NATS_PER_COLUMN * width for value in values.values())


def check_update(record: dict[str, float], step: int) -> None:
    """Raise :class:`Diverged` naming the number of a closed-form update that is not finite."""
    for name, value in record.items():
        if not math.isfinite(value):
            raise Diverged(
                f"fit: {name!r} must stay finite; got {value:.4g} at update {step}. {COLUMNS}"
            )


def remedy(settings: Settings, step: int, scale: float = 1.0) -> str:
    """What to change when a fit diverges; no learning rate helps before the first update."""
    if settings.optimizer == "lbfgs":
        return "Standardize real columns, give a penalty such as l2=1e-3, or learn by PCD()."
    if step == 0:
        return COLUMNS
    rate = scale * settings.learning_rate
    now = f"now {settings.learning_rate:g}"
    if scale == 1:
        return f"Lower learning_rate ({now}), for example to {rate / 10:g}."
    halved = f"{now}, halved down to {rate:g} in vain"
    return f"Lower learning_rate ({halved}), for example to {rate / 10:g}. {COLUMNS}"


@runtime_checkable
class _HasHiddenUnits(Protocol):
    def hidden_given_visible(self, x: Tensor, /) -> torch.distributions.Bernoulli: ...


@torch.no_grad()
def fit_warnings(model: Model, before: Tensor | None, after: Tensor | None) -> list[str]:
    """Warnings that need not stop a fit, each in one sentence with its remedy."""
    found = []
    if after is None:
        return found
    if before is not None and torch.equal(before.to(after), after):
        found.append(STUCK)
    if isinstance(model, _HasHiddenUnits):
        p = model.hidden_given_visible(after.to(model.like)).probs.flatten(0, -2).mean(0)
        if bool(((p < 1e-3) | (p > 1 - 1e-3)).double().mean() > 0.5):
            found.append(DEAD)
    return found


class Unwell(Exception):
    """A fit that was healthy at the last check no longer is, and may go back to it."""


@dataclass
class Watch:
    """What was observed in the course of a fit; saved with it, so that a resumed fit observes what
    an unbroken one does.

    Arguments:
        returns: How often it went back because it diverged.
        mends: How often it went back because of a warning.
        looks: How often it was checked.
        marked: A step so many updates ago that chains should have moved since.
        chains: Where the chains were at that step.
        ill: Kinds of warnings at the last check.
        reported: Kinds of warnings that are in the records.
        far: How many losses in a row, up to now, were too large to learn from.
        event: The record of the last return.
        good: The state of the fit at the last check, where it may go back to it.
    """

    returns: int = 0
    mends: int = 0
    looks: int = 0
    marked: int = 0
    chains: Tensor | None = None
    ill: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    far: int = 0
    event: Record | None = None
    good: Tree = None

    def begin(self, session: "Session") -> None:
        """Check the state that the fit begins with; a resumed one continues as it was."""
        fresh = session.step == 0 and not self.returns and not self.mends
        if fresh:
            self._remember(session, fit_warnings(session.bare, None, _rows(session)), mark=True)
        if fresh or self.good is None:
            self.keep(session)

    def keep(self, session: "Session") -> None:
        """Remember this state as the one to go back to."""
        self.good = copy.deepcopy(session.position()) if _may_return(session) else None

    def check(self, session: "Session") -> list[Record]:
        """Check the fit and return events for the records; raises :class:`Unwell` where the fit
        should go back because of one.

        Warnings about chains and hidden units stay, a model's own only if they last to the end.
        """
        due = session.step - self.marked >= LEAST_MOVES
        found = fit_warnings(session.bare, self.chains if due else None, _rows(session))
        early = session.step < EARLY * session.total
        own = [] if early and not _may_return(session) else session.bare.fit_warnings()
        counted = found if early or not self.looks else [*found, *own]
        new = [text for text in counted if _kind(text) not in self.ill]
        if session.team.any(bool(new) and self.mends < MOST_MENDS and _may_return(session)):
            raise Unwell(new[0] if new else "another process found its chains or hidden units ill.")
        session.add_warnings(found)
        events = []
        for text in found if early else [*found, *own]:
            if _kind(text) not in self.reported:
                self.reported.append(_kind(text))
                events.append({"step": session.step, "event": text, "done": "went on"})
        self._remember(session, [*found, *own], mark=due)
        self.looks += 1
        return events

    def go_back(self, session: "Session", error: Diverged | Unwell) -> Record:
        """Return to the last healthy state with half the learning rate; a divergence is raised
        where that is not allowed or no longer helps.
        """
        if isinstance(error, Unwell):
            self.mends += 1
        elif not _may_return(session) or self.returns == MOST_RETURNS:
            raise error
        else:
            self.returns += 1
        left, scale = session.step, session.rate_scale / 2
        before = [text for text in session.warnings if not text.startswith(WENT_BACK)]
        session.return_to(copy.deepcopy(self.good))
        session.rate_scale = scale
        self.far = 0
        done = (
            f"{WENT_BACK} from step {left} to {session.step}, to go on with {scale:g} of the "
            "learning rate"
        )
        why = str(error).removeprefix("fit: ").split(". ")[0].rstrip(".")
        session.warnings = [*before, f"{done}: {why}."]
        self.event = {"step": session.step, "event": f"{why}.", "done": done}
        return self.event

    def last_warnings(self) -> list[str]:
        """Warnings of a fit that has ended."""
        return [FAR_OUT] if self.far >= FORGIVEN else []

    @classmethod
    def restored(cls, tree: Tree, chains: Tensor | None) -> "Watch":
        """The watch whose :meth:`tree` and chains were saved."""
        check_like(tree, COUNTED, "last.safetensors: watch", whole=True)
        check_like({**tree, "chains": chains}, OPTIONAL, "last.safetensors: watch")
        event = tree["event"] and {name: tree["event"][name] for name in EVENT}
        return cls(**{**tree, "event": event}, chains=chains)

    def tree(self) -> Tree:
        """All of it as nested values but the chains, which each process has for itself."""
        return {name: value for name, value in vars(self).items() if name != "chains"}

    def _remember(self, session: "Session", found: list[str], mark: bool) -> None:
        still = [kind for kind in self.ill if kind == _kind(STUCK) and not mark]
        self.ill = [_kind(text) for text in found] + still
        if mark:
            chains = _chains(session)
            self.chains = None if chains is None else chains.clone()
            self.marked = session.step


def divergence_record(error: Diverged, step: int) -> Record:
    """The record of a divergence that ends a fit."""
    return {
        "step": step,
        "event": str(error).removeprefix("fit: "),
        "done": "stopped, with the last good weights",
    }


def _may_return(session: "Session") -> bool:
    """Whether going back is allowed and a smaller step can help; closed-form updates have no
    step.
    """
    return session.settings.guard == "rollback" and session.optimizer is not None


def _chains(session: "Session") -> Tensor | None:
    chains = getattr(session.state, "chains", None)
    return None if chains is None else chains.x


def _rows(session: "Session") -> Tensor | None:
    """Rows at which hidden units are checked: the chains, else some of the data."""
    chains = _chains(session)
    if chains is not None or not isinstance(session.bare, _HasHiddenUnits):
        return chains
    index = torch.arange(min(PROBED, len(session.data)))
    return session.data.batch(index, generator=rng.keyed(session.key, LOOK, session.step)).x


def _kind(text: str) -> str:
    """A warning without its numbers, which differ from check to check.

    >>> _kind("1 of 20 units carry 0.5 nats")
    '# of # units carry # nats'
    """
    return re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "#", text)
