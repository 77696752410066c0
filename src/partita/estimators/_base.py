"""What the estimators of energy models share on top of every density estimator: log Z, chains,
imputation by clamped sampling.
"""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from partita.core import capability, rng
from partita.core.checks import check_count
from partita.core.protocols import EnergyModel
from partita.core.quantity import Quantity
from partita.estimators._density import Density, as_generator, canonical_order
from partita.experiment.encoded import draw_rows
from partita.experiment.imputation import impute_encoded
from partita.families import named_evaluator
from partita.runtime import memory_limit

__all__ = ["Density", "EnergyDensity", "as_generator", "canonical_order"]


class EnergyDensity(Density):
    """A density estimator around an energy model; subclasses name their family and translate their
    parameters.
    """

    model_: EnergyModel
    evaluator: Any

    @property
    def log_z_(self) -> Quantity:
        """log Z of the fitted model, computed when first used; the same for the same
        ``random_state``.
        """
        check_is_fitted(self, "model_")
        if self._log_z is None:
            evaluator = named_evaluator(self.evaluator, type(self).__name__) or capability.default(
                "partition", self.model_
            )
            self._log_z = evaluator(self.model_, generator=rng.keyed(self._key, 0))
        return self._log_z

    @property
    def score_kind_(self) -> str:
        """What ``score`` returns: ``exact``, ``estimate``, ``lower`` or ``upper``."""
        return (-self.log_z_).kind

    @memory_limit.named("sample")
    def sample(
        self, n_samples: int = 1, random_state: Any = None, *, burn_in: int | None = None
    ) -> np.ndarray:
        """Draws from the model: exact where its states are few, else the ends of chains after
        ``burn_in`` steps (1000).

        ``random_state`` None takes the estimator's own, so that repeated calls give the same draws
        where that is a number.
        """
        check_is_fitted(self, "model_")
        check_count(f"{type(self).__name__}.sample", "n_samples", n_samples)
        generator = as_generator(self.random_state if random_state is None else random_state)
        return self.encoding_.decode(
            draw_rows(self.model_, n_samples, burn_in, generator).double().numpy()
        )

    def impute(self, X: Any, *, how: str = "auto", random_state: Any = None) -> np.ndarray:
        """X with its NaN filled: observed values are held, missing ones drawn given them, by
        clamped sampling; exactly where they have few states.

        ``how`` is ``"mean"`` (posterior mean), ``"mode"`` (most probable value, binary columns),
        ``"draw"`` (one draw), or ``"auto"``: the mean for real columns, the mode for binary ones.
        """
        owner = f"{type(self).__name__}.impute"
        check_is_fitted(self, "model_")
        X = self._seen(X, "allow-nan")
        generator = as_generator(self.random_state if random_state is None else random_state)
        return impute_encoded(self.model_, self.encoding_, X, how, owner, generator=generator)

    def _forget(self) -> None:
        self._log_z = None

    def _evaluator(self) -> Quantity:
        return self.log_z_
