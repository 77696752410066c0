"""The restricted Boltzmann machine as a scikit-learn density estimator."""

from dataclasses import KW_ONLY

from partita.estimators._energy import HiddenUnits
from partita.estimators._parameters import ChainParameters, parameters


@parameters
class RBMDensity(ChainParameters, HiddenUnits):
    """Density, features, anomalies, imputation and new samples from a restricted Boltzmann machine.

    Arguments:
        n_hidden: Hidden units; ``"auto"`` takes one per column while there are 20 rows for each,
            from 8 to 500.
        objective: ``"pcd"``, ``"cd"``, ``"exact"`` (20 hidden units or binary columns),
            ``"tempered"``, ``"replay"``, ``"nce"``; for binary columns ``"pseudo-likelihood"`` and
            ``"ratio-matching"``; for real ones ``"score-matching"``, ``"sliced-score-matching"``
            and ``"denoising-score-matching"``.
        support: ``"auto"`` looks at the data: zeros and ones get Bernoulli units, spins are
            relabeled to them, anything else gets Gaussian units on standardized columns.
            ``"binary"``, ``"spin"`` and ``"real"`` are strict.
        centered: Whether the gradient is centered; None does so where the model can.
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
        evaluator: How log Z is computed: ``"auto"``, ``"enumeration"``, ``"quadrature"`` (up to
            three real columns), ``"sandwich"``, ``"bridge"``, ``"ais"``, ``"smc"``,
            ``"reverse-ais"``, or an evaluator object.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        verbose: Show a progress bar.

    Attributes:
        model_: The fitted :class:`partita.models.RBM`, on encoded columns.
        run_: What the fit recorded.
        encoding_: How columns become the model's: kind, shift and scale.
        log_z_: log Z as a Quantity, computed when first used.
        score_kind_: ``exact`` or ``estimate``: what ``score`` returns.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> import numpy as np
    >>> X = (np.random.default_rng(0).random((80, 6)) < 0.3).astype(int)
    >>> model = RBMDensity(n_hidden=4, epochs=2, random_state=0).fit(X)
    >>> model.transform(X).shape, model.sample(3).shape, model.evaluate(X).kind
    ((80, 4), (3, 6), 'exact')
    """

    family = "rbm"
    by_encoding = ("visible_units", {"real": "gaussian"}, "bernoulli")
    supports = ("auto", "binary", "spin", "real")

    n_hidden: int | str = "auto"
    objective: str = "pcd"
    _: KW_ONLY
    centered: bool | None = None
