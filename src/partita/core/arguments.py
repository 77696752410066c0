"""What an argument may be, said once in its type: constraints beside the signature, and the checks
behind them, each of which raises :class:`InputError` in the one template of
:mod:`partita.errors`.

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
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cache, partial, wraps
from numbers import Integral
from pathlib import Path
from types import NoneType
from typing import Annotated, Literal, ParamSpec, TypeAlias, TypeVar, get_args, get_origin

import numpy as np
import torch
from torch import Tensor, nn

from partita.errors import Diverged, invalid, one_line
from partita.runtime.files import unreachable

MOST = 2**63 - 1  # what a computer counts to
LARGEST = 1e18  # numbers whose squares float32 holds too
# beyond which building one after the other takes all memory, and no network learns
MOST_LAYERS = 1000

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Check: TypeAlias = Callable[..., object]  # of owner, parameter and value


def check_count(owner: str, parameter: str, value: object, least: int = 1, most: int = MOST) -> int:
    """A whole number that is at least ``least``, and at most ``most``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise invalid(owner, parameter, f"be a whole number of at least {least}", repr(value))
    if int(value) > most:
        raise invalid(owner, parameter, f"be at most {most}", value)
    return int(value)


def check_counts(owner: str, parameter: str, value: object, least: int = 1) -> tuple[int, ...]:
    """Whole numbers in a row, such as the widths of layers.

    >>> check_counts("MLP", "widths", [64, 32])
    (64, 32)
    """
    text = isinstance(value, str | bytes)
    if text or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        allowed = f"be whole numbers of at least {least}, such as (64, 64)"
        raise invalid(owner, parameter, allowed, one_line(value))
    return tuple(check_count(owner, parameter, one, least) for one in value)


def check_layers(owner: str, parameter: str, value: object, least: int = 1) -> int:
    """A number of layers."""
    return check_count(owner, parameter, value, least, MOST_LAYERS)


def check_real(
    owner: str,
    parameter: str,
    value: float,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
) -> float:
    """A finite number in [low, high], or in (low, high] with ``open_low``."""
    # what torch multiplies by, too
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(
        value, bool
    )
    fine = number and _finite(value) and low <= value <= high
    if not fine or (open_low and value == low):
        raise invalid(owner, parameter, _range_in_words(low, high, open_low), repr(value))
    return float(value)


def _finite(value: float) -> bool:
    # torch multiplies by no larger whole number
    return abs(value) <= MOST if isinstance(value, int) else math.isfinite(value)


def check_level(owner: str, level: object) -> None:
    """The probability with which an interval covers: strictly between 0 and 1, where its ends are
    finite.

    >>> check_level("AIS", 0.95)
    """
    if not isinstance(level, float) or not 0 < level < 1:
        raise invalid(owner, "level", "lie between 0 and 1", level)


def check_choice(owner: str, parameter: str, value: object, allowed: tuple[object, ...]) -> None:
    """One of a few named values."""
    # an array has no one truth
    if not any(value is one or (isinstance(value, type(one)) and value == one) for one in allowed):
        raise invalid(owner, parameter, "be one of " + ", ".join(map(repr, allowed)), repr(value))


def check_role(
    owner: str, parameter: str, value: object, methods: tuple[str, ...], example: str
) -> None:
    """An object that plays a role: neither a name nor a class, with one of the methods of the
    role.
    """
    fits = any(callable(getattr(value, method, None)) for method in methods)
    if isinstance(value, str | type) or not fits:
        got = f"the class {value.__name__}" if isinstance(value, type) else one_line(value)
        raise invalid(owner, parameter, f"be an object such as {example}", got)


def check_module(owner: str, parameter: str, f: object) -> nn.Module:
    """A network whose parameters can be learned."""
    if not isinstance(f, nn.Module):
        raise invalid(
            owner,
            parameter,
            "be a torch.nn.Module",
            type(f).__name__,
            "Use partita.nets.MLP, or write a module with a forward.",
        )
    return f


def check_flag(owner: str, parameter: str, value: object) -> bool:
    """True or false, or a whole number in their place."""
    if not isinstance(value, Integral | np.bool_):
        raise invalid(owner, parameter, "be True or False", one_line(value))
    return bool(value)


