"""An experiment as words describe it: a family and data by name, settings as ``key=value``, read as
JSON where they can be and sorted to what takes them; and the one that a run's config describes.
"""

import json
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from partita.core.arguments import check_choice, check_count
from partita.datasets.open import open_dataset
from partita.errors import RunError, invalid
from partita.experiment.experiment import Experiment
from partita.experiment.saved import DataRecord, free_path, short_name
from partita.families import Family, family_named, unknown_setting
from partita.families.base import settings_by_table, table_kind
from partita.runtime.files import Json, JsonObject, check_like, read_record
from partita.tables.encoding import Encoding
from partita.tables.files import TABLES
from partita.tables.schema import KINDS
from partita.training.run import read_config
from partita.training.settings import SETTING_NAMES

WORDS = {"none": None, "null": None, "true": True, "false": False}
DATA_KEYS = ("binarize",)
READING_KEYS = ("length", "tokens", "encoding")  # of sequences, the same for all

# the part of a config that `partita fit` writes and resumes from
PLANNED = {
    "encoding": {"kind": str},
    "seed": int,
    "family": {"name": str, "settings": dict},
    "command": str,
    "steps": int,
    "fit": dict,
    "objective": dict,
    "data": {"source": str, "rows": [int]},
}


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
            family_named(name, "compare", "--set").resolve({setting: value})
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


def requested(
    model: str,
    source: str,
    out: Path | None,
    pairs: list[str],
    budget: dict[str, Any],
    seed: int,
    columns: dict[str, str] | None = None,
) -> Experiment:
    """The experiment that the words of a command describe."""
    family = family_named(model)
    settings = sort_settings(family, pairs)
    dataset = open_dataset(
        source,
        binarize=settings.binarize,
        words=family.takes_words(settings.family) or Path(source).suffix.lower() in TABLES,
        missing=bool(family.missing),
        reading=family.reading(settings.family),
        columns=columns,
    )
    check_count("fit", "seed", seed, 0)
    by_table = settings_by_table(family.name, table_kind(dataset), dataset.train)
    command = shlex.join(["partita", *sys.argv[1:]])
    return Experiment(
        dataset,
        family,
        {**by_table, **settings.family},
        {**settings.fit, **budget},
        torch.Generator().manual_seed(seed),
        out or free_path(Path("runs") / f"{family.name}-{short_name(source)}"),
        {"data": DataRecord.of(source, dataset).as_json(), "command": command},
    )


def recorded_experiment(folder: Path) -> Experiment:
    """The experiment that a run's config describes."""
    config = read_config(folder)
    if config.get("data") is None or not PLANNED.keys() <= config.keys():
        raise RunError(
            f"fit: --resume needs a run that `partita fit` made; {folder} does not say its data "
            "and settings. Resume it in Python, with partita.fit(..., resume=True)."
        )
    check_like(config, PLANNED, "config.json", whole=True)
    family = family_named(config["family"]["name"])
    data = read_record(DataRecord, config["data"], "config.json: data")
    words = config["encoding"]["kind"] in ("category", "mixed")
    source = config["data"]["source"]
    dataset = data.opened(source, words=words, missing=bool(family.missing))
    if (len(dataset.train), dataset.train.width) != data.rows:
        now = f"{len(dataset.train)} x {dataset.train.width}"
        then = " x ".join(map(str, data.rows))
        raise RunError(
            f"fit: {source!r} must be the data that {folder} was fitted to, {then}; got "
            f"{now}. Restore the file."
        )
    seed = check_count("fit", "the seed of the run", config["seed"], 0)
    return Experiment(
        dataset,
        family,
        config["family"]["settings"],
        {},
        torch.Generator().manual_seed(seed),
        folder,
        {name: config[name] for name in ("data", "command")},
        fitted_encoding=Encoding.from_json(config["encoding"], dataset.train.width),
    )


def split_names(text: str | None) -> list[str]:
    """Names with commas between.

    >>> split_names("rbm, vae,")
    ['rbm', 'vae']
    """
    return [name.strip() for name in (text or "").split(",") if name.strip()]
