"""The settings of a comparison: as the command line gives them, as they are saved, and with the
data and the candidates that they describe.
"""

import json
import shlex
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from partita.core.arguments import check_count, check_real
from partita.datasets import Dataset
from partita.datasets.open import Reading, holds_sequences, open_dataset
from partita.errors import RunError, invalid
from partita.experiment.candidates import BY_NAME, candidates_by_family, candidates_by_objective
from partita.experiment.compare import Candidate
from partita.experiment.requests import parse_columns, sort_pairs, sort_settings
from partita.families import FAMILIES, family_named
from partita.runtime.files import (
    JsonObject,
    inside,
    read_json,
    read_record,
    sealed,
    unsealed,
    write_whole,
)
from partita.training.run import MEANT
from partita.training.settings import LENGTHS

MINUTES = 0.5  # for each candidate, by default
PLAN = "comparison.json"  # the settings, in the folder of a comparison


@dataclass(frozen=True)
class CompareSettings:
    """What is compared and how, as it is saved.

    Arguments:
        data: A name or a path.
        models: Names of families; empty for all that the data allow.
        settings: ``key=value`` for every fit, ``family.key=value`` for one family.
        minutes: For all together.
        epochs: For each, in place of minutes.
        evaluator: Of log Z.
        seed: Of every candidate alike.
        columns: ``name=kind``, of columns of a table.
        model: One family that is fitted by several objectives, in place of ``models``; empty to
            compare families.
        objectives: Their names, or ``all``.
    """

    data: str
    models: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    minutes: float | None = None
    epochs: int | None = None
    evaluator: str = "auto"
    seed: int = 0
    columns: list[str] = field(default_factory=list)
    model: str = ""
    objectives: list[str] = field(default_factory=list)

    @property
    def command(self) -> str:
        """The command that makes the same comparison again."""
        words = ["partita", "compare", self.data]
        if self.models:
            words += ["--models", ",".join(self.models)]
        if self.model:
            words += ["--model", self.model, "--objectives", ",".join(self.objectives)]
        words += [word for pair in self.settings for word in ("--set", pair)]
        words += [word for pair in self.columns for word in ("--column", pair)]
        for name in ("minutes", "epochs", "evaluator", "seed"):
            if getattr(self, name) is not None:
                words.append(f"--{name}={getattr(self, name)}")
        return shlex.join(words)

    def check_time(self) -> None:
        """Minutes for all or epochs for each, not both."""
        if self.minutes is not None:
            check_real("compare", "--minutes", self.minutes, 0, open_low=True)
        if self.epochs is not None:
            check_count("compare", "--epochs", self.epochs)
        if self.minutes is not None and self.epochs is not None:
            raise invalid("compare", "one of --minutes and --epochs", "be given", "both")


def read_settings(folder: Path) -> CompareSettings:
    """The settings of the comparison in a folder."""
    if not (folder / PLAN).exists():
        made = "the folder of a comparison, as `partita compare DATA` makes"
        raise RunError(f"compare: --resume must be {made}; found no {PLAN} in {folder}.")
    saved, whole = unsealed(read_json(inside(folder, PLAN), dict))
    request = read_record(CompareSettings, saved, PLAN)
    check_count("compare", "the seed of the comparison", request.seed, 0)
    if not whole:
        raise RunError(
            f"compare: {folder / PLAN} must be as partita wrote it, to go on with the comparison; "
            f"got a changed one. {MEANT}"
        )
    return request


def keep(folder: Path, request: CompareSettings) -> None:
    """Save the settings; a folder that holds another comparison is left as it is."""
    if (folder / PLAN).exists():
        before = asdict(read_settings(folder))
        for name, value in asdict(request).items():
            if value != before[name]:
                raise RunError(
                    f"compare: {name} must be that of the comparison in {folder}, "
                    f"{before[name]!r}, to go on with it; got {value!r}. Choose another --out."
                )
        return
    if (folder / "config.json").exists():
        raise RunError(
            f"compare: --out must be a new folder or that of a comparison; {folder} holds a run. "
            "Choose another name."
        )
    write_whole(folder / PLAN, json.dumps(sealed(asdict(request)), indent=2) + "\n")


class Entrants(NamedTuple):
    """The data, the candidates, the families that are left out and why, and the options of every
    fit.
    """

    dataset: Dataset
    candidates: list[Candidate]
    left_out: dict[str, str]
    options: JsonObject

    def timed(self, request: CompareSettings) -> tuple[JsonObject, float | None]:
        """The options of every fit, and the minutes for all; None where the options say how long
        each is.
        """
        options = self.options | ({} if request.epochs is None else {"epochs": request.epochs})
        given = [name for name in LENGTHS if options.get(name) is not None]
        if given and request.minutes is not None:
            raise invalid("compare", f"one of --minutes and {given[0]}", "be given", "both")
        return options, None if given else request.minutes or MINUTES * len(self.candidates)


def entrants(request: CompareSettings) -> Entrants:
    """What takes part: families, or one family by several objectives; refused where nothing can."""
    found = _by_objective(request) if request.model else _by_family(request)
    if not found.candidates:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in found.left_out.items())
        allowed = "be a table that at least one family can be compared on"
        raise invalid("compare", "DATA", allowed, f"none ({reasons})")
    return found


def _by_family(request: CompareSettings) -> Entrants:
    pairs = sort_pairs(request.settings)
    for name in request.models:
        family_named(name, "compare", "--models")
    sequences = bool(request.models) and all(name in BY_NAME for name in request.models)
    reading = None
    if sequences or holds_sequences(request.data):
        reading = Reading(**pairs.reading).as_json()
    dataset = open_dataset(
        request.data,
        binarize=pairs.binarize,
        words=True,
        missing=True,
        reading=reading,
        columns=parse_columns(request.columns, "compare") or None,
    )
    if pairs.reading and dataset.reading is None:
        option, got = f"--set {next(iter(pairs.reading))}", f"the table {request.data}"
        raise invalid("compare", option, "go with text or other sequences", got)
    settings = {
        name: {key: value for key, value in pairs.reading.items() if key in family.settings}
        | pairs.families.get(name, {})
        for name, family in FAMILIES.items()
    }
    return Entrants(dataset, *candidates_by_family(request.models, settings, dataset), pairs.fit)


def _by_objective(request: CompareSettings) -> Entrants:
    family = family_named(request.model, "compare", "--model")
    pairs = sort_settings(family, request.settings)
    dataset = open_dataset(
        request.data,
        binarize=pairs.binarize,
        words=family.takes_words(pairs.family),
        missing=bool(family.missing),
    )
    found = candidates_by_objective(family, pairs.family, request.objectives, dataset.train)
    return Entrants(dataset, *found, pairs.fit)
