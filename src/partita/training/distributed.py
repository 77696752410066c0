"""What the processes of one fit hand to one another: gradients, running statistics, and chains that
are dealt out anew.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from partita.errors import Diverged, RunError
from partita.runtime.processes import Team


@contextmanager
def own_gradients(team: Team, fabric: Any, *modules: Any) -> Iterator[None]:
    """Nothing is exchanged while gradients are made: a wrapper that does so misses those of second
    derivatives and of unused parts.
    """
    with ExitStack() as stack:
        if team.size > 1:
            from lightning_fabric import is_wrapped

            for module in filter(is_wrapped, modules):
                # which the first pass would otherwise do
                module._forward_module.broadcast_buffers = False
                stack.enter_context(fabric.no_backward_sync(module))
        yield


@dataclass
class Message:
    """What the processes of a fit tell one another in a step, all at once: gradients, losses,
    running statistics, and wishes.

    Running statistics are the buffers of the model that a step writes to: the same ones in every
    process and in every step.

    Arguments:
        wishes: What this process wishes for, one flag for each thing, asked when it speaks.
    """

    wishes: Callable[[], list[bool]] = list
    _heard: list[bool] = field(default_factory=list)
    # the buffers and their versions when the step began
    _before: list[tuple[Tensor, int]] = field(default_factory=list)
    _length: int = 0

    @contextmanager
    def begun(self, team: Team, model: Any) -> Iterator[None]:
        """What diverges inside in one process diverges in all: it takes part in their message with
        what is no number.
        """
        self._before = [(b, b._version) for b in _buffers(model)] if team.size > 1 else []
        try:
            yield
        except Diverged as error:
            if team.size > 1 and not self._length:  # of the first message, which nobody knows yet
                raise RunError(str(error)) from error
            team.mean(model.like.new_full((self._length,), torch.nan))
            raise

    def exchanged(
        self, team: Team, optimizer: Any, model: Any, loss: Tensor, *numbers: Tensor
    ) -> list[Tensor]:
        """Average all of it over processes, and return the loss and the numbers; what is no number
        leaves the statistics as they were.
        """
        learned = [
            p for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        written = [
            b
            for b, (old, version) in zip(_buffers(model), self._before, strict=True)
            if b is not old or b._version != version
        ]
        beside = [
            x.to(learned[0]) for x in (loss.new_tensor(self.wishes()), *written, loss, *numbers)
        ]
        means = team.means([*(p.grad for p in learned), *beside])
        self._length = sum(x.numel() for x in means)
        gradients, (wished, *rest) = means[: len(learned)], means[len(learned) :]
        statistics, common = rest[: len(written)], rest[len(written) :]
        for p, gradient in zip(learned, gradients, strict=True):
            p.grad = gradient
        if common[0].isfinite():
            for buffer, mean in zip(written, statistics, strict=True):
                buffer.copy_(mean)
        self._heard = (wished > 0).tolist()
        return common

    def wished(self, team: Team) -> list[bool]:
        """What any process wished for when it last spoke; alone, what is wished for now."""
        return self.wishes() if team.size == 1 else self._heard


def _buffers(model: nn.Module) -> list[Tensor]:
    return [b for b in model.buffers() if b.is_floating_point() and b.numel()]


def redealt(template: Any, parts: list[Any], team: Team) -> Any:
    """One process's state out of those of another number of them: chains are joined along the axis
    that changed and dealt out anew.

    >>> redealt(torch.zeros(1), [torch.tensor([1.0, 2.0])], Team(1, 2))
    tensor([2.])
    """
    if isinstance(template, dict):
        return {
            key: redealt(value, [part[key] for part in parts], team)
            for key, value in template.items()
        }
    if isinstance(template, list):
        return [
            redealt(value, list(column), team)
            for value, *column in zip(template, *parts, strict=True)
        ]
    if not isinstance(template, Tensor) or template.shape == parts[0].shape:
        return parts[0]
    axis = next(
        i
        for i, (mine, theirs) in enumerate(zip(template.shape, parts[0].shape, strict=True))
        if mine != theirs
    )
    whole = torch.cat(parts, axis)
    part = team.share(whole.shape[axis])
    return whole.narrow(axis, part.start, part.stop - part.start).clone()
