"""What all density estimators share: fit, score, sample, save."""

import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from partita.core import rng
from partita.core.checks import check_choice, check_count, check_flag, check_path, check_real
from partita.core.quantity import Quantity
from partita.datasets import Dataset
from partita.errors import PartitaWarning
from partita.estimators._saved import save
from partita.estimators._validation import by_scikit_learn, check_plain, checked
from partita.experiment.encoded import evaluate_encoded
from partita.experiment.experiment import Experiment
from partita.families import FAMILIES
from partita.runtime import memory_limit
from partita.tables import Rows
from partita.tables.encoding import Encoding, Kind, infer_kind
from partita.training import Run

# rows that whole-number weights may add up to and still be repeated one by one
MOST_COUNTED = 1_000_000


class Density(DensityMixin, BaseEstimator):
    """A density estimator around a model; subclasses name their family and translate their
    parameters.
    """

    family: ClassVar[str]
    supports: ClassVar[tuple[str, ...]]
    finite: ClassVar[Any] = True  # "allow-nan" where missing values may be
    least_features: ClassVar[int] = 1
    model_: Any
    run_: Run
    encoding_: Encoding
    n_features_in_: int
    support: Any
    random_state: Any
    max_minutes: float | None
    validation_fraction: float
    verbose: bool

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit the model to the rows of X; ``sample_weight`` weighs them."""
        check_plain(self)
        generator = as_generator(self.random_state)
        X = self._table(X, least=2)
        rows = self._rows(X, sample_weight)
        self.encoding_ = Encoding.fit(rows, self._kind(rows), type(self).__name__)
        # in the caller's order, which messages name
        self.encoding_.check(np.asarray(X, dtype=np.float64), f"{type(self).__name__}.fit")
        owner = type(self).__name__
        experiment = Experiment(
            Dataset("X", rows),
            FAMILIES[self.family],
            self._settings(),
            self._options(),
            generator,
            fitted_encoding=self.encoding_,
            validation_fraction=check_real(
                owner, "validation_fraction", self.validation_fraction, 0.0, 0.9
            ),
            owner=owner,
        )
        progress = check_flag("fit", "verbose", self.verbose)
        self.run_ = experiment.run(experiment.plan(), progress=progress)
        for text in self.run_.warnings:
            warnings.warn(f"fit: {text}", PartitaWarning, stacklevel=2)
        self.model_, self._key = self.run_.model, rng.seed(generator)
        self._forget()
        self._remember(experiment.train)
        return self

    @property
    def score_kind_(self) -> str:
        """What ``score`` returns: ``exact``, ``estimate``, ``lower`` or ``upper``."""
        check_is_fitted(self, "model_")
        return "exact"

    def evaluate(self, X: Any, y: Any = None) -> Quantity:
        """Mean log-likelihood per row with its kind, interval and verdict; rows in
        ``details["rows"]``.
        """
        check_is_fitted(self, "model_")
        X, owner = self._seen(X), f"{type(self).__name__}.evaluate"
        return evaluate_encoded(
            self.model_,
            self.encoding_,
            X,
            evaluator=self._evaluator(),
            owner=owner,
            generator=torch.Generator(),
        )

    def score_samples(self, X: Any) -> np.ndarray:
        """Log-likelihood of each row: a mass for binary columns, a density in the units of X for
        real ones.
        """
        return self.evaluate(X).details["rows"].cpu().numpy()

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood per row; ``score_kind_`` says what it is."""
        return self.evaluate(X).value

    def anomaly_score(self, X: Any) -> np.ndarray:
        """Minus the log-likelihood of each row: the larger, the stranger."""
        return -self.score_samples(X)

    @memory_limit.named("sample")
    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Independent exact draws from the model.

        ``random_state`` None takes the estimator's own, so that repeated calls give the same draws
        where that is a number.
        """
        check_is_fitted(self, "model_")
        check_count(f"{type(self).__name__}.sample", "n_samples", n_samples)
        generator = as_generator(self.random_state if random_state is None else random_state)
        return self.encoding_.decode(
            self.model_.draw(n_samples, generator=generator).double().numpy()
        )

    def save(self, path: str | Path) -> Path:
        """Write a run's folder that ``partita.load`` and ``partita.estimators.load`` read; nothing
        in it is code.
        """
        check_is_fitted(self, "model_")
        return save(self, check_path("save", "path", path))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _forget(self) -> None:
        """Drop what was computed from an earlier fit."""

    def _kept(self) -> dict[str, Any]:
        """What is saved beside the model: tensors, numbers, words and their lists and dicts."""
        return {}

    def _restore(self, kept: dict[str, Any]) -> None:
        """Take back what was saved."""

    def _remember(self, train: Rows) -> None:
        """Keep what later calls need of the encoded rows that were fitted; nothing by default."""

    def _table(self, X: Any, least: int = 1, reset: bool = True) -> np.ndarray:
        """X as rows to learn from, checked."""
        features = self.least_features if reset else 1
        more = {
            "ensure_min_samples": least,
            "ensure_min_features": features,
            "ensure_all_finite": self.finite,
        }
        return checked(self, X, dtype=[np.float64, np.float32], reset=reset, **more)

    def _evaluator(self) -> Any:
        """How rows are scored; None leaves the choice to the capability table."""
        return None

    def _kind(self, rows: Rows) -> Kind:
        """The encoding that the ``support`` parameter asks for, as its family does where that has
        such a setting; ``"auto"`` looks at the rows.
        """
        owner, family = type(self).__name__, FAMILIES[self.family]
        if "support" in family.settings:
            return family.encoding_kind(rows, self._settings(), owner)
        check_choice(owner, "support", self.support, self.supports)
        return infer_kind(rows) if self.support == "auto" else self.support

    def _settings(self) -> dict[str, Any]:
        """This estimator's parameters as settings of its family, which have the same names."""
        given = self.get_params(deep=False)
        return {name: given[name] for name in FAMILIES[self.family].settings if name in given}

    def _options(self) -> dict[str, Any]:
        """This estimator's parameters as options of the fit; None leaves the choice to the
        recipe.
        """
        names = ("optimizer", "learning_rate", "epochs", "batch_size", "l1", "l2")
        return {**{name: getattr(self, name) for name in names}, "minutes": self.max_minutes}

    def _rows(self, X: np.ndarray, sample_weight: Any) -> Rows:
        """Rows in an order of their own, so that a fit does not depend on theirs; whole-number
        weights repeat rows, others weigh them.
        """
        columns, order = getattr(self, "feature_names_in_", None), canonical_order(X)
        rows = Rows(
            X,
            sample_weight,
            columns=columns,
            missing=self._gaps(),
            owner=f"{type(self).__name__}.fit",
        )
        if rows.weight is None:
            return rows.take(order)
        weight = np.asarray(sample_weight, dtype=np.float64)
        if (weight == weight.round()).all() and weight.sum() <= MOST_COUNTED:
            return Rows(X, columns=columns, missing=self._gaps()).take(
                np.repeat(order, weight[order].astype(int))
            )
        return rows.take(order[weight[order] > 0])

    def _gaps(self) -> bool:
        """Whether values may be missing from the rows to learn from."""
        return self.finite is not True

    def _seen(self, X: Any, finite: Any = None) -> np.ndarray:
        """X with the columns of the fit, as numbers; NaN where ``finite``, by default the class's
        own, allows it.
        """
        allowed = self.finite if finite is None else finite
        return checked(self, X, dtype=np.float64, reset=False, ensure_all_finite=allowed)

    def _encoded(self, X: Any, method: str) -> Tensor:
        check_is_fitted(self, "model_")
        X = self._seen(X)
        return torch.from_numpy(
            self.encoding_.encode(self.encoding_.check(X, f"{type(self).__name__}.{method}"))
        )


def as_generator(random_state: Any) -> torch.Generator:
    """A torch generator from a number, None, a NumPy RandomState, or a torch generator itself."""
    if isinstance(random_state, torch.Generator):
        return random_state
    with by_scikit_learn("random_state"):
        return torch.Generator().manual_seed(
            int(check_random_state(random_state).randint(2**31 - 1))
        )


def canonical_order(X: np.ndarray) -> np.ndarray:
    """An order that depends on the rows alone: by the first column, then the second, and so on, in
    one sort of their bits.

    >>> canonical_order(np.array([[1.0, 0.0], [-1.0, 7.0], [-1.0, 5.0]])).tolist()
    [2, 1, 0]
    """
    # adding zero makes -0 and 0 one
    bits = (np.ascontiguousarray(X, dtype=np.float64) + 0.0).view(np.uint64)
    # whose bytes sort as the numbers do
    rising = np.where(bits >> 63, ~bits, bits | np.uint64(1 << 63)).astype(">u8")
    return np.argsort(rising.view(np.dtype((np.void, 8 * rising.shape[1]))).ravel(), kind="stable")
