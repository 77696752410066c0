"""Hidden units of an energy model as features."""

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from partita.core.annealed import in_double
from partita.estimators._base import EnergyDensity


class HiddenUnits(ClassNamePrefixFeaturesOutMixin, TransformerMixin, EnergyDensity):
    """The estimator of an energy model whose binary hidden units are independent given a row."""

    def transform(self, X: Any) -> np.ndarray:
        """Probability of each hidden unit given each row, (N, H)."""
        z = self._encoded(X, "transform")
        model: Any = in_double(self.model_)
        return model.hidden_given_visible(z).probs.detach().numpy()

    @property
    def _n_features_out(self) -> int:
        return self.model_.hidden  # type: ignore[return-value]
