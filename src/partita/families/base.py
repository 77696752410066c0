"""What a family of models is: a name, its settings, how a table is encoded for it, and how a model
and its objective are built from them.

Letters: N rows, D columns.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from partita.core.arguments import check_choice
from partita.core.protocols import Model, Objective, Settings, Update
from partita.core.registry import Registry
from partita.datasets import Dataset, Sequences
from partita.errors import Argument, InputError, Words, did_you_mean, invalid
from partita.tables import Rows, Schema
from partita.tables.arrays import text_in
from partita.tables.categories import categories_of, looks_categorical, to_codes
from partita.tables.encoding import Encoding, Kind, infer_kind
from partita.tables.schema import listed

Made: TypeAlias = tuple[Model, Objective | Update]
MIXED = "mixture, vae or autoregressive"
TAKEN = {  # the kinds of column that an encoding of one kind can hold
    **dict.fromkeys(("real", "scaled", "raw"), ("real",)),
    **dict.fromkeys(("binary", "signs", "median", "median-signs"), ("binary",)),
    "count": ("binary", "count", "overdispersed"),
    "category": ("binary", "count", "overdispersed", "category"),
}
MOST_CORRELATED = 4096  # real columns: two matrices of more would not fit a gigabyte

ALONE: dict[str, Kind] = {"binary": "binary", "category": "category", "real": "real"}
# encodings that cannot take every number
NARROW = ("binary", "spin", "signs", "spins", "count", "category", "mixed")


@dataclass(frozen=True)
class Setting:
    """The default of a setting, what it means, and the words it may be, if it is one of a few."""

    default: Any
    meaning: str
    choices: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class Family:
    """A name, what it is for, the settings it takes, and how it is built.

    Arguments:
        name: As in ``partita fit NAME DATA``.
        summary: What it is, in a line.
        settings: By name, with their defaults.
        make: From encoded rows, all settings and a generator to a model and its objective.
        kind: How rows are encoded: always alike, or by what they hold and the settings.
        words: Whether columns of a file may hold words.
        missing: Whether values may be missing; ``"mixed"`` only where each column has its own law.
        mixed: Whether columns may be of different kinds.
        reads: For models of sequences: how its settings say that streams are read.
        by_kind: Settings that make it take a table of a kind as what it holds.
        names: Settings by what constructors call them, where the last word of the setting differs.

    >>> from partita.families import FAMILIES
    >>> g = torch.Generator().manual_seed(0)
    >>> model, objective = FAMILIES["rbm"].build(Rows(torch.eye(4)), {"n_hidden": 3}, generator=g)
    >>> model.title(), type(objective).__name__
    ('RBM(4, 3)', 'PCD')
    """

    name: str
    summary: str
    settings: dict[str, Setting]
    make: Callable[[Rows, Settings, torch.Generator], Made]
    kind: Kind | Callable[[Rows, Settings], Kind]
    words: bool = False
    missing: bool | Literal["mixed"] = False
    mixed: bool = False
    reads: Callable[[Settings], Settings] | None = None
    by_kind: Mapping[Kind, Settings] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def resolve(self, settings: Settings, owner: str | None = None) -> Settings:
        """Settings over the defaults; an unknown name is refused with the closest known one, and
        so is a word that is none of a setting's choices.
        """
        for name, value in settings.items():
            if name not in self.settings:
                raise unknown_setting(f"family {self.name}", name, self.settings)
            if choices := self.settings[name].choices:
                check_choice(owner or self.name, name, value, choices)
        return {**{name: setting.default for name, setting in self.settings.items()}, **settings}

    def build(
        self,
        rows: Rows,
        settings: Settings,
        *,
        owner: str | None = None,
        generator: torch.Generator,
    ) -> Made:
        """A model for encoded rows, with fresh parameters, and the objective to fit it by; what a
        constructor refuses is said of the setting that it came from.
        """
        try:
            return self.make(rows, self.resolve(settings, owner), generator)
        except InputError as error:
            facts = error.facts
            name = None if facts is None else self._setting_behind(facts.parameter)
            if facts is None or name is None:
                raise
            meant = replace(facts, owner=owner or self.name, parameter=name)
            raise type(error)(meant) from error

    def _setting_behind(self, parameter: Words) -> str | None:
        """The setting that a constructor knows as a parameter: by the same name, by its last word,
        or by the family's own list.
        """
        known = [
            name
            for name in self.settings
            if name == self.names.get(str(parameter), parameter) or name.endswith(f"_{parameter}")
        ]
        return known[0] if len(known) == 1 else None

    def takes_words(self, settings: Settings) -> bool:
        """Whether columns of a file may hold words: where columns may be categories."""
        given = [settings.get(name) for name in ("visible_units", "component", "likelihood")]
        return self.words or self.mixed or "categorical" in given

    def reading(self, settings: Settings) -> Settings | None:
        """How streams are read for a model of sequences; None for models of tables."""
        return None if self.reads is None else self.reads(self.resolve(settings))

    def encoding_kind(self, rows: Rows, settings: Settings, owner: str | None = None) -> Kind:
        """How rows are to be encoded for this family: by what they hold, or as the settings say;
        columns it cannot take are named.
        """
        settings = self.resolve(settings, owner)
        if rows.labels and not self.takes_words(settings):
            raise no_words(rows.schema, self.name)
        kind: Kind = self.kind(rows, settings) if callable(self.kind) else self.kind
        error = refusal(rows.schema, kind, self.name)
        if error is not None:
            raise error
        incomplete = isinstance(rows, Rows) and not rows.complete()
        if self.missing == "mixed" and kind != "mixed" and incomplete:
            allowed = f"be complete where all columns are {kind}"
            remedy = (
                "Give a .csv or .parquet file, each of whose columns then has a law of its own, "
                "or impute first."
            )
            raise invalid(f"family {self.name}", "X", allowed, "missing values", remedy)
        return kind


FAMILIES: Registry[Family] = Registry(
    "partita.families", attrgetter("name"), attrgetter("make.__module__")
)


def unknown_setting(owner: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a setting that does not exist.

    >>> print(unknown_setting("family rbm", "n_hiden", ["n_hidden", "n_chains"]))
    family rbm: a setting must be one of n_hidden, n_chains; got 'n_hiden'. Did you mean
    'n_hidden'?
    """
    known = list(known)
    allowed = f"be one of {', '.join(known)}"
    return invalid(owner, "a setting", allowed, repr(name), did_you_mean(name, known))


