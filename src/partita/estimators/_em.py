"""What the estimators of mixtures and linear-Gaussian models share: exact scores, missing values,
imputation, online fits.
"""

from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from partita.core import rng
from partita.core.checks import check_count, check_real
from partita.errors import invalid
from partita.estimators._density import Density, as_generator
from partita.experiment.imputation import impute_encoded
from partita.families import FAMILIES
from partita.families.component_search import criterion
from partita.models.directed.mixing import Mixing
from partita.objectives.em import Averages, OnlineEM, expected_statistics
from partita.tables import Rows
from partita.tables.encoding import Encoding
from partita.training.run import Run, make_config


class MixingDensity(Density):
    """A density estimator around a model that EM fits; NaN in X means that a value was not
    observed.
    """

    finite: ClassVar[bool | str] = "allow-nan"
    model_: Mixing
    _online: Averages | None
    max_iter: int
    tol: float

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit the model to the rows of X, whose NaN are missing values; ``sample_weight`` weighs
        them.
        """
        self._check_parameters()
        return super().fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """One step of online EM on the rows of X; the first call sets the encoding and a k-means++
        start from its rows.
        """
        self._check_parameters()
        first = not hasattr(self, "model_")
        X = self._table(X, least=2 if first else 1, reset=first)
        rows = self._rows(X, sample_weight)
        if first:
            self._begin(rows)
        self.encoding_.check(np.asarray(X, dtype=np.float64), f"{type(self).__name__}.partial_fit")
        rows, engine = self.encoding_.rows(rows), OnlineEM()
        if self._online is None:
            self._remember(rows)
        assert self._online is not None
        batch = rows.batch(torch.arange(len(rows)), generator=torch.Generator())
        self._online, _ = engine.step(self.model_, batch.x, batch.weight, self._online)
        self.run_.steps += 1
        return self

    def impute(self, X: Any, *, how: str = "auto", random_state: Any = None) -> np.ndarray:
        """X with its NaN filled from p(missing | observed), exactly.

        ``how`` is ``"mean"`` (posterior mean), ``"mode"`` (most probable value, discrete columns),
        ``"draw"`` (one draw of all missing values together), or ``"auto"``: the mean for real
        columns, the mode for others.
        """
        return impute_rows(self, X, how, random_state)

    def bic(self, X: Any) -> float:
        """The Bayesian information criterion on X; the smaller the better."""
        z = self._encoded(X, "bic")
        shift = float(self.encoding_.log_jacobians(z.numpy()).sum())
        return (
            criterion(self.model_, Rows(z, missing=True), generator=torch.Generator())[1]
            - 2 * shift
        )

    @property
    def n_iter_(self) -> int:
        """Updates made."""
        return self.run_.steps

    def _begin(self, rows: Rows) -> None:
        """A fresh model with a start from these rows."""
        generator = as_generator(self.random_state)
        self.encoding_ = Encoding.fit(rows, self._kind(rows), type(self).__name__)
        encoded = self.encoding_.rows(rows)
        model, _ = FAMILIES[self.family].build(encoded, self._settings(), generator=generator)
        model.initialize(encoded, generator=generator)
        self.model_ = model  # type: ignore[assignment]
        self._key, self._online = rng.seed(generator), None
        self.run_ = Run(
            model, [], make_config(model, OnlineEM(), {}, rows=[len(rows), rows.width]), 0, "online"
        )

    def _table(self, X: Any, least: int = 1, reset: bool = True) -> np.ndarray:
        X = super()._table(X, least, reset)
        nothing = np.isnan(X).all(1)
        if nothing.any():
            raise invalid(
                f"{type(self).__name__}.fit",
                "X",
                "have an observed value in every row",
                f"none in row {int(nothing.argmax())}",
                "Leave such rows out.",
            )
        return X

    def _check_parameters(self) -> None:
        """Numbers by the names that the caller knows."""
        given, owner = self.get_params(deep=False), type(self).__name__
        for name in ("n_components", "n_latent", "max_components", "n_init", "max_iter"):
            if name in given and not (isinstance(given[name], str) and given[name] == "auto"):
                check_count(owner, name, given[name])
        check_real(owner, "tol", self.tol, 0.0)
        check_real(owner, "reg_covar", given["reg_covar"], 0.0, open_low=True)

    def _forget(self) -> None:
        self._online = None

    def _kept(self) -> dict[str, Any]:
        return {} if self._online is None else {"online": self._online._asdict()}

    def _restore(self, kept: dict[str, Any]) -> None:
        self._online = Averages(**kept["online"]) if "online" in kept else None

    def _remember(self, train: Rows) -> None:
        """Statistics of the rows seen so far, so that online EM goes on from them."""
        engine = OnlineEM()
        statistics = expected_statistics(self.model_, train, generator=torch.Generator())
        self._online = engine.begin(statistics, self._key, max(1, len(train) // engine.batch))

    def _options(self) -> dict[str, Any]:
        return {
            "epochs": None if self.max_minutes is not None else self.max_iter,
            "minutes": self.max_minutes,
            "tolerance": self.tol,
        }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def impute_rows(estimator: Density, X: Any, how: str, random_state: Any) -> np.ndarray:
    """X with its NaN filled by a fitted estimator."""
    check_is_fitted(estimator, "model_")
    X = estimator._seen(X, "allow-nan")
    generator = as_generator(estimator.random_state if random_state is None else random_state)
    owner = f"{type(estimator).__name__}.impute"
    return impute_encoded(estimator.model_, estimator.encoding_, X, how, owner, generator=generator)
