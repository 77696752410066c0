"""What the processes of one fit hand to one another: gradients, running statistics, and chains that are dealt out anew."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from partita.core.errors import Diverged, RunError
from partita.core.processes import Team


@contextmanager
def own_gradients(team: Team, fabric: Any, *modules: Any) -> Iterator[None]:
    """Nothing is exchanged while gradients are made: a wrapper that does so misses those of second derivatives and of unused parts."""
    with ExitStack() as stack:
        if team.size > 1:
            from lightning_fabric import is_wrapped

            for module in filter(is_wrapped, modules):
                stack.enter_context(fabric.no_backward_sync(module))
        yield


@contextmanager
def heard_by_all(team: Team, like: Tensor, length: int) -> Iterator[None]:
    """What diverges inside in one process diverges in all: it takes part in their next message, of this length, with what is no number."""
    try:
        yield
    except Diverged as error:
        if team.size > 1 and not length:  # of the first message, which nobody knows yet
            raise RunError(str(error)) from error
        team.mean(like.new_full((length,), torch.nan))
        raise


def message_length(optimiser: Any, numbers: list[Tensor]) -> int:
    """How much :func:`average_gradients` sends."""
    return len(numbers) + sum(p.grad.numel() for p in _learned(optimiser))


def average_gradients(team: Team, optimiser: Any, numbers: list[Tensor]) -> list[Tensor]:
    """Average the gradients over processes, and in the same message some numbers of the step, whose averages are returned."""
    learned = _learned(optimiser)
    beside = torch.stack([x.to(learned[0]) for x in numbers])
    *gradients, common = team.means([*(p.grad for p in learned), beside])
    for p, gradient in zip(learned, gradients, strict=True):
        p.grad = gradient
    return list(common)


def _learned(optimiser: Any) -> list[Any]:
    return [p for group in optimiser.param_groups for p in group["params"] if p.grad is not None]


class RunningStatistics:
    """The buffers of a model that its steps change, averaged over processes where they did."""

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}

    @torch.no_grad()
    def average(self, team: Team, model: nn.Module) -> None:
        """Those that changed since the last call."""
        if team.size == 1:
            return
        buffers = [b for b in model.buffers() if b.is_floating_point() and b.numel()]
        changed = [b for b in buffers if self._versions.get(id(b)) != b._version]
        for buffer, mean in zip(changed, team.means(changed), strict=True):
            buffer.copy_(mean)
        self._versions = {id(b): b._version for b in buffers}


def redealt(template: Any, parts: list[Any], team: Team) -> Any:
    """One process's state out of those of another number of them: chains are joined along the axis that changed and dealt out anew.

    >>> redealt(torch.zeros(1), [torch.tensor([1.0, 2.0])], Team(1, 2))
    tensor([2.])
    """
    if isinstance(template, dict):
        return {key: redealt(value, [part[key] for part in parts], team) for key, value in template.items()}
    if isinstance(template, list):
        return [redealt(value, list(column), team) for value, *column in zip(template, *parts, strict=True)]
    if not isinstance(template, Tensor) or template.shape == parts[0].shape:
        return parts[0]
    axis = next(i for i, (mine, theirs) in enumerate(zip(template.shape, parts[0].shape, strict=True)) if mine != theirs)
    whole = torch.cat(parts, axis)
    part = team.share(whole.shape[axis])
    return whole.narrow(axis, part.start, part.stop - part.start).clone()