def check_correlated(
    owner: str, setting: str, value: object, columns: int, instead: tuple[str, ...]
) -> None:
    """Refuse a setting that asks for a matrix of columns by columns where the table is too wide
    for it, before one is made, and name those that do not.

    >>> check_correlated("flow", "mixing", "lu", 64, ("permutation",))
    >>> check_correlated("flow", "mixing", "lu", 5000, ("permutation",))
    Traceback (most recent call last):
    partita.errors.InputError: flow: mixing must be permutation for more than 4096 real
    columns; got 'lu' for 5000. As in mixing='permutation'.
    """
    if columns > MOST_CORRELATED:
        allowed = f"be {' or '.join(instead)} for more than {MOST_CORRELATED} real columns"
        remedy = ("As in ", Argument(setting, value=instead[0]), ".")
        raise invalid(owner, setting, allowed, f"{value!r} for {columns}", remedy)


# Columns of two values as zeros and ones, or as spins; others are cut at their medians, and a fit
# says so.
AS_BITS: dict[str, Kind] = {"binary": "binary", "spin": "spin", "real": "median"}

AS_SPINS: dict[str, Kind] = {"binary": "signs", "spin": "spins", "real": "median-signs"}

CUTS = {
    "median": "columns that are not binary are cut at their medians",
    "median-signs": "columns that are not binary are cut at their medians",
    "quantile": "columns that are not categories are cut at their quartiles",
}

TWO_VALUED = Setting(
    "auto",
    "binary or spin, which are strict, or auto: what columns hold; others are cut at their medians",
    ("auto", "binary", "spin"),
)


def support_kind(rows: Rows, settings: Settings) -> Kind:
    """What columns are taken as: the support that is given, by default what they hold."""
    return infer_kind(rows) if settings["support"] == "auto" else settings["support"]


def bits_kind(rows: Rows, settings: Settings) -> Kind:
    """How columns become zeros and ones."""
    return AS_BITS[support_kind(rows, settings)]


def cut_warnings(kind: Kind) -> list[str]:
    """What a fit says where values are cut."""
    remedy = "Cut them yourself to choose where, or fit an RBM, which takes real columns."
    return [f"{CUTS[kind]}. {remedy}"] if kind in CUTS else []


LIKELIHOOD_KINDS: dict[str, Kind] = {
    "bernoulli": "binary",
    "gaussian": "real",
    "categorical": "category",
    "mixed": "mixed",
}


def likelihood_kind(likelihood: str, rows: Rows) -> Kind:
    """How columns are encoded for a likelihood of theirs; for ``"auto"`` by what they hold."""
    if likelihood in LIKELIHOOD_KINDS:
        return LIKELIHOOD_KINDS[likelihood]
    return "category" if rows.labels else infer_kind(rows)


def likelihood_of(likelihood: str, rows: Rows) -> str:
    """The likelihood of encoded columns, as it is given; for ``"auto"`` by what they hold."""
    if likelihood != "auto":
        return likelihood
    if rows.laws or rows.states:
        return "mixed" if rows.laws else "categorical"
    return "gaussian" if infer_kind(rows) == "real" else "bernoulli"


