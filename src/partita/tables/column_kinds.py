r"""Columns of different kinds side by side: what each holds, in one word, the support of them all,
and which of them a family takes.

A law is ``"real"``, ``"binary"``, ``"count"``, or the number K of states of a category, which are 0
to K - 1.

.. math:: X = X_1 \times \dots \times X_D, \qquad X_i \in \{\mathbb{R},\, \{0, 1\},\,
          \mathbb{N}_0,\, \{0, \dots, K_i - 1\}\}
          (theory/mixed_tables.md, eq. 45.1)

Letters: D columns, K states.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Annotated, TypeAlias

from partita.core.checks import check_count
from partita.core.support import Binary, Categorical, Count, Product, Real, Support
from partita.errors import Argument, InputError, Words, invalid, one_line
from partita.tables.arrays import text_in
from partita.tables.schema import Schema, listed

Law = str | int

MIXED = "mixture, vae or autoregressive"
TAKEN = {  # the kinds of column that an encoding of one kind can hold
    **dict.fromkeys(("real", "scaled", "raw"), ("real",)),
    **dict.fromkeys(("binary", "signs", "median", "median-signs"), ("binary",)),
    "count": ("binary", "count"),
    "category": ("binary", "count", "category"),
}
NAMED: dict[str, Callable[[int], Support]] = {"real": Real, "binary": Binary, "count": Count}


def check_laws(owner: str, parameter: str, laws: Iterable[Law]) -> tuple[Law, ...]:
    """The laws of at least one column, each a known word or a number of states.

    >>> check_laws("Mixture", "laws", ["real", 3])
    ('real', 3)
    """
    if isinstance(laws, str) or not isinstance(laws, Iterable) or getattr(laws, "ndim", 1) == 0:
        allowed = "say what each column holds, such as ('real', 3)"
        raise invalid(owner, parameter, allowed, one_line(laws))
    laws = tuple(laws)
    check_count(owner, "the number of columns", len(laws))
    for law in laws:
        states = isinstance(law, int) and not isinstance(law, bool) and law >= 1
        if law not in NAMED and not states:
            allowed = f"be one of {', '.join(map(repr, NAMED))} or a number of states"
            raise invalid(owner, "a column", allowed, repr(law))
    return laws


Laws: TypeAlias = Annotated[Sequence[Law], check_laws]  # of all columns of a table


def support_of(laws: Sequence[Law]) -> Product:
    """The support of columns with these laws.

    >>> support_of(("real", "real", 3))
    Product(parts=(Real(D=2), Categorical(D=1, K=3)))
    """
    return Product(tuple(support_of_one(law, len(list(run))) for law, run in groupby(laws)))


def support_of_one(law: Law, width: int) -> Support:
    """The support of columns that all have one law."""
    return Categorical(width, law) if isinstance(law, int) else NAMED[law](width)


def places(laws: Sequence[Law]) -> dict[Law, list[int]]:
    """Where the columns of each law are.

    >>> places(("real", 3, "real"))
    {'real': [0, 2], 3: [1]}
    """
    found: dict[Law, list[int]] = {}
    for place, law in enumerate(laws):
        found.setdefault(law, []).append(place)
    return found


def kinds_in_words(laws: Sequence[Law]) -> str:
    """How many columns there are of each kind.

    >>> kinds_in_words(("real", 3, "real", 5, "count"))
    '2 real, 1 count, 2 categorical'
    """
    counts = {name: sum(law == name for law in laws) for name in NAMED}
    counts["categorical"] = sum(isinstance(law, int) for law in laws)
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def refusal(schema: Schema | None, encoding: str, family: str) -> InputError | None:
    """The error for columns of a table that a family cannot take by its encoding; None where it
    takes all.

    Columns of numbers that are all of one kind, where none is overridden, are left to the
    encoding's own check.
    """
    if schema is None or encoding not in TAKEN or not (schema.by_column or schema.labels):
        return None
    taken = TAKEN[encoding]
    others = [column for column in schema.used if column.kind not in taken]
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
