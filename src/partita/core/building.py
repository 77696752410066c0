"""What is built from settings: randomness that is none, and sizes that no memory holds, are named
before any number is made.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import nn

from partita.core.checks import check_generator
from partita.runtime import memory_limit


class Built(nn.Module):
    """A module whose constructor takes sizes and a ``generator``, which a subclass need not
    check.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            cls.__init__ = _within_reason(cls.__init__)  # type: ignore[method-assign]


def _within_reason(build: Callable[..., None]) -> Callable[..., None]:
    @wraps(build)
    def built(self: Any, *sizes: Any, **settings: Any) -> None:
        owner = type(self).__name__
        if "generator" in settings:
            check_generator(owner, settings["generator"])
        with memory_limit.named(owner), memory_limit.within_machine(owner):
            build(self, *sizes, **settings)

    return built
