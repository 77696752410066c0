"""The variational recurrent network as a scikit-learn density estimator."""

from dataclasses import KW_ONLY

import numpy as np
import torch

from partita.core.protocols import in_double
from partita.estimators._density import Features
from partita.estimators._latent import LatentDensity
from partita.estimators._parameters import GradientParameters, parameters


@parameters
class VRNNDensity(Features, GradientParameters, LatentDensity):
    """Density (from below), features, anomalies, imputation and new samples of rows whose columns
    follow one another in time.

    Arguments:
        n_latent: Latent dimensions of a step.
        objective: ``"elbo"``, ``"iwae"``, or ``"fivo"`` (a particle filter).
        step_columns: Columns that make one step.
        n_hidden: Hidden units of the recurrence.
        cell: ``"gru"`` or ``"lstm"``.
        beta: Weight of the divergence from the prior (``"elbo"``).
        beta_warm_up: Updates over which that weight rises from zero, against collapse of the
            posterior (``"elbo"``).
        n_features: Units of the networks around the recurrence; ``"auto"`` is ``n_hidden``.
        variance: Learned deviation of real steps: ``"row"`` (by the decoder), ``"column"`` or
            ``"shared"``.
        activation: Of the networks.
        resample_every: Steps between two resamplings of the particles (``"fivo"``).
        n_particles: Draws or particles for each row while fitting (``"iwae"``, ``"fivo"``).
        n_draws: Draws for each row while scoring: more make the lower bound tighter.
        support: ``"auto"`` looks at the data: zeros and ones, spins (relabeled), else real columns,
            standardized. ``"binary"``, ``"spin"`` and ``"real"`` are strict.
        optimizer: ``"sgd"``, ``"adam"``, ``"lbfgs"`` (exact objectives) or ``"natural"``, as in
            ``partita.fit``; None leaves the choice.
        learning_rate, epochs, batch_size: None leaves them to the recipe for this model and number
            of rows.
        l1, l2: Penalties on all parameters.
        validation_fraction: Share of the rows held out to choose the best weights by, where it
            makes at least 10.
        max_minutes: Time to spend, in place of epochs.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        verbose: Show a progress bar.

    Attributes:
        model_: The fitted :class:`partita.models.VRNN`, on encoded columns. run_, encoding_,
            score_kind_, n_features_in_, feature_names_in_: As in every density estimator of
            latent-variable models.

    >>> X = (np.random.default_rng(0).random((80, 6)) < 0.3).astype(int)
    >>> model = VRNNDensity(2, n_hidden=8, epochs=2, random_state=0).fit(X)
    >>> model.transform(X).shape, model.sample(3).shape, model.evaluate(X).kind
    ((80, 8), (3, 6), 'lower')
    """

    family = "vrnn"
    supports = ("auto", "binary", "spin", "real")

    n_latent: int = 16
    objective: str = "elbo"
    _: KW_ONLY
    step_columns: int = 1
    n_hidden: int = 128
    cell: str = "gru"
    beta: float = 1.0
    beta_warm_up: int = 0
    n_particles: int = 10
    n_features: int | str = "auto"
    variance: str = "row"
    activation: str = "relu"
    resample_every: int = 1
    n_draws: int = 100

    @torch.no_grad()
    def transform(self, X: object) -> np.ndarray:
        """Hidden units after the last step, along the means of the latent variables, (N, H)."""
        return in_double(self.model_).encode(self._encoded(X, "transform")).numpy()

    @property
    def _n_features_out(self) -> int:
        return self.n_hidden
