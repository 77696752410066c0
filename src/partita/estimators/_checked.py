"""What scikit-learn checks of the input, said by partita's own errors, which are ValueErrors and TypeErrors as well."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight, validate_data

from partita.core.errors import InputError, PartitaError, WrongType


@contextmanager
def by_scikit_learn(owner: str) -> Iterator[None]:
    """Inside it, what scikit-learn, NumPy or a frame says against a value becomes an error of partita's."""
    try:
        yield
    except PartitaError:
        raise
    except TypeError as error:
        raise WrongType(f"{owner}: {error}") from error
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise InputError(f"{owner}: {error}") from error


def checked(estimator: Any, X: Any, *y: Any, **how: Any) -> Any:
    """Rows, and targets where they are given, as scikit-learn's ``validate_data`` reads and checks them."""
    with by_scikit_learn(type(estimator).__name__):
        return validate_data(estimator, X, *y, **how)


def checked_weight(estimator: Any, sample_weight: Any, X: np.ndarray) -> np.ndarray:
    """One weight of at least 0 for each row, of which some are above."""
    with by_scikit_learn(type(estimator).__name__):
        return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
