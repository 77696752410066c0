r"""No learner is better than another on what it has not seen, when every target is as likely as
every other.

.. math:: \sum_f E_{\mathrm{off}}(a \mid f, D) = \sum_f \sum_{x \notin D} P(x)\, [\,h_{a, f|_D}(x)
          \ne f(x)\,]
          = 2^{n-1} \sum_{x \notin D} P(x) \quad\text{for every learner } a
          (theory/optimization.md, eq. 50.20)

Everything is enumerated and counted in whole numbers: all targets on a finite domain, all labelings
of the training points, all mistakes. With a prior that prefers some targets the sums differ, and so
do learners. Wolpert (1996), The lack of a priori distinctions between learning algorithms.

Letters: n points of the domain, f target, D training points, h hypothesis, P mass of a point, a
learner, q prior over targets.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import Protocol, Self, TypeAlias, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from partita.core.arguments import check_count
from partita.errors import invalid

MOST_POINTS = 16  # 2^16 targets
MOST_TRAINING = 12  # 2^12 labelings, and as many fits of every learner
MOST_MASS = 2**30
OWNER = "no_free_lunch"


@runtime_checkable
class Classifier(Protocol):
    """A classifier of scikit-learn."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self: ...
    def predict(self, X: np.ndarray) -> ArrayLike: ...


# a function maps (X_train, y_train, X_off) to labels of X_off
Learner: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], ArrayLike] | Classifier


@dataclass(frozen=True)
class Lunch:
    """Every mistake of every learner on every target.

    Arguments:
        domain: The points, (n, d).
        train: Which of them are training points D.
        mass: P of every point, whole numbers (n,).
        targets: Every f, (2^n, n), zeros and ones.
        mistakes: By learner, the mass of the points outside D that it gets wrong, for every target
            (2^n,).
    """

    domain: np.ndarray
    train: np.ndarray
    mass: np.ndarray
    targets: np.ndarray
    mistakes: dict[str, np.ndarray]

    @property
    def off(self) -> np.ndarray:
        """The points outside D."""
        return np.setdiff1d(np.arange(len(self.domain)), self.train)

    @property
    def forecast(self) -> int:
        """The right-hand side of eq. 50.20, a formula."""
        return 2 ** (len(self.domain) - 1) * int(self.mass[self.off].sum())

    def totals(self, prior: np.ndarray | None = None) -> dict[str, int]:
        """The left-hand side, counted: mistakes summed over all targets, each weighed by ``prior``
        (whole numbers, (2^n,)).
        """
        n = len(self.targets)
        q = np.ones(n, dtype=np.int64) if prior is None else _whole(prior, n, "prior")
        return {
            name: sum(int(a) * int(b) for a, b in zip(q, found, strict=True) if a and b)
            for name, found in self.mistakes.items()
        }

    def errors(self, prior: np.ndarray | None = None) -> dict[str, Fraction]:
        """The expected share of mistakes outside D, as exact fractions."""
        q = len(self.targets) if prior is None else sum(map(int, prior))
        return {
            name: Fraction(total, q * int(self.mass[self.off].sum()))
            for name, total in self.totals(prior).items()
        }


def no_free_lunch(
    learners: Mapping[str, Learner],
    domain: ArrayLike,
    train: Sequence[int],
    *,
    mass: ArrayLike | None = None,
) -> Lunch:
    """Count the mistakes of ``learners`` outside the training points, on all 2^n targets.

    Arguments:
        learners: Classifiers of scikit-learn, or functions ``(X_train, y_train, X_off) -> labels``.
            Where all training labels are equal a classifier may refuse to learn; it then predicts
            that label.
        domain: n points, (n, d), at most 16.
        train: Numbers of the training points D, at most 12, not all of them.
        mass: P of every point in whole numbers, so that nothing is rounded; all equal if not given.

    >>> always = {
    ...     "one": lambda X, y, new: np.ones(len(new)),
    ...     "most": lambda X, y, new: np.full(len(new), y.mean() > 0.5),
    ... }
    >>> no_free_lunch(always, [[0], [1], [2], [3]], train=[0, 3]).totals()
    {'one': 16, 'most': 16}
    """
    X = _checked_domain(domain)
    D = _checked_training(train, len(X))
    P = np.ones(len(X), dtype=np.int64) if mass is None else _whole(mass, len(X), "mass")
    if not learners:
        raise invalid(OWNER, "learners", "hold at least one learner", "none")
    off = np.setdiff1d(np.arange(len(X)), D)
    labels, rest = all_labelings(len(D)), all_labelings(len(off))
    targets = np.zeros((len(labels), len(rest), len(X)), dtype=np.int8)
    targets[:, :, D] = labels[:, None]
    targets[:, :, off] = rest[None]
    mistakes = {}
    for name, learner in learners.items():
        # one fit for every labeling of D, compared with every completion of it
        fits = [_hypothesis(name, learner, X[D], y.astype(np.int64), X[off]) for y in labels]
        mistakes[name] = np.concatenate([(rest != h[None]) @ P[off] for h in fits])
    return Lunch(X, D, P, targets.reshape(-1, len(X)), mistakes)


