"""The variational autoencoder as a scikit-learn density estimator."""

from collections.abc import Sequence
from dataclasses import KW_ONLY

import numpy as np
import torch

from partita.core.protocols import in_double
from partita.estimators._density import Features
from partita.estimators._frames import MixedTables
from partita.estimators._latent import LatentDensity
from partita.estimators._parameters import GradientParameters, parameters


@parameters
class VAEDensity(Features, GradientParameters, MixedTables, LatentDensity):
    """Density (from below), features, anomalies, imputation and new samples from a variational
    autoencoder.

    Arguments:
        n_latent: Latent dimensions; ``"auto"`` takes half the columns, from 2 to 50.
        objective: ``"elbo"``, ``"iwae"``, or ``"dreg"`` (iwae with doubly reparameterized
            gradients).
        n_hidden: Units of each hidden layer; ``"auto"`` takes 200, fewer where there are few rows.
        n_layers: Hidden layers of the encoder and of the decoder.
        beta: Weight of the divergence from the prior (``"elbo"``).
        beta_warm_up: Updates over which that weight rises from zero, against collapse of the
            posterior (``"elbo"``).
        n_particles: Draws for each row while fitting (``"iwae"``, ``"dreg"``).
        variance: Learned deviation of real columns: ``"column"`` (one for each), ``"shared"`` or
            ``"row"`` (by the decoder).
        network, channels, image: ``"mlp"``, or ``"conv"`` with its channels and the shape of a row.
        activation: Of hidden layers.
        n_draws: Draws for each row while scoring: more make the lower bound tighter.
        support: ``"auto"`` looks at the data: zeros and ones, spins (relabeled), else real columns,
            standardized. ``"binary"``, ``"spin"``, ``"real"`` and ``"category"`` are strict.
            ``"mixed"`` takes each column by what it holds, in a frame of numbers, counts, truth
            values and words, of which some may be missing.
        columns: With ``"mixed"``, kinds by name in place of what values say: ``"real"``,
            ``"binary"``, ``"count"``, ``"overdispersed"``, ``"category"``, ``"date"`` or
            ``"ignore"``.
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
        model_: The fitted :class:`partita.models.VAE`, on encoded columns.
        run_: What the fit recorded: the bound, the divergence, active latent dimensions.
        encoding_: How columns become the model's: kind, shift and scale.
        score_kind_: ``lower``.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> X = (np.random.default_rng(0).random((80, 6)) < 0.3).astype(int)
    >>> model = VAEDensity(2, epochs=2, random_state=0).fit(X)
    >>> model.transform(X).shape, model.sample(3).shape, model.evaluate(X).kind
    ((80, 2), (3, 6), 'lower')
    """

    family = "vae"
    by_encoding = (
        "likelihood",
        {"real": "gaussian", "category": "categorical", "mixed": "mixed"},
        "bernoulli",
    )
    supports = ("auto", "binary", "spin", "real", "category", "mixed")

    n_latent: int | str = "auto"
    objective: str = "elbo"
    _: KW_ONLY
    n_hidden: int | str = "auto"
    n_layers: int = 2
    beta: float = 1.0
    beta_warm_up: int = 0
    n_particles: int = 10
    variance: str = "column"
    network: str = "mlp"
    activation: str = "tanh"
    channels: Sequence[int] = (16, 32)
    image: Sequence[int] | None = None
    n_draws: int = 100
    columns: dict[str, str] | None = None

    def _gaps(self) -> bool:
        return self._mixes()

    @torch.no_grad()
    def transform(self, X: object) -> np.ndarray:
        """Posterior means of the latent variables by the encoder, (N, M)."""
        return in_double(self.model_).posterior(self._encoded(X, "transform")).mean.numpy()

    @property
    def _n_features_out(self) -> int:
        return self.model_.latent