def states_of(rows: Rows) -> int:
    """K of encoded rows: as their encoding says, else one more than the largest code."""
    return rows.states or max(2, *(int(part.max()) + 1 for part in rows.parts()))


def table_kind(dataset: Dataset) -> Kind:
    """What data hold: sequences; of tables columns of different sorts, zeros and ones, spins,
    categories (words, or whole numbers all of which were seen in training), else reals.

    >>> (
    ...     table_kind(Dataset("coins", Rows([[0, 1], [1, 1]]))),
    ...     table_kind(Dataset("stars", Rows([[1, 5], [3, 2]]))),
    ... )
    ('binary', 'category')
    """
    if isinstance(dataset.train, Sequences):
        return "steps"
    if dataset.train.schema is not None and dataset.train.schema.by_column:
        return _kind_by_column(dataset.train.schema)
    held = infer_kind(dataset.train)
    if held == "real" and (
        dataset.train.labels or (looks_categorical(dataset.train) and _all_seen(dataset))
    ):
        return "category"
    return held


def settings_by_table(name: str, kind: Kind, rows: Rows) -> Settings:
    """Settings that make a family take rows as what their table holds.

    >>> settings_by_table("mixture", "binary", Rows([[0, 1], [1, 1]]))
    {'component': 'bernoulli'}
    """
    family = FAMILIES[name]
    by_column = family.missing == "mixed" and rows.schema is not None and not rows.complete()
    return {} if by_column else dict(family.by_kind.get(kind, {}))


def check_held_out(dataset: Dataset, encoding: Encoding, owner: str) -> None:
    """Rows to validate and to test on hold what the encoding can take: found before a fit, not
    after it.
    """
    if encoding.kind not in NARROW or dataset.train.binarize is not None:
        return
    for part, rows in (("validation", dataset.valid), ("test", dataset.test)):
        first = 0
        for x in rows.parts() if rows is not None else ():
            encoding.check(x.astype(np.float64), f"{owner}: {part} rows", first)
            first += len(x)


def table_numbers(rows: Rows) -> np.ndarray:
    """All rows in float64; gray levels are made binary by draws of a fixed seed."""
    return rows.tensor(torch.Generator().manual_seed(0)).numpy().astype(np.float64)


def _kind_by_column(schema: Schema) -> Kind:
    """What a table holds whose columns are read by their kinds; one kind of all counts as such,
    for families that take that alone.
    """
    kinds = {column.law for column in schema.used}
    return ALONE.get(kinds.pop(), "mixed") if len(kinds) == 1 else "mixed"


def _all_seen(dataset: Dataset) -> bool:
    """Whether held-out rows have no value that training rows do not have in the same column."""
    lists = categories_of(dataset.train)
    others = [part for part in (dataset.valid, dataset.test) if part is not None]
    return all(
        (to_codes(x.astype(np.float64), lists) != -1).all() for part in others for x in part.parts()
    )


def refusal(schema: Schema | None, encoding: str, family: str) -> InputError | None:
    """The error for columns of a table that a family cannot take by its encoding; None where it
    takes all.

    Columns of numbers that are all of one kind, where none is overridden, are left to the
    encoding's own check.
    """
    if schema is None or encoding not in TAKEN or not (schema.by_column or schema.labels):
        return None
    taken = TAKEN[encoding]
    others = [column for column in schema.used if column.law not in taken]
    if not others:
        return None
    remedy: Words = (
        f"Use {MIXED}, which take mixed columns; or read them otherwise, as in ",
        Argument("columns", others[0].name, taken[0]),
        ".",
    )
    got = listed(f"{column.name!r} ({column.kind})" for column in others)
    return invalid(f"family {family}", "columns", f"all be {' or '.join(taken)}", got, remedy)


def no_words(schema: Schema | None, family: str) -> InputError:
    """The error for columns of words where a family takes numbers alone."""
    names = ["0"] if schema is None else [column.name for column in schema.used if column.labels]
    remedy: Words = (
        f"Use {MIXED}, which take words; encode such columns as numbers; or leave them out, as in ",
        Argument("columns", names[0], "ignore"),
        ".",
    )
    got = text_in(list(map(repr, names)))
    return invalid(f"family {family}", "columns", "be numeric", got, remedy)


def family_named(name: str, owner: str = "fit", parameter: str = "MODEL") -> Family:
    """The family of a name, or one sentence with the known and the closest."""
    if name not in FAMILIES:
        hint = did_you_mean(name.lower(), FAMILIES, "`partita models` lists them.")
        raise invalid(owner, parameter, f"be one of {', '.join(FAMILIES)}", repr(name), hint)
    return FAMILIES[name]