def all_labelings(n: int) -> np.ndarray:
    """Every row of n zeros and ones, (2^n, n)."""
    return ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(np.int8)


def smooth_prior(lunch: Lunch, base: int = 4) -> np.ndarray:
    """q proportional to base^(pairs of nearest neighbors with the same label): targets that change
    seldom.
    """
    return _powers(base, _agreements(lunch))


def rough_prior(lunch: Lunch, base: int = 4) -> np.ndarray:
    """q proportional to base^(pairs of nearest neighbors with different labels): targets that
    change often.
    """
    agreements = _agreements(lunch)
    return _powers(base, agreements.max() - agreements)


def _powers(base: int, exponents: np.ndarray) -> np.ndarray:
    """Python's whole numbers, which have no largest: already 4^32, of the sixteen corners of a cube
    in four dimensions, is no int64.
    """
    check_count(OWNER, "base", base)
    table = np.empty(int(exponents.max()) + 1, dtype=object)
    table[:] = [int(base) ** i for i in range(len(table))]
    return table[exponents]


def _agreements(lunch: Lunch) -> np.ndarray:
    distance = np.linalg.norm(lunch.domain[:, None] - lunch.domain[None], axis=-1)
    i, j = np.nonzero(np.triu(distance <= 1.001 * distance[distance > 0].min(), 1))
    return (lunch.targets[:, i] == lunch.targets[:, j]).sum(1).astype(np.int64)


def _hypothesis(
    name: str, learner: Learner, X: np.ndarray, y: np.ndarray, X_off: np.ndarray
) -> np.ndarray:
    if not isinstance(learner, Classifier):
        h = np.asarray(learner(X, y, X_off))
    elif (y == y[0]).all():
        h = np.full(len(X_off), y[0])
    else:
        from sklearn.base import clone

        fresh = cast(Classifier, clone(learner))
        h = np.asarray(fresh.fit(X, y).predict(X_off))
    if h.shape != (len(X_off),) or not np.isin(h, (0, 1)).all():
        allowed = f"return {len(X_off)} labels, each 0 or 1"
        got = f"shape {h.shape}, {h.ravel()[:3].tolist()}"
        raise invalid(OWNER, f"learner {name!r}", allowed, got)
    return h.astype(np.int8)


def _checked_domain(domain: ArrayLike) -> np.ndarray:
    X = np.asarray(domain, dtype=np.float64)
    X = X[:, None] if X.ndim == 1 else X
    if X.ndim != 2 or not 2 <= len(X) <= MOST_POINTS:
        allowed = f"hold 2 to {MOST_POINTS} points (n, d)"
        remedy = "All 2^n targets are enumerated; take fewer points."
        raise invalid(OWNER, "domain", allowed, f"shape {X.shape}", remedy)
    if not np.isfinite(X).all() or len(np.unique(X, axis=0)) < len(X):
        got = "a repeated or infinite one"
        raise invalid(OWNER, "domain", "hold finite points, each once", got)
    return X


def _checked_training(train: Sequence[int], n: int) -> np.ndarray:
    D = np.asarray(train)
    whole = D.ndim == 1 and np.issubdtype(D.dtype, np.integer)
    if not whole or not 0 < len(D) < n or len(np.unique(D)) < len(D) or D.min() < 0 or D.max() >= n:
        allowed = f"hold different numbers from 0 to {n - 1}, at least one and not all"
        raise invalid(OWNER, "train", allowed, list(train))
    if len(D) > MOST_TRAINING:
        why = "for each learner is fitted to all their labelings"
        raise invalid(OWNER, "train", f"hold at most {MOST_TRAINING} points, {why}", len(D))
    return np.sort(D)


def _whole(values: ArrayLike, n: int, name: str) -> np.ndarray:
    numbers = np.asarray(values)
    whole = np.issubdtype(numbers.dtype, np.integer) or all(
        isinstance(value, Integral) for value in numbers.ravel()
    )
    if numbers.shape != (n,) or not whole or numbers.min() < 0 or not numbers.any():
        allowed = f"be {n} whole numbers of at least 0, not all 0"
        got = f"{numbers.dtype} of shape {numbers.shape}"
        remedy = "Multiply shares by their common denominator."
        raise invalid(OWNER, name, allowed, got, remedy)
    if name == "mass" and sum(map(int, numbers)) > MOST_MASS:
        raise invalid(OWNER, name, f"add up to at most {MOST_MASS}", sum(map(int, numbers)))
    return numbers.astype(np.int64) if name == "mass" else numbers
