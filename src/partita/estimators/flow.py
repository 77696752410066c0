"""Normalizing flows as a scikit-learn density estimator."""

from dataclasses import KW_ONLY

import numpy as np
import torch
from sklearn.utils.validation import check_array, check_is_fitted

from partita.core.protocols import in_double
from partita.errors import invalid
from partita.estimators._density import Density, Features
from partita.estimators._parameters import GradientParameters, parameters
from partita.estimators._validation import by_scikit_learn


@parameters
class FlowDensity(Features, GradientParameters, Density):
    """Exact density, anomalies, normal scores and new samples of real columns from a normalizing
    flow.

    Columns that copy others, or that repeat their values, have no density: the likelihood would
    grow without end. ``fit`` warns, by name.

    Arguments:
        n_layers: Number of coupling layers.
        coupling: ``"affine"`` (RealNVP) or ``"spline"`` (rational-quadratic: stronger, and slower).
        n_hidden: Units of each of the two hidden layers of a coupling's network.
        mixing: Of columns between couplings: ``"lu"`` (learned), ``"permutation"``, ``"reverse"``
            or ``"none"``.
        activation: Of those networks: ``"relu"``, ``"silu"``, ``"tanh"``, ``"gelu"`` or
            ``"softplus"``.
        n_bins: Of splines.
        bound: Where splines become the identity, in standard deviations.
        support: ``"auto"`` or ``"real"``: columns are standardized, and scores are densities in
            their own units.
        optimizer: ``"sgd"``, ``"adam"``, ``"lbfgs"`` (exact objectives) or ``"natural"``, as in
            ``partita.fit``; None leaves the choice.
        learning_rate, epochs, batch_size: None leaves them to the recipe for this number of rows.
        l1, l2: Penalties on all parameters.
        validation_fraction: Share of the rows held out to choose the best weights by, where it
            makes at least 10.
        max_minutes: Time to spend, in place of epochs.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        verbose: Show a progress bar.

    Attributes:
        model_: The fitted :class:`partita.models.Flow`, on standardized columns.
        run_: What the fit recorded.
        encoding_: How columns become the model's: kind, shift and scale.
        score_kind_: ``exact``.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = FlowDensity(2, n_hidden=8, epochs=2, random_state=0).fit(X)
    >>> model.score_kind_, bool(np.allclose(model.inverse_transform(model.transform(X)), X))
    ('exact', True)
    """

    family = "flow"
    supports = ("auto", "real")

    n_layers: int = 8
    coupling: str = "affine"
    _: KW_ONLY
    n_hidden: int = 64
    mixing: str = "lu"
    activation: str = "relu"
    n_bins: int = 8
    bound: float = 5.0

    @torch.no_grad()
    def transform(self, X: object) -> np.ndarray:
        """Normal scores: what the flow makes of each row, independent standard normal where the
        model is right, (N, D).
        """
        return in_double(self.model_).to_latent(self._encoded(X, "transform"))[0].numpy()

    @torch.no_grad()
    def inverse_transform(self, X: object) -> np.ndarray:
        """Rows in the units of the table from normal scores, (N, D)."""
        check_is_fitted(self, "model_")
        owner = "FlowDensity.inverse_transform"
        with by_scikit_learn(owner):
            scores = check_array(X, dtype="float64")
        if scores.shape[1] != self.n_features_in_:
            raise invalid(owner, "X", f"have shape (*, {self.n_features_in_})", scores.shape)
        x = in_double(self.model_).to_data(torch.from_numpy(scores))
        return self.encoding_.decode(x.numpy())

    @property
    def _n_features_out(self) -> int:
        return self.n_features_in_
