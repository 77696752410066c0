"""How the processes of one fit work together: models and optimizers as Fabric wraps them, what is
all-reduced in a step, and how saved chains are dealt out to another number of processes.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from partita.core.protocols import Model, Update
from partita.errors import Diverged, RunError, Unsupported, invalid
from partita.runtime.processes import Team
from partita.training.checkpoint import Tree
from partita.training.optimizers import make_optimizer
from partita.training.settings import Learner, Settings

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from lightning_fabric.wrappers import _FabricModule


State: TypeAlias = Any  # an objective's own


@contextmanager
def without_backward_sync(
    team: Team, fabric: "Fabric", *modules: "_FabricModule | None"
) -> Iterator[None]:
    """Keep wrappers from all-reducing gradients by themselves: they miss those of second
    derivatives and of unused parts.
    """
    with ExitStack() as stack:
        if team.size > 1:
            from lightning_fabric import is_wrapped

            for module in modules:
                if module is not None and is_wrapped(module):
                    stack.enter_context(fabric.no_backward_sync(module))
        yield


@dataclass
class StepReduction:
    """The one all-reduce of a step: gradients, losses, running statistics and flags.

    Running statistics are the buffers of the model that a step writes to: the same ones in every
    process and in every step.

    Arguments:
        flags: The flags of this process, read when a step is reduced.
    """

    team: Team
    flags: Callable[[], list[bool]] = list
    _raised: list[bool] = field(default_factory=list)
    # the buffers and their versions when the step began
    _before: list[tuple[Tensor, int]] = field(default_factory=list)
    _length: int = 0

    @contextmanager
    def expected(self, model: Model) -> Iterator[None]:
        """Let a divergence inside, in one process, reach all: it joins their all-reduce with
        NaN.
        """
        self._before = [(b, b._version) for b in _buffers(model)] if self.team.size > 1 else []
        try:
            yield
        except Diverged as error:
            # before the first all-reduce its length is not known
            if self.team.size > 1 and not self._length:
                raise RunError(str(error)) from error
            self.team.mean(model.like.new_full((self._length,), torch.nan))
            raise

    def reduce(
        self, optimizer: torch.optim.Optimizer, model: Model, loss: Tensor, *numbers: Tensor
    ) -> list[Tensor]:
        """Average everything over processes and return the loss and the numbers; a loss that is
        not finite leaves the statistics as they were.
        """
        learned = [
            p for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        written = [
            b
            for b, (old, version) in zip(_buffers(model), self._before, strict=True)
            if b is not old or b._version != version
        ]
        parts = [loss.new_tensor(self.flags()), *written, loss, *numbers]
        gradients = [p.grad for p in learned]
        means = self.team.means([*gradients, *(x.to(learned[0]) for x in parts)])
        self._length = sum(x.numel() for x in means)
        for p in learned:
            p.grad = means.pop(0)
        self._raised = (means.pop(0) > 0).tolist()
        statistics, common = means[: len(written)], means[len(written) :]
        if common[0].isfinite():
            for buffer, mean in zip(written, statistics, strict=True):
                buffer.copy_(mean)
        return common

    def raised(self) -> list[bool]:
        """The flags that any process had raised in the last step; alone, those of now."""
        return self.flags() if self.team.size == 1 else self._raised


def _buffers(model: nn.Module) -> list[Tensor]:
    return [b for b in model.buffers() if b.is_floating_point() and b.numel()]


def redealt(template: Tree, parts: list[Tree], team: Team) -> Tree:
    """One process's state out of those of another number of them: chains are joined along the axis
    that changed and dealt out again.

    >>> redealt(torch.zeros(1), [torch.tensor([1.0, 2.0])], Team(1, 2))
    tensor([2.])
    """
    if isinstance(template, dict):
        return {
            key: redealt(value, [part[key] for part in parts], team)
            for key, value in template.items()
        }
    if isinstance(template, list):
        columns = zip(*parts, strict=True)
        return [
            redealt(value, list(column), team)
            for value, column in zip(template, columns, strict=True)
        ]
    if not isinstance(template, Tensor) or template.shape == parts[0].shape:
        return parts[0]
    sizes = zip(template.shape, parts[0].shape, strict=True)
    axis = next(i for i, (here, there) in enumerate(sizes) if here != there)
    whole = torch.cat(parts, axis)
    part = team.share(whole.shape[axis])
    return whole.narrow(axis, part.start, part.stop - part.start).clone()


def shared(objective: Learner, settings: Settings, n: int, team: Team) -> Learner:
    """The part of an objective that one of several processes minimizes; what cannot be shared out
    is refused.
    """
    if team.size == 1:
        return objective
    if (batch := min(n, settings.batch_size or n)) < team.size:
        allowed = f"have at least one row for each of the {team.size} processes"
        raise invalid("fit", "a batch", allowed, batch, "Raise batch_size.")
    if isinstance(objective, Update):
        raise Unsupported(
            f"fit: {type(objective).__name__} takes closed-form steps, which one process does. "
            "Leave out devices."
        )
    if settings.optimizer == "natural":
        raise Unsupported(
            "fit: optimizer 'natural' measures its metric in one process. Leave out devices, or "
            "use 'adam'."
        )
    return objective.shared(team.size)


def wrapped_by(
    model: Model, state: State, settings: Settings, fabric: "Fabric"
) -> tuple[Model, State, torch.optim.Optimizer]:
    """The model, the objective's state and the optimizer, wrapped by Fabric; trainable extras are
    optimized beside the model.
    """
    module = getattr(state, "module", None)
    extras = [] if module is None else list(module.parameters())
    optimizer = make_optimizer([*model.parameters(), *extras], settings)
    wrapped, optimizer = fabric.setup(model, optimizer)
    _keep_buffers(wrapped)
    for method in dict.fromkeys(
        name for kind in type(model).__mro__ for name in vars(kind).get("forward_methods", ())
    ):
        wrapped.mark_forward_method(method)
    if module is not None and extras:
        module = fabric.setup_module(module)
        _keep_buffers(module)
        state = _with_module(state, module)
    return wrapped, state, optimizer


def _keep_buffers(wrapped: nn.Module) -> None:
    """Keep buffers from being broadcast in a forward pass: each step all-reduces them itself."""
    for module in wrapped.modules():
        if isinstance(module, DistributedDataParallel):
            module.broadcast_buffers = False


def _with_module(state: State, module: nn.Module) -> State:
    """A state with its module replaced by the wrapped one, wherever it is held: by itself, or by
    the state of an objective inside.
    """
    if "module" in state._fields:
        return state._replace(module=module)
    return state._replace(inner=_with_module(state.inner, module))


@cache
def one_process() -> "Fabric":
    """The Fabric of all fits that are given none: it keeps nothing of them, and making one takes
    long, for it looks for every package there is.
    """
    from lightning_fabric import Fabric

    return Fabric(accelerator="cpu", devices=1)
