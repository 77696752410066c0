r"""Columns of different sorts side by side: what each holds, in one word, and the support of them
all.

A law is ``"real"``, ``"binary"``, ``"count"``, or the number K of states of a category, which are 0
to K - 1.

.. math:: X = X_1 \times \dots \times X_D, \qquad X_i \in \{\mathbb{R},\, \{0, 1\},\,
          \mathbb{N}_0,\, \{0, \dots, K_i - 1\}\}
          (theory/mixed_tables.md, eq. 45.1)

Letters: D columns, K states.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from partita.core.checks import check_count
from partita.core.support import Binary, Categorical, Count, Product, Real, Support
from partita.errors import invalid

Law = str | int

NAMED: dict[str, type[Support]] = {"real": Real, "binary": Binary, "count": Count}


def check_laws(owner: str, laws: Iterable[Law]) -> tuple[Law, ...]:
    """The laws of at least one column, each a known word or a number of states.

    >>> check_laws("Mixture", ["real", 3])
    ('real', 3)
    """
    if isinstance(laws, str) or not isinstance(laws, Iterable) or getattr(laws, "ndim", 1) == 0:
        raise invalid(
            owner,
            "laws",
            "say what each column holds, such as ('real', 3)",
            " ".join(repr(laws).split()),
        )
    laws = tuple(laws)
    check_count(owner, "the number of columns", len(laws))
    for law in laws:
        if law not in NAMED and (
            isinstance(law, (str, bool)) or not isinstance(law, int) or law < 1
        ):
            raise invalid(
                owner,
                "a column",
                f"be one of {', '.join(map(repr, NAMED))} or a number of states",
                repr(law),
            )
    return laws


def support_of(laws: Sequence[Law]) -> Product:
    """The support of columns with these laws.

    >>> support_of(("real", "real", 3))
    Product(parts=(Real(D=2), Categorical(D=1, K=3)))
    """
    return Product(tuple(one_law(law, len(list(run))) for law, run in groupby(laws)))


def one_law(law: Law, width: int) -> Support:
    """The support of ``width`` columns of one law."""
    return Categorical(width, law) if isinstance(law, int) else NAMED[law](width)  # type: ignore[call-arg]


def places(laws: Sequence[Law]) -> dict[Law, list[int]]:
    """Where the columns of each law are.

    >>> places(("real", 3, "real"))
    {'real': [0, 2], 3: [1]}
    """
    found: dict[Law, list[int]] = {}
    for place, law in enumerate(laws):
        found.setdefault(law, []).append(place)
    return found


def in_words(laws: Sequence[Law]) -> str:
    """How many columns there are of each sort.

    >>> in_words(("real", 3, "real", 5, "count"))
    '2 real, 1 count, 2 categorical'
    """
    counts = {name: sum(law == name for law in laws) for name in NAMED}
    counts["categorical"] = sum(isinstance(law, int) for law in laws)
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)
