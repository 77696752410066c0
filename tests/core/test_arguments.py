"""Constraints in types: what passes, what is refused, and in which words."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from partita.core.arguments import (
    Checked,
    FiniteFloat,
    Level,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
    at_least,
    validated,
    within,
)
from partita.errors import InputError


@dataclass(frozen=True)
class Walk(Checked):
    steps: PositiveInt = 1
    burn_in: NonNegativeInt = 0
    rate: PositiveFloat = 0.5
    share: Share = 0.5
    chains: Annotated[int, at_least(2)] = 2
    jitter: Annotated[float, within(0.0, 0.9)] = 0.1
    shift: FiniteFloat | None = None
    order: Literal["random", "sequential"] = "random"
    kind: Literal["plain"] | None = None
    free: str = ""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "Walk: steps must be a whole number of at least 1; got 0"),
        ({"steps": 1.5}, "Walk: steps must be a whole number of at least 1; got 1.5"),
        ({"burn_in": -1}, "Walk: burn_in must be a whole number of at least 0; got -1"),
        ({"rate": 0.0}, "Walk: rate must be a finite number above 0; got 0.0"),
        ({"share": 1.5}, r"Walk: share must lie in \[0, 1\]; got 1.5"),
        ({"chains": 1}, "Walk: chains must be a whole number of at least 2; got 1"),
        ({"jitter": 1.0}, r"Walk: jitter must lie in \[0, 0.9\]; got 1.0"),
        ({"shift": float("nan")}, "Walk: shift must be a finite number; got nan"),
        ({"order": "none"}, "Walk: order must be one of 'random', 'sequential'; got 'none'"),
        ({"kind": "fancy"}, "Walk: kind must be one of None, 'plain'; got 'fancy'"),
    ],
)
def test_a_field_out_of_bounds_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Walk(**settings)  # type: ignore[arg-type]


def test_what_the_types_allow_passes() -> None:
    assert Walk().shift is None
    assert Walk(3, 0, 0.1, 1.0, 5, 0.9, -2.0, "sequential", "plain", "any").shift == -2.0


class Rate:
    @validated
    def __init__(self, rate: PositiveFloat, level: Level = 0.95) -> None:
        self.rate, self.level = rate, level

    @validated
    def times(self, n: PositiveInt) -> float:
        return n * self.rate


def test_arguments_are_checked_by_place_and_by_name() -> None:
    assert Rate(2.0).times(3) == 6.0
    with pytest.raises(InputError, match=r"Rate: rate must be a finite number above 0; got -1"):
        Rate(-1.0)
    with pytest.raises(InputError, match=r"Rate: level must lie between 0 and 1; got 1.0"):
        Rate(1.0, level=1.0)
    with pytest.raises(InputError, match=r"Rate.times: n must be a whole number of at least 1"):
        Rate(1.0).times(0)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'rate'"):
        Rate()  # type: ignore[call-arg]
