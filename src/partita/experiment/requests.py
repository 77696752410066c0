"""An experiment as words describe it: a family and data by name, settings as ``key=value``; and
the one that a run's config describes.
"""

import shlex
import sys
from pathlib import Path
from typing import Any

import torch

from partita.core.checks import check_count
from partita.datasets.open import open_dataset
from partita.errors import RunError
from partita.experiment.experiment import Experiment
from partita.experiment.saved import DataRecord, free_path, short_name
from partita.experiment.settings import sort_settings
from partita.families import family_named
from partita.families.table_kind import settings_by_table, table_kind
from partita.runtime.untrusted import check_like, read_record
from partita.tables.encoding import Encoding
from partita.tables.frames import TABLES
from partita.training.run import read_config

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
