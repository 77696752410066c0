"""What the estimators of latent-variable models share: scores from below, and imputation along
chains of the posterior.
"""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from partita.estimators._density import Density, as_generator
from partita.evaluators import IWAE
from partita.experiment.imputation import impute_encoded


class LatentDensity(Density):
    """A density estimator around a latent-variable model; subclasses name their family and
    translate their parameters.
    """

    n_draws: int

    @property
    def score_kind_(self) -> str:
        """``lower``: ``score`` is a lower bound in expectation."""
        super().score_kind_  # noqa: B018  asks whether it is fitted
        return "lower"

    def impute(self, X: Any, *, how: str = "auto", random_state: Any = None) -> np.ndarray:
        """X with its NaN filled by chains of the posterior: observed values are held, missing ones
        drawn given them.

        ``how`` is ``"mean"`` (posterior mean), ``"mode"`` (most probable value, discrete columns),
        ``"draw"`` (one draw), or ``"auto"``: the mean for real columns, the mode for discrete ones.
        """
        check_is_fitted(self, "model_")
        X = self._seen(X, "allow-nan")
        generator = as_generator(self.random_state if random_state is None else random_state)
        return impute_encoded(
            self.model_,
            self.encoding_,
            X,
            how,
            f"{type(self).__name__}.impute",
            generator=generator,
        )

    def _evaluator(self) -> IWAE:
        return IWAE(self.n_draws, by_row=True)
