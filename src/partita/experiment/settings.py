"""``--set key=value``: values read as JSON where they can be, keys sorted to what takes them."""

import json
from collections.abc import Collection, Sequence
from typing import NamedTuple

from partita.core.checks import check_choice
from partita.errors import invalid
from partita.families import Family, family_named, unknown_setting
from partita.runtime.untrusted import Json, JsonObject
from partita.tables.schema import KINDS
from partita.training.settings import SETTING_NAMES

WORDS = {"none": None, "null": None, "true": True, "false": False}
DATA_KEYS = ("binarize",)
READING_KEYS = ("length", "tokens", "encoding")  # of sequences, the same for all


class SortedSettings(NamedTuple):
    """Settings by what takes them: a family, every fit, the data, how sequences are read, and
    single families by name.
    """

    family: JsonObject
    fit: JsonObject
    data: JsonObject
    reading: JsonObject
    families: dict[str, JsonObject]

    @property
    def binarize(self) -> str | float:
        """How gray levels are made binary; none is a choice too."""
        binarize = self.data.get("binarize", "auto")
        return "none" if binarize is None else binarize


def parse_value(text: str) -> Json:
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


def sort_settings(family: Family, pairs: Sequence[str]) -> SortedSettings:
    """Every ``key=value`` to the family, the fit or the data; an unknown key is refused with the
    closest known one.
    """
    found = SortedSettings({}, {}, {}, {}, {})
    takers = ((family.settings, found.family), (SETTING_NAMES, found.fit), (DATA_KEYS, found.data))
    for pair in pairs:
        key, text = _split(pair, "fit", "be key=value", "As in --set learning_rate=0.05.")
        _give(key, text, takers, "fit --set")
    return found


def sort_pairs(pairs: Sequence[str]) -> SortedSettings:
    """``family.key=value`` to that family, ``key=value`` to every fit, to the data, or to how
    sequences are read.

    >>> found = sort_pairs(["rbm.n_hidden=9", "batch_size=50", "length=64"])
    >>> found.families, found.fit, found.reading
    ({'rbm': {'n_hidden': 9}}, {'batch_size': 50}, {'length': 64})
    """
    found = SortedSettings({}, {}, {}, {}, {})
    takers = ((SETTING_NAMES, found.fit), (DATA_KEYS, found.data), (READING_KEYS, found.reading))
    allowed, example = "be key=value or family.key=value", "As in --set rbm.n_hidden=100."
    for pair in pairs:
        key, text = _split(pair, "compare", allowed, example)
        name, dot, setting = key.partition(".")
        if not dot:
            _give(key, text, takers, "compare --set")
        elif setting in READING_KEYS:
            raise invalid(
                "compare",
                f"--set {setting}",
                "be the same for all families, which are scored on the same steps",
                repr(pair),
                f"Say --set {setting}={text}.",
            )
        else:
            value = parse_value(text)
            family_named(name).resolve({setting: value})
            found.families.setdefault(name, {})[setting] = value
    return found


def _split(pair: str, owner: str, allowed: str, example: str) -> tuple[str, str]:
    key, equals, text = pair.partition("=")
    if not equals or not key:
        raise invalid(owner, "--set", allowed, repr(pair), example)
    return key, text


def _give(
    key: str, text: str, takers: Sequence[tuple[Collection[str], JsonObject]], owner: str
) -> None:
    """A setting to the first that takes its key."""
    for keys, target in takers:
        if key in keys:
            target[key] = parse_value(text)
            return
    raise unknown_setting(owner, key, [key for keys, _ in takers for key in keys])
