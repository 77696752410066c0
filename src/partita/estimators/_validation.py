"""What scikit-learn checks of the input, in partita's own errors, which are ValueErrors and
TypeErrors as well.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, validate_data
from torch import Tensor

from partita.errors import InputError, PartitaError, WrongType, invalid
from partita.tables.arrays import Frame

# with which scikit-learn's advice begins, about classifiers that do
MISSING = "does not accept missing values"
REMEDY = " Impute them first, or use MixtureDensity or PPCADensity, which take them."
WORDS = "could not convert string to float"  # with which NumPy refuses a column of words
MIXED = (
    ". Encode words as numbers, or use MixtureDensity(component='mixed'), which takes columns of "
    "words in a frame."
)


@contextmanager
def by_scikit_learn(owner: str) -> Iterator[None]:
    """Inside it, what scikit-learn, NumPy or a frame says against a value becomes an error of
    partita's.
    """
    try:
        yield
    except PartitaError:
        raise
    except TypeError as error:
        raise WrongType(f"{owner}: {error}") from error
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise InputError(f"{owner}: {_in_one_line(error, owner)}") from error


def _in_one_line(error: Exception, owner: str) -> str:
    """The message, with partita's advice on missing values in place of another."""
    text, advice, _ = " ".join(str(error).split()).partition(f" {owner} {MISSING}")
    return text + REMEDY if advice else text + MIXED if text.startswith(WORDS) else text


def check_plain(estimator: BaseEstimator) -> None:
    """Refuse an array where a parameter is one number or word: compared with one, it has many
    truths.
    """
    defaults = inspect.signature(type(estimator)).parameters
    for name, value in estimator.get_params(deep=False).items():
        if (
            isinstance(value, np.ndarray | Tensor)
            and value.ndim
            and (defaults[name].default is not None or name == "optimizer")
        ):
            raise invalid(
                type(estimator).__name__,
                name,
                "be a number, a word or a tuple",
                f"an array of shape {tuple(value.shape)}",
            )


def check_held(owner: str, X: object) -> None:
    """Refuse a frame that is still to be computed."""
    if hasattr(X, "collect") and not hasattr(X, "to_numpy"):
        raise invalid(
            owner, "X", "be a table in memory", type(X).__name__, "Call its collect() first."
        )


def check_no_dates(owner: str, X: object) -> None:
    """Refuse dates and times, which NumPy would take for nanoseconds, or whatever their unit is,
    since 1970.
    """
    types = {"": getattr(X, "dtype", None)}
    if isinstance(X, Frame):
        names = (f" in column {name!r}" for name in X.columns)
        types = dict(zip(names, X.dtypes, strict=True))
    for where, kind in types.items():
        if getattr(kind, "kind", "") in ("M", "m") or getattr(kind, "is_temporal", bool)():
            remedy = "Turn them into numbers, such as days since a day."
            raise invalid(owner, "X", "hold numbers", f"dates or times{where}", remedy)


def values_of(x: Any) -> Any:
    """Of a tensor its values alone, without gradients; all else as it is."""
    return x.detach().cpu() if isinstance(x, Tensor) else x


def checked(estimator: BaseEstimator, X: Any, *y: Any, **how: Any) -> Any:
    """Rows, and targets where they are given, as scikit-learn's ``validate_data`` reads and checks
    them; of tensors their values alone.
    """
    check_plain(estimator)
    check_held(type(estimator).__name__, X)
    check_no_dates(type(estimator).__name__, X)
    with by_scikit_learn(type(estimator).__name__):
        return validate_data(estimator, values_of(X), *map(values_of, y), **how)


def checked_sample_weight(
    estimator: BaseEstimator, sample_weight: object, X: np.ndarray
) -> np.ndarray:
    """One weight of at least 0 for each row, of which some are above."""
    with by_scikit_learn(type(estimator).__name__):
        weight = values_of(sample_weight)
        return _check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)
