"""Constraints as data: a table from parameter to check, beside the signature that it constrains.

A check is a function of :mod:`partita.core.checks`, with its bounds bound by ``partial``; the
sentence about a value that is not allowed is made from them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from partita.core.checks import check_choice
from partita.errors import invalid

Check = Callable[[str, str, Any], object]  # owner, parameter, value
Constraints = Mapping[str, Check]


def check_each(owner: str, constraints: Constraints, values: Mapping[str, object]) -> None:
    """Every value by the constraint of its name; constraints without a value wait for another.

    >>> from partita.core.checks import check_count
    >>> check_each("RBM", {"hidden": check_count}, {"hidden": 0})
    Traceback (most recent call last):
    partita.errors.InputError: RBM: hidden must be a whole number of at least 1; got 0.
    """
    for name, check in constraints.items():
        if name in values:
            check(owner, name, values[name])


def optional(check: Check) -> Check:
    """None, or what a check allows."""

    def checked(owner: str, parameter: str, value: object) -> None:
        if value is not None:
            check(owner, parameter, value)

    return checked


def or_auto(check: Check, allowed: str = "") -> Check:
    """``"auto"``, or what a check allows; ``allowed`` names both to a caller with another word."""

    def checked(owner: str, parameter: str, value: object) -> None:
        if isinstance(value, str) and value == "auto":
            return
        if allowed and isinstance(value, str):
            raise invalid(owner, parameter, allowed, repr(value))
        check(owner, parameter, value)

    return checked


def one_of(*allowed: str) -> Check:
    """One of a few words."""

    def checked(owner: str, parameter: str, value: object) -> None:
        check_choice(owner, parameter, value, allowed)

    return checked
