"""What an argument may be, said once in its type: constraints beside the signature, messages from
:mod:`partita.core.checks`.

A constraint is an ``Annotated`` type whose metadata is a check, or a ``Literal``; None passes where
it is allowed. :class:`Checked` reads the fields of a dataclass, :func:`validated` the parameters of
a function.

>>> @validated
... def walk(steps: PositiveInt, how: Literal["up", "down"] = "up") -> None: ...
>>> walk(0)
Traceback (most recent call last):
partita.errors.InputError: walk: steps must be a whole number of at least 1; got 0.
>>> walk(1, how="out")
Traceback (most recent call last):
partita.errors.InputError: walk: how must be one of 'up', 'down'; got 'out'.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import cache, partial, wraps
from types import NoneType
from typing import Annotated, Literal, ParamSpec, TypeAlias, TypeVar, get_args, get_origin

from torch import Tensor, nn

from partita.core.checks import (
    LARGEST,
    check_choice,
    check_count,
    check_counts,
    check_finite,
    check_flag,
    check_layers,
    check_level,
    check_module,
    check_real,
)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Check: TypeAlias = Callable[..., object]  # of owner, parameter and value


def at_least(least: int) -> Check:
    """A whole number of at least ``least``, as metadata of an ``Annotated`` type."""
    return partial(check_count, least=least)


def one_of(*allowed: object) -> Check:
    """One of a few values whose type is wider than a ``Literal``."""
    return partial(check_choice, allowed=allowed)


def within(low: float, high: float = float("inf"), *, open_low: bool = False) -> Check:
    """A finite number in [low, high], or in (low, high]."""
    return partial(check_real, low=low, high=high, open_low=open_low)


PositiveInt: TypeAlias = Annotated[int, at_least(1)]
NonNegativeInt: TypeAlias = Annotated[int, at_least(0)]
FiniteFloat: TypeAlias = Annotated[float, check_real]
PositiveFloat: TypeAlias = Annotated[float, within(0.0, open_low=True)]
NonNegativeFloat: TypeAlias = Annotated[float, within(0.0)]
Share: TypeAlias = Annotated[float, within(0.0, 1.0)]
Several: TypeAlias = Annotated[int, at_least(2)]
Depth: TypeAlias = Annotated[int, check_layers]
Sizes: TypeAlias = Annotated[Sequence[int], check_counts]
Moderate: TypeAlias = Annotated[float, within(-LARGEST, LARGEST)]
Flag: TypeAlias = Annotated[bool, check_flag]
Network: TypeAlias = Annotated[nn.Module, check_module]
FiniteTensor: TypeAlias = Annotated[Tensor, check_finite]


def _level(owner: str, parameter: str, value: object) -> None:
    check_level(owner, value)


Level: TypeAlias = Annotated[float, _level]  # with which an interval covers


def checks_of(annotation: object) -> Iterator[Check]:
    """The checks that a type asks for."""
    parts, none = get_args(annotation), ()
    if len(parts) == 2 and parts[1] is NoneType:
        annotation, none = parts[0], (None,)
    if get_origin(annotation) is Literal:
        yield partial(check_choice, allowed=(*none, *get_args(annotation)))
    for check in getattr(annotation, "__metadata__", ()):
        if callable(check):
            yield _unless_none(check) if none else check


def _unless_none(check: Check) -> Check:
    return lambda owner, name, value: None if value is None else check(owner, name, value)


class Checked:
    """A base of dataclasses whose fields are checked as their types say when one is made."""

    def __post_init__(self) -> None:
        for name, checks in _field_checks(type(self)).items():
            for check in checks:
                check(type(self).__name__, name, getattr(self, name))


@cache
def _field_checks(owner: type) -> dict[str, tuple[Check, ...]]:
    return {field.name: tuple(checks_of(field.type)) for field in fields(owner)}


def validated(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function with its arguments checked as their types say; defaults are not looked at."""
    owner = function.__qualname__.removesuffix(".__init__")
    names = inspect.signature(function).parameters
    checks = {name: tuple(checks_of(names[name].annotation)) for name in names}

    @wraps(function)
    def call(*given: Parameters.args, **named: Parameters.kwargs) -> Result:
        for name, value in {**dict(zip(names, given, strict=False)), **named}.items():
            for check in checks.get(name, ()):
                check(owner, name, value)
        return function(*given, **named)

    return call
