"""Linear forms with a remainder, as tensors that every operation of torch dispatches on."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
RULES: dict[Any, Callable[..., Any]] = {}  # by operation; rules.py fills it
Parts = list[Tensor]  # c, g_1, ..., g_D, r


class NoRule(Exception):
    """An operation that no bound is known for."""


class Form(Tensor):
    """A tensor of linear forms."""

    parts: Parts

    @staticmethod
    def __new__(cls, parts: Parts) -> "Form":
        return torch.Tensor._make_wrapper_subclass(
            cls, parts[0].shape, dtype=parts[0].dtype, device=parts[0].device
        )  # type: ignore[attr-defined]

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    @property
    def c(self) -> Tensor:
        """The middle."""
        return self.parts[0]

    @property
    def reach(self) -> Tensor:
        """R."""
        return sum((g.abs() for g in self.parts[1:-1]), self.parts[-1])

    def ends(self) -> tuple[Tensor, Tensor]:
        """The least and the greatest value."""
        return self.c - self.reach, self.c + self.reach

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = RULES.get(func.overloadpacket)
        if rule is None:
            raise NoRule(str(func))
        return rule(func, *args, **(kwargs or {}))


class Fuzzy(Tensor):
    """A truth that may differ within a box: surely true, possibly true; ``like`` is a form of as
    many parts as were compared.
    """

    @staticmethod
    def __new__(cls, sure: Tensor, maybe: Tensor, like: Form) -> "Fuzzy":
        return torch.Tensor._make_wrapper_subclass(
            cls, sure.shape, dtype=torch.bool, device=sure.device
        )  # type: ignore[attr-defined]

    def __init__(self, sure: Tensor, maybe: Tensor, like: Form) -> None:
        self.sure, self.maybe, self.like = sure, maybe, like

    __torch_dispatch__ = Form.__torch_dispatch__
