"""What the estimators of energy models share on top of every density estimator: log Z, chains,
hidden units as features.
"""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from partita.core import rng
from partita.core.protocols import PartitionEvaluator, in_double
from partita.core.quantity import Kind as ScoreKind
from partita.core.quantity import Quantity
from partita.estimators._density import Density, Features
from partita.estimators._parameters import RandomState
from partita.evaluators import Portfolio
from partita.evaluators.likelihood import named_evaluator
from partita.experiment.saved import draw_rows


class EnergyDensity(Density):
    """A density estimator around an energy model; subclasses name their family and translate their
    parameters.
    """

    evaluator: str | PartitionEvaluator
    _log_z: Quantity | None

    @property
    def log_z_(self) -> Quantity:
        """log Z of the fitted model, computed when first used; the same for the same
        ``random_state``.
        """
        check_is_fitted(self, "model_")
        found = self._log_z
        if found is None:
            given = named_evaluator(self.evaluator, type(self).__name__)
            evaluator = given or Portfolio()
            self._log_z = found = evaluator(self.model_, generator=rng.keyed(self._key, 0))
        return found

    @property
    def score_kind_(self) -> ScoreKind:
        """What ``score`` returns: ``exact``, ``estimate``, ``lower`` or ``upper``."""
        return (-self.log_z_).kind

    def sample(
        self, n_samples: int = 1, random_state: RandomState = None, *, burn_in: int | None = None
    ) -> np.ndarray:
        """Draws from the model: exact where its states are few, else the ends of chains after
        ``burn_in`` steps (1000).

        ``random_state`` None takes the estimator's own, so that repeated calls give the same draws
        where that is a number.
        """
        return self._sampled(
            n_samples, random_state, lambda n, g: draw_rows(self.model_, n, burn_in, g)
        )

    def _forget(self) -> None:
        self._log_z = None

    def _evaluator(self) -> Quantity:
        return self.log_z_


class HiddenUnits(Features, EnergyDensity):
    """The estimator of an energy model whose binary hidden units are independent given a row."""

    def transform(self, X: object) -> np.ndarray:
        """Probability of each hidden unit given each row, (N, H)."""
        z = self._encoded(X, "transform")
        return in_double(self.model_).hidden_given_visible(z).probs.detach().numpy()

    @property
    def _n_features_out(self) -> int:
        return self.model_.hidden
