"""The scikit-learn layer: density estimators named and used like ``KernelDensity``.

>>> from partita.estimators import RBMDensity
>>> import numpy as np
>>> X = np.random.default_rng(0).integers(0, 2, (60, 5))
>>> model = RBMDensity(epochs=3, random_state=0).fit(X)
>>> model.score_samples(X).shape, model.score_kind_
((60,), 'exact')
"""

from partita.estimators._saved import load
from partita.estimators.maxent import MaxEntDensity
from partita.estimators.rbm import RBMDensity

__all__ = ["MaxEntDensity", "RBMDensity", "load"]
