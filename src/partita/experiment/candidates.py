"""Which families, or objectives of one family, can be compared on some data: those whose scores are
masses, or densities, of the same rows in the same units.

A mass of a discrete table and a density of real columns are different things, whatever their
numbers; so is a mass of a table that was cut at its medians. A family that would need either is
left out, with the reason. Sequences are for models of sequences, tables for all.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from partita.core import capability
from partita.core.arguments import check_choice
from partita.core.protocols import Model
from partita.datasets import Dataset
from partita.errors import PartitaError, invalid
from partita.experiment.compare import Candidate
from partita.experiment.experiment import evenly_spaced
from partita.families import FAMILIES, Family, family_named
from partita.families.base import check_held_out, settings_by_table, table_kind, table_numbers
from partita.families.by_gradient import AUTO_EXACT_BITS, NAMED, OBJECTIVES
from partita.runtime.files import JsonObject
from partita.tables import Encoding, Rows
from partita.tables.encoding import Kind
from partita.tables.infer import copying, repeating
from partita.tables.schema import listed

Measure = Literal[
    "masses of discrete rows",
    "densities of real columns",
    "probabilities of sequences",
    "masses of cut columns",
    "probabilities of mixed columns",
]
MASS: Measure = "masses of discrete rows"
DENSITY: Measure = "densities of real columns"
MEASURES: dict[str, Measure] = {
    **dict.fromkeys(("binary", "spin", "signs", "spins", "count", "category"), MASS),
    **dict.fromkeys(("real", "scaled", "raw"), DENSITY),
    "steps": "probabilities of sequences",
    "mixed": "probabilities of mixed columns",
    **dict.fromkeys(("median", "median-signs", "quantile"), "masses of cut columns"),
}
# these stop when they are done, and leave the rest of their time to others
FIRST = ("ppca", "mixture-ppca", "mixture")
BY_NAME = {  # families that add nothing to a comparison of all
    **dict.fromkeys(
        ("hyena", "ssm", "attention", "conv", "lstm"),
        "it is the autoregressive family with a network for sequences",
    ),
    "vrnn": "it is made for sequences, and takes a table one column after the other",
}
PAIRS = dict.fromkeys(
    ("maxent", "ising", "potts"), "where columns have two values it is the model that boltzmann is"
)
OF_SEQUENCES = {"autoregressive": "on sequences it is the model that hyena is"}
ROWS_TO_CHECK, COLUMNS_TO_CHECK = 2048, 1000
# of a table up to which the number of components is looked for, and what is taken beyond
LADDER_CELLS, COMPONENTS = 300_000, 10


def candidates_by_family(
    names: Sequence[str], settings: dict[str, JsonObject], dataset: Dataset
) -> tuple[list[Candidate], dict[str, str]]:
    """One candidate for each family that can be compared on these data, and those left out with the
    reason.

    Arguments:
        names: Of families; empty for all.
        settings: Of each family by its name, over what the table asks for.
    """
    kind = table_kind(dataset)
    named = [family_named(name) for name in dict.fromkeys(names)]
    by_name: dict[str, str] = {}
    if not named:
        by_name = OF_SEQUENCES if kind == "steps" else BY_NAME
    if not named and kind in ("binary", "spin"):
        by_name = {**BY_NAME, **PAIRS}
    found, left_out = [], {}
    for family in sorted(named or FAMILIES.values(), key=lambda family: family.name not in FIRST):
        chosen = {**_by_table(family.name, kind, dataset.train), **settings.get(family.name, {})}
        reason = _reason_against(family, chosen, dataset, kind)
        if reason is None and family.name in by_name:
            reason = f"{by_name[family.name]}; ask for it by name"
        if reason is None:
            found.append(Candidate(family.name, family, chosen))
        else:
            left_out[family.name] = reason
    return found, left_out


def measure_of(kind: Kind, rows: Rows) -> Measure:
    """What the scores of rows so encoded are; of columns that are treated one by one, by what they
    are.
    """
    if kind != "mixed" or rows.schema is None:
        return MEASURES[kind]
    kinds = {column.law for column in rows.schema.used}
    return DENSITY if kinds == {"real"} else MEASURES[kind] if "real" in kinds else MASS


def degenerate_columns(dataset: Dataset) -> list[str]:
    """Warnings where scores are densities of columns that have none: whose values repeat, or that
    copy others.
    """
    rows, kind = dataset.train, table_kind(dataset)
    if kind not in ("real", "mixed") or measure_of(kind, rows) == MASS:
        return []
    used = () if rows.schema is None else rows.schema.used
    names = list(map(repr, rows.schema.names if rows.schema else range(rows.width)))
    real = [i for i in range(rows.width) if kind == "real" or used[i].law == "real"]
    real = real[:COLUMNS_TO_CHECK]
    x = torch.from_numpy(table_numbers(evenly_spaced(rows, ROWS_TO_CHECK))[:, real])
    found = filter(None, [repeating(x), None if x.isnan().any() else copying(x, x[:, :0])])
    return [
        f"column {names[real[place]]} {what}: densities of it grow without end where mass is "
        "squeezed onto it, and the best is the model that squeezes most. Read it as another kind, "
        "or leave it out."
        for place, what in found
    ]


def _by_table(name: str, kind: Kind, rows: Rows) -> JsonObject:
    """Settings of a family that follow from a table: what its columns hold, and that a search for
    the number of components would be long.
    """
    if kind == "steps":
        return {}
    found = settings_by_table(name, kind, rows)
    if name == "mixture" and len(rows) * rows.width > LADDER_CELLS:
        return {"n_components": COMPONENTS, **found}
    return found


def _reason_against(
    family: Family, settings: JsonObject, dataset: Dataset, kind: Kind
) -> str | None:
    """Why a family's score would not be one of these rows in their own units; None if it is."""
    rows = dataset.train
    if kind == "steps":
        return _reason_against_sequences(family, settings, rows)
    if kind == "mixed" and not family.mixed and rows.schema is not None and rows.schema.mixed:
        return f"it takes columns of one sort, and has no place for {_odd_ones(rows)}"
    if rows.labels and not family.takes_words(settings):
        return "it takes no words"
    if not family.missing and not all(
        part.complete() for part in (rows, dataset.valid, dataset.test) if part is not None
    ):
        return "values are missing, which it cannot take"
    try:
        own = family.encoding_kind(rows, settings)
        here, there = measure_of(own, rows), measure_of(kind, rows)
        if here != there:
            return f"its scores would be {here}, those of this table are {there}"
        some = rows.take(np.arange(min(ROWS_TO_CHECK, len(rows))))
        encoding = Encoding.fit(rows, own, "compare")
        encoding.check(table_numbers(some), "compare")
        check_held_out(dataset, encoding, "compare")
    except PartitaError as error:
        return _in_short(family, error)
    return None


