"""What the estimators of mixtures and linear-Gaussian models share: exact scores, missing values,
online fits.
"""

from typing import ClassVar, Self

import numpy as np
import torch

from partita.core import rng
from partita.estimators._density import Density, as_generator
from partita.families import FAMILIES
from partita.families.mixture import criterion
from partita.objectives.em import Averages, OnlineEM, expected_statistics
from partita.runtime.files import JsonObject
from partita.tables import Rows
from partita.tables.encoding import Encoding
from partita.tables.rows import Weight
from partita.training.run import Run, make_config


class MixingDensity(Density):
    """A density estimator around a model that EM fits; NaN in X means that a value was not
    observed.
    """

    allow_nan: ClassVar[bool] = True
    _online: Averages | None
    max_iter: int
    tol: float

    def partial_fit(self, X: object, y: object = None, sample_weight: Weight | None = None) -> Self:
        """One step of online EM on the rows of X; the first call sets the encoding and a k-means++
        start from its rows.
        """
        self._check_parameters()
        first = not self.__sklearn_is_fitted__()
        table = self._table(X, least=2 if first else 1, reset=first)
        rows = self._rows(table, sample_weight)
        if first:
            self._begin(rows)
        owner = f"{type(self).__name__}.partial_fit"
        self.encoding_.check(np.asarray(table, dtype=np.float64), owner)
        rows, engine = self.encoding_.rows(rows), OnlineEM()
        if self._online is None:
            self._remember(rows)
        assert self._online is not None
        batch = rows.batch(torch.arange(len(rows)), generator=torch.Generator())
        self._online, _ = engine.step(self.model_, batch.x, batch.weight, self._online)
        self.run_.steps += 1
        return self

    def bic(self, X: object) -> float:
        """The Bayesian information criterion on X; the smaller the better."""
        z = self._encoded(X, "bic")
        shift = float(self.encoding_.log_jacobians(z.numpy()).sum())
        encoded = Rows(z, missing=True)
        return criterion(self.model_, encoded, generator=torch.Generator())[1] - 2 * shift

    @property
    def n_iter_(self) -> int:
        """Updates made."""
        return self.run_.steps

    def _begin(self, rows: Rows) -> None:
        """A fresh model with a start from these rows."""
        generator = as_generator(self.random_state)
        self.encoding_ = Encoding.fit(rows, self._kind(rows), type(self).__name__)
        encoded = self.encoding_.rows(rows)
        model, _ = FAMILIES[self.family].build(
            encoded, self._settings(), owner=type(self).__name__, generator=generator
        )
        model.initialize(encoded, generator=generator)
        self.model_, self._key, self._online = model, rng.seed(generator), None
        config = make_config(model, OnlineEM(), {}, rows=[len(rows), rows.width])
        self.run_ = Run(model, [], config, 0, "online")

    def _forget(self) -> None:
        self._online = None

    def _kept(self) -> JsonObject:
        return {} if self._online is None else {"online": self._online._asdict()}

    def _restore(self, kept: JsonObject) -> None:
        self._online = Averages(**kept["online"]) if "online" in kept else None

    def _remember(self, train: Rows) -> None:
        """Statistics of the rows seen so far, so that online EM goes on from them."""
        engine = OnlineEM()
        statistics = expected_statistics(self.model_, train, generator=torch.Generator())
        self._online = engine.begin(statistics, self._key, max(1, len(train) // engine.batch))

    def _options(self) -> JsonObject:
        return {
            "epochs": None if self.max_minutes is not None else self.max_iter,
            "minutes": self.max_minutes,
            "tolerance": self.tol,
        }
