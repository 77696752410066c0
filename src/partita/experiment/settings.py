"""``--set key=value``: values read as JSON where they can be, keys sorted to who takes them."""

import json
from dataclasses import fields
from typing import Any, NamedTuple

from partita.core.checks import check_choice
from partita.errors import invalid
from partita.families import Family, unknown_setting
from partita.tables.schema import KINDS
from partita.training import Settings

WORDS = {"none": None, "null": None, "true": True, "false": False}
DATA_KEYS = ("binarize",)


class Sorted(NamedTuple):
    """Settings by who takes them."""

    family: dict[str, Any]
    fit: dict[str, Any]
    data: dict[str, Any]

    @property
    def binarize(self) -> Any:
        """How gray levels are made binary."""
        return binarize_of(self.data)


def binarize_of(data: dict[str, Any]) -> Any:
    """How settings of the data say that gray levels are made binary; none is a choice too."""
    binarize = data.get("binarize", "auto")
    return "none" if binarize is None else binarize


def parse_value(text: str) -> Any:
    """A number, a truth value, none, a JSON list, or the text itself.

    >>> (
    ...     parse_value("1e-3"),
    ...     parse_value(".5"),
    ...     parse_value("None"),
    ...     parse_value("pcd"),
    ...     parse_value("[0, 1]"),
    ... )
    (0.001, 0.5, None, 'pcd', [0, 1])
    """
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for read in (json.loads, float):
        try:
            return read(text)
        except (ValueError, RecursionError):  # the latter of lists in lists without end
            continue
    return text


def parse_columns(pairs: list[str], owner: str) -> dict[str, str]:
    """``--column name=kind``: kinds by name; a name may itself have an equals sign, a kind has
    none.

    >>> parse_columns(["age=count", "a=b=real"], "fit")
    {'age': 'count', 'a=b': 'real'}
    """
    found = {}
    for pair in pairs:
        name, equals, kind = pair.rpartition("=")
        if not equals or not name:
            raise invalid(
                owner, "--column", "be name=kind", repr(pair), "As in --column age=count."
            )
        check_choice(owner, f"--column {name}", kind, KINDS)
        found[name] = kind
    return found


def sort_settings(family: Family, pairs: list[str]) -> Sorted:
    """Every ``key=value`` to the family, the fit or the data; an unknown key is refused with the
    closest known one.
    """
    fit_keys = [field.name for field in fields(Settings)]
    result = Sorted({}, {}, {})
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise invalid(
                "fit", "--set", "be key=value", repr(pair), "As in --set learning_rate=0.05."
            )
        for keys, target in (
            (family.settings, result.family),
            (fit_keys, result.fit),
            (DATA_KEYS, result.data),
        ):
            if key in keys:
                target[key] = parse_value(text)
                break
        else:
            raise unknown_setting("fit --set", key, [*family.settings, *fit_keys, *DATA_KEYS])
    return result
