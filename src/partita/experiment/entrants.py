"""The data of a comparison as all candidates take them, the candidates, and the options and the
time of their fits.
"""

from typing import Any, NamedTuple

from partita.datasets import Dataset
from partita.datasets.open import Reading, holds_sequences, open_dataset
from partita.errors import invalid
from partita.experiment.candidates import BY_NAME, candidates_by_family, candidates_by_objective
from partita.experiment.compare_settings import CompareSettings, sort_pairs
from partita.experiment.results import Candidate
from partita.experiment.settings import binarize_of, parse_columns, sort_settings
from partita.families import FAMILIES, family_named
from partita.training.settings import LENGTHS

MINUTES = 0.5  # for each candidate, by default


class Entrants(NamedTuple):
    """The data, the candidates, the families that are left out and why, and the options of every
    fit.
    """

    dataset: Dataset
    candidates: list[Candidate]
    left_out: dict[str, str]
    options: dict[str, Any]

    def timed(self, request: CompareSettings) -> tuple[dict[str, Any], float | None]:
        """The options of every fit, and the minutes for all; None where the options say how long
        each is.
        """
        options = self.options | ({} if request.epochs is None else {"epochs": request.epochs})
        given = [name for name in LENGTHS if options.get(name) is not None]
        if given and request.minutes is not None:
            raise invalid("compare", f"one of --minutes and {given[0]}", "be given", "both")
        return options, None if given else request.minutes or MINUTES * len(self.candidates)


def entrants(request: CompareSettings) -> Entrants:
    """Who takes part: families, or one family by several objectives; refused where nothing can."""
    found = _by_objective(request) if request.model else _by_family(request)
    if not found.candidates:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in found.left_out.items())
        allowed = "be a table that at least one family can be compared on"
        raise invalid("compare", "DATA", allowed, f"none ({reasons})")
    return found


def _by_family(request: CompareSettings) -> Entrants:
    pairs = sort_pairs(request.settings)
    for name in request.models:
        family_named(name)
    sequences = bool(request.models) and all(name in BY_NAME for name in request.models)
    reading = None
    if sequences or holds_sequences(request.data):
        reading = Reading(**pairs.reading).as_json()
    dataset = open_dataset(
        request.data,
        binarize=binarize_of(pairs.data),
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
    family = family_named(request.model)
    pairs = sort_settings(family, request.settings)
    dataset = open_dataset(
        request.data,
        binarize=pairs.binarize,
        words=family.takes_words(pairs.family),
        missing=bool(family.missing),
    )
    found = candidates_by_objective(family, pairs.family, request.objectives, dataset.train)
    return Entrants(dataset, *found, pairs.fit)
