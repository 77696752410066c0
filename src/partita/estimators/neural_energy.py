"""A network as energy, as a scikit-learn density estimator."""

from collections.abc import Sequence
from dataclasses import KW_ONLY

from partita.estimators._energy import EnergyDensity
from partita.estimators._parameters import ChainParameters, parameters


@parameters
class NeuralEnergyDensity(ChainParameters, EnergyDensity):
    """Density, anomalies, imputation and new samples from a network as energy, on real or binary
    columns.

    Arguments:
        network: ``"mlp"``, or ``"conv"`` for images and sequences.
        width, n_layers: Units of each layer, and layers, of a perceptron.
        channels, pool, separable: Of convolutions, each followed by pooling (``"max"``,
            ``"average"`` or ``"none"``).
        image: Height and width, or length, of a row; None takes a square, else a sequence.
        activation: ``"silu"``, ``"tanh"``, ``"softplus"``, ``"gelu"`` or ``"relu"``.
        objective: ``"auto"`` (the likelihood itself, by quadrature, on one or two real columns or
            where binary states are few, else pcd), ``"exact"``, ``"pcd"``, ``"cd"``,
            ``"tempered"``, ``"replay"``, ``"nce"``, ``"score-matching"``, ...
        support: ``"auto"`` looks at the data: zeros and ones stay, spins are relabeled, other
            columns are standardized. ``"binary"``, ``"spin"`` and ``"real"`` are strict.
        covariance_type: Of the normal reference, ``"full"`` or ``"diagonal"``.
        n_chains: Markov chains of the negative phase.
        n_steps: Sampler steps between two updates, as in CD-k and PCD-k.
        noise_ratio: Rows of noise for each row of data (``"nce"``).
        sigma: Deviation of the noise added to standardized columns
            (``"denoising-score-matching"``).
        optimizer: ``"sgd"``, ``"adam"``, ``"lbfgs"`` (exact objectives) or ``"natural"``, as in
            ``partita.fit``; None leaves the choice.
        learning_rate, epochs, batch_size: None leaves them to the recipe for this model and number
            of rows.
        l1, l2: Penalties on the weights.
        validation_fraction: Share of the rows held out to choose the best weights by, where it
            makes at least 10.
        max_minutes: Time to spend, in place of epochs.
        evaluator: How log Z is computed: ``"auto"`` (quadrature up to three real columns),
            ``"enumeration"``, ``"quadrature"``, ``"sandwich"``, ``"bridge"``, ``"ais"``, ``"smc"``,
            ``"reverse-ais"``, or an evaluator object.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        verbose: Show a progress bar.

    Attributes:
        model_: The fitted :class:`partita.models.NeuralEnergy`, on encoded columns.
        run_: What the fit recorded.
        encoding_: How columns become the model's: kind, shift and scale.
        log_z_: log Z as a Quantity, computed when first used.
        score_kind_: ``exact`` or ``estimate``: what ``score`` returns.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> model = NeuralEnergyDensity(width=8, epochs=20, random_state=0).fit(X)
    >>> model.sample(3).shape, model.evaluate(X).kind
    ((3, 2), 'estimate')
    """

    family = "neural-energy"
    by_encoding = ("support", {"real": "real"}, "binary")
    supports = ("auto", "binary", "spin", "real")

    objective: str = "auto"
    _: KW_ONLY
    network: str = "mlp"
    width: int = 64
    n_layers: int = 2
    activation: str = "silu"
    channels: Sequence[int] = (16, 32)
    image: Sequence[int] | None = None
    pool: str = "average"
    separable: bool = False
    covariance_type: str = "full"
