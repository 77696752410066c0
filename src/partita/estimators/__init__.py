"""The scikit-learn layer: density estimators named and used like ``KernelDensity``.

>>> from partita.estimators import RBMDensity
>>> import numpy as np
>>> X = np.random.default_rng(0).integers(0, 2, (60, 5))
>>> model = RBMDensity(epochs=3, random_state=0).fit(X)
>>> model.score_samples(X).shape, model.score_kind_
((60,), 'exact')

Every registered estimator is an attribute of this package. A new one is a :class:`Density` or an
:class:`EnergyDensity` with the :func:`parameters` of its family.
"""

from partita.estimators._density import Density
from partita.estimators._energy import EnergyDensity
from partita.estimators._parameters import (
    ESTIMATORS,
    ChainParameters,
    FitParameters,
    GradientParameters,
    parameters,
)
from partita.estimators._saved import load
from partita.estimators.autoregressive import AutoregressiveDensity
from partita.estimators.bayesian_linear import BayesianLinearRegression
from partita.estimators.bayesian_logistic import BayesianLogisticRegression
from partita.estimators.belief import SigmoidBeliefDensity
from partita.estimators.dirichlet_process import DirichletProcessMixture
from partita.estimators.flow import FlowDensity
from partita.estimators.gan import GANSampler
from partita.estimators.ising import IsingDensity
from partita.estimators.latent_energy import LatentEnergyDensity
from partita.estimators.maxent import MaxEntDensity
from partita.estimators.mixture import MixtureDensity
from partita.estimators.neural_energy import NeuralEnergyDensity
from partita.estimators.potts import PottsDensity
from partita.estimators.ppca import MixturePPCADensity, PPCADensity
from partita.estimators.prototype_encoder import PrototypeEncoder
from partita.estimators.rbm import RBMDensity
from partita.estimators.vae import VAEDensity
from partita.estimators.vrnn import VRNNDensity

__all__ = [
    "ESTIMATORS",
    "AutoregressiveDensity",
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "ChainParameters",
    "Density",
    "DirichletProcessMixture",
    "EnergyDensity",
    "FitParameters",
    "FlowDensity",
    "GANSampler",
    "GradientParameters",
    "IsingDensity",
    "LatentEnergyDensity",
    "MaxEntDensity",
    "MixtureDensity",
    "MixturePPCADensity",
    "NeuralEnergyDensity",
    "PPCADensity",
    "PottsDensity",
    "PrototypeEncoder",
    "RBMDensity",
    "SigmoidBeliefDensity",
    "VAEDensity",
    "VRNNDensity",
    "load",
    "parameters",
]


def __getattr__(name: str) -> type:
    if name.startswith("_") or name not in ESTIMATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return ESTIMATORS[name]