def check_path(owner: str, parameter: str, value: object, what: str = "a folder") -> Path:
    """A path that the system can look at, whether or not something is there."""
    why = unreachable(value) if isinstance(value, str | Path) else "no path"
    if why or not isinstance(value, str | Path):
        raise invalid(owner, parameter, f"be the path of {what}", f"{value!r}, {why}")
    return Path(value)


def check_generator(owner: str, value: object) -> None:
    """A source of randomness."""
    if not isinstance(value, torch.Generator):
        raise invalid(
            owner,
            "generator",
            "be a torch.Generator",
            repr(value),
            "As in torch.Generator().manual_seed(0).",
        )


def check_width(owner: str, parameter: str, x: Tensor, width: int, partner: str) -> None:
    """The last dimension of ``x`` is ``width``; ``partner`` says whose width that is."""
    if x.dim() == 0 or x.shape[-1] != width:
        raise invalid(
            owner, parameter, f"have shape (*, {width}) to match {partner}", tuple(x.shape)
        )


def check_categories(owner: str, parameter: str, x: Tensor, states: int) -> Tensor:
    """``x`` as whole numbers from 0 to ``states`` - 1; another would silently be looked up in the
    table of a neighbor.
    """
    code = x.long()
    wrong = (code != x) | (code < 0) | (code >= states)
    if wrong.any():
        bad = wrong.nonzero()[0].tolist()
        raise invalid(
            owner,
            parameter,
            f"hold whole numbers from 0 to {states - 1}",
            f"{x[tuple(bad)].item():g} at {_place(bad)}",
        )
    return code


def check_finite(
    owner: str,
    parameter: str,
    x: Tensor,
    remedy: str = "Remove or impute the missing values first.",
) -> None:
    """No NaN and no infinity."""
    if x.is_floating_point() and not torch.isfinite(x).all():
        bad = (~torch.isfinite(x)).nonzero()[0].tolist()
        raise invalid(
            owner, parameter, "be finite", f"{x[tuple(bad)].item()} at {_place(bad)}", remedy
        )


def check_parameters(
    owner: str, title: str, parameters: Iterable[tuple[str, Tensor]], remedy: str
) -> None:
    """Raises :class:`Diverged` naming the first parameter of a model that is not finite."""
    for name, value in parameters:
        if not torch.isfinite(value).all():
            parameter = f"parameter {name!r} of {title}"
            raise Diverged.about(owner, parameter, "be finite", "nan or infinity", remedy)


def check_tensor(owner: str, parameter: str, x: Tensor) -> None:
    """A dense tensor whose real numbers are there."""
    if x.layout is not torch.strided or x.is_nested:
        raise invalid(
            owner,
            parameter,
            "be a dense table",
            f"a tensor of layout {x.layout}",
            "Call x.to_dense() first.",
        )
    if x.is_complex():
        raise invalid(
            owner,
            parameter,
            "hold real numbers",
            "complex ones",
            "Give real and imaginary parts as columns of their own.",
        )
    if x.is_meta:
        raise invalid(
            owner, parameter, "hold numbers", "a tensor on the meta device, which has none"
        )


def check_rows(owner: str, parameter: str, x: Tensor, least: int = 1) -> None:
    """At least ``least`` rows."""
    check_tensor(owner, parameter, x)
    if x.dim() != 2:
        raise invalid(
            owner,
            parameter,
            "be a table of rows and columns",
            f"shape {tuple(x.shape)}",
            "Reshape it to (rows, columns).",
        )
    if len(x) < least:
        raise invalid(
            owner, parameter, f"have at least {least} row{'s' if least > 1 else ''}", f"{len(x)}"
        )


def _place(index: list[int]) -> str:
    return f"row {index[0]}, column {index[1]}" if len(index) == 2 else f"position {tuple(index)}"


def _range_in_words(low: float, high: float, open_low: bool) -> str:
    if math.isinf(low) and math.isinf(high):
        return "be a finite number"
    if math.isinf(high):
        return f"be a finite number {'above' if open_low else 'of at least'} {low:g}"
    return f"lie in {'(' if open_low else '['}{low:g}, {high:g}]"


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
