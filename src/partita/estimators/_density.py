"""What all density estimators share: fit, score, sample, impute, save."""

import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    DensityMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from partita.core import rng
from partita.core.arguments import check_choice, check_count
from partita.core.protocols import LikelihoodEvaluator
from partita.core.quantity import Kind as ScoreKind
from partita.core.quantity import Quantity
from partita.datasets import Dataset
from partita.errors import PartitaWarning, invalid
from partita.estimators._parameters import RandomState, check_types
from partita.estimators._saved import SavedEstimator, start_over
from partita.estimators._validation import by_scikit_learn, check_plain, checked, values_of
from partita.experiment.experiment import Experiment
from partita.experiment.imputation import impute_encoded
from partita.experiment.saved import evaluate_encoded
from partita.families import FAMILIES
from partita.runtime import memory_limit
from partita.runtime.files import JsonObject
from partita.tables import Rows
from partita.tables.encoding import Encoding, Kind, infer_kind
from partita.tables.rows import Weight

# rows that whole-number weights may add up to and still be repeated one by one
MOST_COUNTED = 1_000_000
FIT_OPTIONS = ("optimizer", "learning_rate", "epochs", "batch_size", "l1", "l2")


class Density(SavedEstimator, DensityMixin, BaseEstimator):
    """A density estimator around a model; subclasses name their family and translate their
    parameters.
    """

    family: ClassVar[str]
    supports: ClassVar[tuple[str, ...]] = ()  # that the ``support`` parameter may name
    # a setting of the family that the encoding decides: its name, values by kind, and the other one
    by_encoding: ClassVar[tuple[str, dict[str, str], str] | None] = None
    allow_nan: ClassVar[bool] = False
    least_features: ClassVar[int] = 1
    encoding_: Encoding
    n_features_in_: int
    support: str = "auto"
    random_state: RandomState
    max_minutes: float | None
    validation_fraction: float = 0.0
    verbose: bool

    def fit(self, X: object, y: object = None, sample_weight: Weight | None = None) -> Self:
        """Fit the model to the rows of X; ``sample_weight`` weighs them.

        Ctrl-C and SIGTERM raise ``KeyboardInterrupt`` and leave the estimator without a fit.
        """
        start_over(self)
        self._check_parameters()
        generator, owner = as_generator(self.random_state), type(self).__name__
        table = self._table(X, least=2)
        rows = self._rows(table, sample_weight)
        self.encoding_ = Encoding.fit(rows, self._kind(rows), owner)
        # in the caller's order, which messages name
        self.encoding_.check(np.asarray(table, dtype=np.float64), f"{owner}.fit")
        experiment = Experiment(
            Dataset("X", rows),
            FAMILIES[self.family],
            self._settings(),
            self._options(),
            generator,
            fitted_encoding=self.encoding_,
            validation_fraction=self.validation_fraction,
            owner=owner,
        )
        self.run_ = experiment.run(experiment.plan(), progress=bool(self.verbose))
        for text in self.run_.warnings:
            warnings.warn(f"fit: {text}", PartitaWarning, stacklevel=2)
        self.model_, self._key = self.run_.model, rng.seed(generator)
        self._forget()
        self._remember(experiment.train)
        return self

    @property
    def score_kind_(self) -> ScoreKind:
        """What ``score`` returns: ``exact``, ``estimate``, ``lower`` or ``upper``."""
        check_is_fitted(self, "model_")
        return "exact"

    def evaluate(self, X: object, y: object = None) -> Quantity:
        """Mean log-likelihood per row with its kind, interval and verdict; rows in
        ``details["rows"]``.
        """
        check_is_fitted(self, "model_")
        return evaluate_encoded(
            self.model_,
            self.encoding_,
            self._seen(X),
            evaluator=self._evaluator(),
            owner=f"{type(self).__name__}.evaluate",
            generator=torch.Generator(),
        )

    def score_samples(self, X: object) -> np.ndarray:
        """Log-likelihood of each row: a mass for binary columns, a density in the units of X for
        real ones.
        """
        return self.evaluate(X).details["rows"].cpu().numpy()

    def score(self, X: object, y: object = None) -> float:  # type: ignore[override]
        """Mean log-likelihood per row; ``score_kind_`` says what it is."""
        return self.evaluate(X).value

    def anomaly_score(self, X: object) -> np.ndarray:
        """Minus the log-likelihood of each row: the larger, the stranger."""
        return -self.score_samples(X)

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Any:
        """Independent exact draws from the model.

        ``random_state`` None takes the estimator's own, so that repeated calls give the same draws
        where that is a number.
        """
        return self._sampled(n_samples, random_state, lambda n, g: self.model_.draw(n, generator=g))

    def impute(self, X: object, *, how: str = "auto", random_state: RandomState = None) -> Any:
        """X with its NaN filled from p(missing | observed): exactly where the model can, else by
        chains that hold what is observed; a model that cannot says so.

        ``how`` is ``"mean"`` (posterior mean), ``"mode"`` (most probable value, discrete columns),
        ``"draw"`` (one draw of all missing values together), or ``"auto"``: the mean for real
        columns, the mode for others.
        """
        check_is_fitted(self, "model_")
        return impute_encoded(
            self.model_,
            self.encoding_,
            self._seen(X, allow_nan=True),
            how,
            f"{type(self).__name__}.impute",
            generator=self._generator(random_state),
        )

    def _check_parameters(self) -> None:
        check_plain(self)
        check_types(self)

    def _generator(self, random_state: RandomState) -> torch.Generator:
        """Of a call; None takes the estimator's own."""
        return as_generator(self.random_state if random_state is None else random_state)

    @memory_limit.named("sample")
    def _sampled(
        self,
        n_samples: int,
        random_state: RandomState,
        draw: Callable[[int, torch.Generator], Tensor],
    ) -> np.ndarray:
        check_is_fitted(self, "model_")
        check_count(f"{type(self).__name__}.sample", "n_samples", n_samples)
        z = draw(n_samples, self._generator(random_state))
        return self.encoding_.decode(z.double().numpy())

    def _remember(self, train: Rows) -> None:
        """Keep what later calls need of the encoded rows that were fitted; nothing by default."""

    def _table(self, X: object, least: int = 1, reset: bool = True) -> np.ndarray:
        """X as rows to learn from, checked."""
        return checked(
            self,
            X,
            dtype=[np.float64, np.float32],
            reset=reset,
            ensure_min_samples=least,
            ensure_min_features=self.least_features if reset else 1,
            ensure_all_finite="allow-nan" if self.allow_nan else True,
        )

    def _evaluator(self) -> LikelihoodEvaluator | Quantity | None:
        """How rows are scored; None leaves the choice to the capability table."""
        return None

    def _kind(self, rows: Rows) -> Kind:
        """The encoding that the ``support`` parameter asks for, as its family does where that has
        such a setting; ``"auto"`` looks at the rows, of which an estimator of real columns takes
        any.
        """
        owner, family = type(self).__name__, FAMILIES[self.family]
        if "support" in family.settings and self.by_encoding is None:
            return family.encoding_kind(rows, self._settings(), owner)
        check_choice(owner, "support", self.support, self.supports)
        if self.supports == ("auto", "real"):
            return "real"
        return infer_kind(rows) if self.support == "auto" else cast("Kind", self.support)

    def _settings(self) -> JsonObject:
        """This estimator's parameters as settings of its family, which have the same names."""
        given = self.get_params(deep=False)
        known = FAMILIES[self.family].settings
        settings = {name: given[name] for name in known if name in given}
        if self.by_encoding is not None:
            name, values, other = self.by_encoding
            settings[name] = values.get(self.encoding_.kind, other)
        return settings

    def _options(self) -> JsonObject:
        """This estimator's parameters as options of the fit; None leaves the choice to the
        recipe.
        """
        return {
            **{name: getattr(self, name) for name in FIT_OPTIONS},
            "minutes": self.max_minutes,
        }

    def _rows(self, X: np.ndarray, sample_weight: Weight | None) -> Rows:
        """Rows in an order of their own, so that a fit does not depend on theirs; whole-number
        weights repeat rows, others weigh them. Those in which nothing was observed are left out.
        """
        order, sample_weight = canonical_order(X), values_of(sample_weight)
        if self._gaps():
            order = order[self._observed(X)[order]]
        rows = Rows(
            X,
            sample_weight,
            columns=getattr(self, "feature_names_in_", None),
            missing=self._gaps(),
            owner=f"{type(self).__name__}.fit",
        )
        if rows.weight is None:
            return rows.take(order)
        weight = np.asarray(sample_weight, dtype=np.float64)
        if (weight == weight.round()).all() and weight.sum() <= MOST_COUNTED:
            counted = Rows(X, columns=rows.columns, missing=self._gaps())
            return counted.take(np.repeat(order, weight[order].astype(int)))
        return rows.take(order[weight[order] > 0])

    def _observed(self, X: np.ndarray) -> np.ndarray:
        """Which rows hold a value, ``(N,)``; a warning tells how many do not."""
        observed, owner = np.isfinite(X).sum(1) > 0, f"{type(self).__name__}.fit"
        if not observed.any():
            raise invalid(owner, "X", "have a row with an observed value", "none")
        if lost := int((~observed).sum()):
            left = f"{lost} of {len(X)} rows hold no value and are left out."
            warnings.warn(f"{owner}: {left}", PartitaWarning, stacklevel=4)
        return observed

    def _gaps(self) -> bool:
        """Whether values may be missing from the rows to learn from."""
        return self.allow_nan

    def _seen(self, X: object, allow_nan: bool | None = None) -> np.ndarray:
        """X with the columns of the fit, as numbers; NaN by default where the class allows it."""
        allowed = self.allow_nan if allow_nan is None else allow_nan
        finite = "allow-nan" if allowed else True
        return checked(self, X, dtype=np.float64, reset=False, ensure_all_finite=finite)

    def _encoded(self, X: object, method: str) -> Tensor:
        check_is_fitted(self, "model_")
        rows = self.encoding_.check(self._seen(X), f"{type(self).__name__}.{method}")
        return torch.from_numpy(self.encoding_.encode(rows))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.allow_nan
        return tags


class Features(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """A density estimator whose ``transform`` makes numbered columns."""


def as_generator(random_state: object) -> torch.Generator:
    """A torch generator from a number, None, a NumPy RandomState, or a torch generator itself."""
    if isinstance(random_state, torch.Generator):
        return random_state
    with by_scikit_learn("random_state"):
        seed = int(check_random_state(random_state).randint(2**31 - 1))
    return torch.Generator().manual_seed(seed)


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
