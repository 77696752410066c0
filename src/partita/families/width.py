"""Matrices of columns by columns are refused for tables that are too wide for them, before they are
made.
"""

from collections.abc import Sequence

from partita.errors import invalid

# real columns: two matrices of more would not fit a gigabyte, and a factor of one takes seconds
MOST_CORRELATED = 4096


def check_correlated(
    owner: str, setting: str, value: object, columns: int, instead: Sequence[str]
) -> None:
    """Refuse a setting that asks for such a matrix, and name those that do not.

    >>> check_correlated("flow", "mixing", "lu", 64, ["permutation"])
    >>> check_correlated("flow", "mixing", "lu", 5000, ["permutation"])
    Traceback (most recent call last):
    partita.errors.InputError: flow: mixing must be permutation for more than 4096 real
    columns; got 'lu' for 5000. As in ...
    """
    if columns > MOST_CORRELATED:
        allowed = f"be {' or '.join(instead)} for more than {MOST_CORRELATED} real columns"
        raise invalid(
            owner,
            setting,
            allowed,
            f"{value!r} for {columns}",
            f"As in --set {setting}={instead[0]}.",
        )
