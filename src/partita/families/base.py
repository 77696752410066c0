"""What a family of models is: a name, its settings, and how a model and its objective are built
from them.

Letters: N rows, D columns.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

import torch

from partita.core.protocols import Model, Objective, Update
from partita.errors import InputError, invalid
from partita.tables import Rows
from partita.tables.column_kinds import no_words, refusal
from partita.tables.encoding import Kind


@dataclass(frozen=True)
class Setting:
    """The default of a setting, and what it means."""

    default: Any
    meaning: str


@dataclass(frozen=True)
class Family:
    """A name, what it is for, the settings it takes, and how it is built.

    >>> from partita.families import FAMILIES
    >>> g = torch.Generator().manual_seed(0)
    >>> model, objective = FAMILIES["rbm"].build(Rows(torch.eye(4)), {"n_hidden": 3}, generator=g)
    >>> model.title(), type(objective).__name__
    ('RBM(4, 3)', 'PCD')
    """

    name: str
    summary: str
    settings: dict[str, Setting]
    make: Callable[[Rows, dict[str, Any], torch.Generator], tuple[Model, Objective | Update]]
    kind: Callable[[Rows, dict[str, Any]], Kind]
    # one model of each sort, for the capability grid
    examples: Callable[[torch.Generator], dict[str, Model]]
    words: bool = False  # whether columns of a file may hold words
    # whether values may be missing; "mixed" only where each column has its own law
    missing: bool | Literal["mixed"] = False
    mixed: bool = False  # whether columns may be of different sorts
    # for models of sequences: how its settings say that streams are read
    reads: Callable[[dict[str, Any]], dict[str, Any]] | None = None

    def resolve(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Settings over the defaults; an unknown name is refused with the closest known
        one.
        """
        for name in settings:
            if name not in self.settings:
                raise unknown_setting(f"family {self.name}", name, self.settings)
        return {**{name: setting.default for name, setting in self.settings.items()}, **settings}

    def build(
        self, rows: Rows, settings: dict[str, Any], *, generator: torch.Generator
    ) -> tuple[Model, Objective | Update]:
        """A model for encoded rows, with fresh parameters, and the objective to fit it by."""
        return self.make(rows, self.resolve(settings), generator)

    def takes_words(self, settings: dict[str, Any]) -> bool:
        """Whether columns of a file may hold words: where columns may be categories."""
        given = [settings.get(name) for name in ("visible_units", "component", "likelihood")]
        return self.words or self.mixed or "categorical" in given

    def reading(self, settings: dict[str, Any]) -> dict[str, Any] | None:
        """How streams are read for a model of sequences; None for models of tables."""
        return None if self.reads is None else self.reads(self.resolve(settings))

    def encoding_kind(self, rows: Rows, settings: dict[str, Any]) -> Kind:
        """How rows are to be encoded for this family: by what they hold, or as the settings say;
        columns it cannot take are named.
        """
        if rows.labels and not self.takes_words(settings):
            raise no_words(rows.schema, self.name)
        kind = self.kind(rows, self.resolve(settings))
        error = refusal(rows.schema, kind, self.name)
        if error is not None:
            raise error
        if (
            self.missing == "mixed"
            and kind != "mixed"
            and isinstance(rows, Rows)
            and not rows.complete()
        ):
            remedy = (
                "Give a .csv or .parquet file, each of whose columns then has a law of its own, "
                "or impute first."
            )
            raise invalid(
                f"family {self.name}",
                "X",
                f"be complete where all columns are {kind}",
                "missing values",
                remedy,
            )
        return kind


def unknown_setting(owner: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a setting that does not exist.

    >>> print(unknown_setting("family rbm", "n_hiden", ["n_hidden", "n_chains"]))
    family rbm: a setting must be one of n_hidden, n_chains; got 'n_hiden'. Did you mean
    'n_hidden'?
    """
    known = list(known)
    close = get_close_matches(name, known, 1, 0.5)
    return invalid(
        owner,
        "a setting",
        f"be one of {', '.join(known)}",
        repr(name),
        f"Did you mean {close[0]!r}?" if close else "",
    )