def _reason_against_sequences(family: Family, settings: JsonObject, rows: Rows) -> str | None:
    if family.reads is None:
        return "it takes tables, and these are sequences"
    try:
        family.encoding_kind(rows, settings)
    except PartitaError as error:
        return _in_short(family, error)
    return None


def _in_short(family: Family, error: PartitaError) -> str:
    """A refusal as a reason beside the name of the family that refuses."""
    text = str(error).rstrip(".").removeprefix("family ")
    return text.removeprefix(f"{family.name}: ").removeprefix("compare: ")


def candidates_by_objective(
    family: Family,
    settings: JsonObject,
    names: Sequence[str],
    rows: Rows,
) -> tuple[list[Candidate], dict[str, str]]:
    """One candidate for each objective of one family, and the objectives left out with the reason.

    ``names`` ``["all"]`` takes every objective that the support of the family's model for these
    rows allows.
    """
    if not {"objective", "n_chains"} <= family.settings.keys():
        allowed = "be a family of energy models, which have a choice of objectives"
        raise invalid(
            "compare", "--model", allowed, repr(family.name), "`partita models` lists them."
        )
    for name in names:
        check_choice("compare", "--objectives", name, ("all", *OBJECTIVES))
    encoding = Encoding.fit(rows, family.encoding_kind(rows, settings))
    start = {**settings, "objective": "pcd"}
    model, _ = family.build(encoding.rows(rows), start, generator=torch.Generator().manual_seed(0))
    left_out, chosen = {}, list(dict.fromkeys(names))
    if "all" in names:
        against = {name: reason_left_out(name, model) for name in OBJECTIVES}
        left_out = {name: reason for name, reason in against.items() if reason is not None}
        chosen = [name for name in OBJECTIVES if name not in left_out]
    return [Candidate(name, family, {**settings, "objective": name}) for name in chosen], left_out


def reason_left_out(name: str, model: Model) -> str | None:
    """Why an objective has no place in a comparison of all of them on this model; None if it has
    one.
    """
    reason = capability.reason_against(NAMED[name].part, model)
    bits = capability.smallest_bits(model)
    # more states are summed where `exact` is named
    if reason is None and name == "exact" and AUTO_EXACT_BITS < bits < float("inf"):
        return f"2^{bits:g} states are many to sum at every step; ask for it by name"
    return reason


def _odd_ones(rows: Rows) -> str:
    """The columns that are not of the sort that most columns of a mixed table are."""
    assert rows.schema is not None
    kinds = [column.kind for column in rows.schema.used]
    usual = max(dict.fromkeys(kinds), key=kinds.count)
    others = (
        f"{column.name!r} ({column.kind})" for column in rows.schema.used if column.kind != usual
    )
    return f"{listed(others, 3)} beside {usual} ones"
