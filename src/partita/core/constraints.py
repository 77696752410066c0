"""What an argument of a constructor may be, written in its signature.

``hidden: Size`` is an ``int`` to a type checker; before the constructor of a
:class:`partita.core.protocols.Built` runs, the value is held against the check that the annotation
carries, and an error names the class and the argument.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias, get_args, get_origin

from torch import nn

from partita.core.checks import (
    LARGEST,
    check_choice,
    check_count,
    check_counts,
    check_flag,
    check_layers,
    check_module,
    check_real,
)

# owner, parameter and value -> the value, perhaps in another form
Check: TypeAlias = Callable[[str, str, Any], Any]

Size: TypeAlias = Annotated[int, check_count]
Whole: TypeAlias = Annotated[int, partial(check_count, least=0)]
Several: TypeAlias = Annotated[int, partial(check_count, least=2)]
Depth: TypeAlias = Annotated[int, check_layers]
Sizes: TypeAlias = Annotated[Sequence[int], check_counts]
Positive: TypeAlias = Annotated[float, partial(check_real, low=0, open_low=True)]
NonNegative: TypeAlias = Annotated[float, partial(check_real, low=0)]
Moderate: TypeAlias = Annotated[float, partial(check_real, low=-LARGEST, high=LARGEST)]
Flag: TypeAlias = Annotated[bool, check_flag]
Network: TypeAlias = Annotated[nn.Module, check_module]


def one_of(*allowed: object) -> Check:
    """The check of a value that is one of a few.

    >>> Rule = Annotated[str, one_of("zoh", "bilinear")]
    >>> one_of("zoh", "bilinear")("DenseSSM", "rule", "zoh")
    'zoh'
    """

    def check(owner: str, parameter: str, value: object) -> object:
        check_choice(owner, parameter, value, allowed)
        return value

    return check


def between(low: float, high: float) -> Check:
    """The check of a finite number in [low, high].

    >>> between(0, 0.4)("Flow", "alpha", 0)
    0.0
    """
    return partial(check_real, low=low, high=high)


def checks_of(annotations: Mapping[str, Any]) -> dict[str, Check]:
    """The checks that annotations carry, by parameter; None passes where it is allowed.

    >>> list(checks_of({"hidden": Size, "alpha": Positive | None, "name": str}))
    ['hidden', 'alpha']
    """
    found = {}
    for name, annotation in annotations.items():
        members = get_args(annotation) if type(None) in get_args(annotation) else (annotation,)
        for member in members:
            if get_origin(member) is Annotated:
                check = get_args(member)[1]
                found[name] = _unless_none(check) if len(members) > 1 else check
    return found


def _unless_none(check: Check) -> Check:
    return lambda owner, parameter, value: None if value is None else check(owner, parameter, value)
